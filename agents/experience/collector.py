"""Play environments with a policy: `Collector.collect` writes a training's rows into a memory, `Collector.play` counts
the complete episodes of an evaluation.

A world is one of the N environments that step together. A collector belongs to an agent (agents/base.py) or to an
evaluation; engines may replace `collect` by kernels that do the same to the bit (agents/sockets.py).
"""

import math
import time
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from stride.agents.experience.finite_guard import (
    NonFiniteError,
    float_views,
    floating,
    may_be_non_finite,
    non_finite_in,
)
from stride.agents.experience.memory import Memory
from stride.agents.experience.nouns import Act, Dream, Explanation, Row, Tree, copy_into, expand, leaves, tree_map
from stride.agents.experience.shards import SINGLE, SingleShard
from stride.envs_fast.vec_env import Obs, Step, VecEnv, wrong_action
from stride.utils.counter_rng import ACT, Key, uniforms

WINDOW = 100  # episodes in the running means ep_rew/mean and ep_len/mean; 100 is usual in the field
STEPS_PER_FETCH = 32  # steps of an evaluation on a GPU between two copies of results to the host: each copy waits


class Policy(nn.Module):
    """Chooses actions from observations. It owns weights and statistics, and no state of single worlds."""

    draws: int
    """how many uniform random numbers `act` needs for one world and step"""

    def initial(self, num_envs: int) -> Tree:
        """Return the carry before an episode's first step: what a recurrent policy remembers from step to step.

        Tensors [num_envs, ...], or () for a policy that remembers nothing.
        """
        raise NotImplementedError

    def act(self, obs: Obs, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        """Return an action for each of N worlds at one step, tensors [N, ...].

        `noise` [N, draws] are uniform random numbers in [0, 1): the policy draws nothing itself, so that the same
        arguments and weights give the same result. It resets the carry where `is_first` is set, and returns a new carry
        instead of changing the old one. `greedy`: return the best action instead of a random one.
        Collectors call it in inference mode, so the result has no gradients. The next step overwrites `obs`, so the
        result must not refer to it.
        """
        raise NotImplementedError

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        """Return what `act` would base its choice on, for the inspector and films. Draws and changes nothing.

        Tensors [N, ...] of one step. Gradients flow from the result to `obs` (saliency maps need them), so images may
        be floats here. Nothing is learnt from these numbers, so each algorithm may compute them in its own way.
        """
        raise NotImplementedError

    def laid_out(self, obs: Obs) -> Obs:
        """Copy one step's observations, in the memory layout that this policy reads fastest (such as channels last)."""
        return tree_map(torch.clone, obs)

    def follow(self, obs: Obs, carry: Tree, is_first: Tensor, action: Tensor) -> Tree:
        """Return the carry after a step whose `action` this policy did not choose itself, such as a person's.

        By default the carry that `act` returns; a policy that remembers its actions overrides this.
        """
        zero_noise = torch.zeros(len(is_first), self.draws, device=is_first.device)
        return self.act(obs, carry, is_first, zero_noise, True).carry

    def moved(self, before: Tree, after: Tree) -> Tensor | None:
        """Return by how much the carry changed in a step, as a norm [N]; None where a policy has no such measure."""
        return None

    def dream(self, states: Tree, actions: Tensor) -> Dream | None:
        """Predict H steps from each of T states by a world model; None for a policy without one.

        `states` [T, ...] are `Explanation.state`, `actions` are [T, H, ...]. Deterministic: it takes the most likely
        value where `act` would draw one. No gradients.
        """
        return None


class Window:
    """Returns and lengths of the last WINDOW finished episodes, stored on the device: one transfer for a summary."""

    def __init__(self, device: torch.device) -> None:
        self.ring = torch.zeros(2, WINDOW + 1, device=device)  # returns, lengths; the last column is for values to drop
        self.count = torch.zeros((), dtype=torch.int64, device=device)
        self.best = float("-inf")

    def add(self, ended: Tensor, returns: Tensor, lengths: Tensor) -> None:
        """Add the episodes that finished where `ended` is set; all tensors [T, N], in the order of time."""
        ended = ended.flatten()
        # The number of each episode among those that ended now, 1, 2, ...: only the last WINDOW get a column of the
        # ring, all other entries are written to column WINDOW, which nobody reads. So the shapes do not depend on the
        # data, and the host need not wait for the device.
        finish_order = ended.long().cumsum(0)
        finished_count = finish_order[-1:]
        in_window = ended & (finish_order > finished_count - WINDOW)
        ring_column = torch.where(in_window, (self.count + finish_order - 1) % WINDOW, WINDOW)
        self.ring[:, ring_column] = torch.stack((returns.flatten(), lengths.flatten()))
        self.count += finished_count[0]

    def summary(self) -> dict[str, float]:
        """Return the window's means by the names of metrics, the best mean return so far, and the count of episodes."""
        numbers = torch.cat((self.ring.flatten().double(), self.count.double()[None])).cpu().tolist()
        count = numbers.pop()
        stored_count = min(int(count), WINDOW)
        if not stored_count:
            return {"episodes": 0.0}
        mean_return = sum(numbers[:stored_count]) / stored_count
        length = sum(numbers[WINDOW + 1 :][:stored_count]) / stored_count
        self.best = max(self.best, mean_return)
        return {"ep_rew/mean": mean_return, "ep_rew/best": self.best, "ep_len/mean": length, "episodes": count}

    def state_dict(self) -> dict:
        ring = self.ring.clone()
        ring[:, WINDOW] = 0  # what was dropped last depends on where a run was stopped
        return {"ring": ring, "count": self.count.clone(), "best": self.best}

    def load_state_dict(self, state: dict) -> None:
        self.ring.copy_(state["ring"])
        self.count.copy_(state["count"])
        self.best = state["best"]


class EpisodeResults(NamedTuple):
    """Returns and lengths of complete episodes: all of world 0, then all of world 1, and so on."""

    returns: list[float]
    lengths: list[float]


def episodes_per_world(count: int, worlds: int) -> list[int]:
    """Return how many of `count` episodes each world plays; the first `count` to finish would favour short ones."""
    return [count // worlds + (world_index < count % worlds) for world_index in range(worlds)]


class CountedStep(NamedTuple):
    """What an EpisodeTally needs of one step of all worlds, [N, ...]; [T, N, ...] where T steps are stacked.

    Integer tensors are left out of the trees, since they cannot be non-finite; a field is () where nothing is checked.
    """

    ended: Tensor
    returns: Tensor
    lengths: Tensor
    obs: Tree = ()
    """the observation before the action"""
    action: Tree = ()
    reward: Tree = ()
    last: Tree = ()
    """the final observation of an episode that ended"""


class EpisodeTally:
    """Counts `count` episodes over the worlds, and checks their numbers. Gets every step in order, as CPU tensors."""

    def __init__(self, count: int, worlds: int) -> None:
        self.missing = count
        self.steps = 0
        self._wanted = episodes_per_world(count, worlds)
        self._episodes: list[list[tuple[float, float]]] = [[] for _ in range(worlds)]  # (return, length) by world
        self._first_step = [0] * worlds  # of each world's running episode

    def _counts(self, world_index: int) -> bool:
        return len(self._episodes[world_index]) < self._wanted[world_index]

    def check(self, name: str, tree: Tree, worlds: Iterable[int] | None = None) -> None:
        """Raise NonFiniteError if `tree` [N, ...] has a non-finite number of a world whose episode counts.

        `worlds`: the worlds to check, None for all; `name` is for the message, such as "reward".
        """
        if worlds is None:
            worlds = range(len(self._wanted))
        if problem := non_finite_in(name, tree, [world_index for world_index in worlds if self._counts(world_index)]):
            description, world_index = problem
            step = self.steps - self._first_step[world_index]
            raise NonFiniteError(description, world_index, step, len(self._episodes[world_index]) + 1)

    def add(self, ended: list[int], returns: Tensor, lengths: Tensor, last: Tree | None) -> None:
        """Count the episodes that this step ended, in the worlds `ended`; returns and lengths are [N].

        `last`: final observations [N, ...], which are checked with the returns; None for no check.
        """
        views = [] if last is None else float_views(last)
        for world in ended:
            if self._counts(world):
                episode_return = returns[world].item()
                suspicious = not math.isfinite(episode_return) or may_be_non_finite([view[world] for view in views])
                if last is not None and suspicious:
                    self.check("last observation", last, [world])
                    self.check("return", returns, [world])
                self._episodes[world].append((episode_return, lengths[world].item()))
                self.missing -= 1
            self._first_step[world] = self.steps

    @property
    def fraction(self) -> float:
        """Estimate the fraction of all steps that is done, by the mean length so far; 0 until an episode has ended."""
        lengths = [length for episodes in self._episodes for _, length in episodes]
        return min(1.0, self.steps * len(lengths) / (sum(lengths) * max(self._wanted))) if lengths else 0.0

    def results(self) -> EpisodeResults:
        """Return all counted episodes, world by world."""
        episodes = [episode for world in self._episodes for episode in world]
        return EpisodeResults([total for total, _ in episodes], [length for _, length in episodes])


class Collector:
    """Steps worlds with a policy.

    Owns the current observation, is_first, the carry and the key of acting randomness; refers to worlds and policy.
    """

    def __init__(self, envs: VecEnv, policy: Policy, seed: int, purpose: int = ACT, greedy: bool = False) -> None:
        self.envs = envs
        self.policy = policy
        self.greedy = greedy
        self.steps_per_fetch = 1 if envs.device.type == "cpu" else STEPS_PER_FETCH
        self.shard: SingleShard = SINGLE
        self.obs = policy.laid_out(envs.reset(seed))
        self.carry = policy.initial(envs.num_envs)
        self._key = Key(seed, purpose)
        self.calls = 0
        self.counter: Tensor | None = None  # a copy of `calls`, int64 [] on the device, for CUDA graphs
        self.is_first = torch.ones(envs.num_envs, dtype=torch.bool, device=envs.device)
        self.window = Window(envs.device)
        self.tally: EpisodeTally | None = None  # of the last call of `play`

    @torch.no_grad()
    def example(self) -> Row:
        """Return a row [N, ...] of the right shapes and types, by one call of the policy; its values mean nothing."""
        flag = self.is_first
        zero_noise = torch.zeros(self.envs.num_envs, self.policy.draws, device=flag.device)
        act = self.policy.act(self.obs, self.carry, flag, zero_noise, False)
        slot = torch.zeros_like(flag, dtype=torch.long)
        return Row(self.obs, flag, act.action, flag.float(), flag, flag, slot, act.extras)

    @torch.inference_mode()
    def collect(self, steps: int, memory: Memory) -> None:
        """Play `steps` steps in every world and write `steps` rows to the memory; episodes that end begin anew.

        Afterwards the current observation, is_first and carry are those after the last row. Nothing is learnt or
        checked here, the agent counts env steps, and the rows have no gradients.
        Random numbers are drawn once per call, so two calls of 64 steps give other results than one of 128.
        """
        episode_rows = []
        for step_noise in self.noise(steps):
            policy_act = self._act(step_noise)
            step = self.envs.step(policy_act.action)
            memory.write(self.obs, self.is_first, policy_act, step)
            self._advance(policy_act, step)
            episode_rows.append((self.is_first.clone(), step.episode_return.clone(), step.episode_length.clone()))
        ended_flags, returns, lengths = (torch.stack(row_values) for row_values in zip(*episode_rows, strict=True))
        self.window.add(*self.shard.gather_worlds(ended_flags & (lengths > 0), returns, lengths))

    def _act(self, noise: Tensor) -> Act:
        return self.policy.act(self.obs, self.carry, self.is_first, noise, self.greedy)

    @torch.inference_mode()
    def play(
        self, count: int, max_steps: int | None = None, guarded: bool = True, deadline: float = math.inf
    ) -> EpisodeResults:
        """Play `count` complete episodes, shared out over the worlds (`episodes_per_world`), and return their results.

        The worlds must have just been reset. Nothing is written to a memory or to the window of finished episodes.
        A world whose episodes are done keeps stepping, without being counted. After `max_steps` steps per world, and
        once time.monotonic() is past `deadline`, unfinished episodes are dropped, so there may be fewer than `count`.
        Raises NonFiniteError if `guarded` and a counted episode has a non-finite number.
        """
        episode_tally = self.tally = EpisodeTally(count, self.envs.num_envs)
        step_limit = math.inf if max_steps is None else max_steps
        play_steps = self._play_on_host if self.steps_per_fetch == 1 else self._play_on_device
        with np.errstate(over="ignore", invalid="ignore"):  # numbers too large for 32 bits, and their sums
            play_steps(episode_tally, step_limit, guarded, deadline)
        return episode_tally.results()

    def _play_on_host(self, tally: EpisodeTally, limit: float, guarded: bool, deadline: float) -> None:
        """On the CPU: look at every step."""
        obs_views = float_views(self.obs) if guarded else []  # self.obs is written in place, so these views stay valid
        while tally.missing and tally.steps < limit and time.monotonic() < deadline:
            if may_be_non_finite(obs_views):
                tally.check("observation", self.obs)
            policy_act = self._act(self.noise(1)[0])
            step = self.envs.step(policy_act.action)
            self._advance(policy_act, step)
            tally.steps += 1
            if guarded and may_be_non_finite(float_views(policy_act.action, step.reward)):
                tally.check("action", policy_act.action)
                tally.check("reward", step.reward)
            if ended_worlds := (self.is_first & (step.episode_length > 0)).nonzero().flatten().tolist():
                tally.add(ended_worlds, step.episode_return, step.episode_length, step.final_obs if guarded else None)

    def _play_on_device(self, tally: EpisodeTally, limit: float, guarded: bool, deadline: float) -> None:
        """On a device: fetch `steps_per_fetch` steps at once; steps after the last counted episode are dropped."""
        while tally.missing and tally.steps < limit and time.monotonic() < deadline:
            steps = int(min(self.steps_per_fetch, limit - tally.steps))
            table = tree_map(lambda *rows: torch.stack(rows), *(self._counted_step(guarded) for _ in range(steps)))
            non_finite, wrong_actions, table = _fetch(table, self.envs.wrong)
            for t in range(steps):
                step_row = tree_map(lambda x: x[t], table)  # noqa: B023
                if non_finite:
                    tally.check("observation", step_row.obs)
                tally.steps += 1
                if non_finite:
                    tally.check("action", step_row.action)
                    tally.check("reward", step_row.reward)
                if ended_worlds := step_row.ended.nonzero().flatten().tolist():
                    tally.add(ended_worlds, step_row.returns, step_row.lengths, step_row.last if non_finite else None)
                if not tally.missing:
                    break
            if wrong_actions:
                raise wrong_action(self.envs)

    def _counted_step(self, guarded: bool) -> CountedStep:
        """Take one step and return copies of its tensors, since the next step overwrites the originals."""
        acted_on = tree_map(torch.clone, floating(self.obs)) if guarded else ()
        act = self._act(self.noise(1)[0])
        step = self.envs.step(act.action)
        self._advance(act, step)
        ended_flags = self.is_first & (step.episode_length > 0)
        counted = CountedStep(ended_flags, step.episode_return, step.episode_length)
        if guarded:
            counted = CountedStep(*counted[:3], acted_on, floating(act.action), step.reward, floating(step.final_obs))
        return tree_map(torch.clone, counted)

    def noise(self, steps: int) -> Tensor:
        """Draw the uniforms [steps, N, draws] of the next steps; a shard takes its slice of the table of all worlds."""
        worlds, shard = self.envs.num_envs, self.shard
        table_shape = (steps, worlds * shard.count, self.policy.draws)
        self.calls += 1
        call_number = self.calls if self.counter is None else self.counter
        table = uniforms(self._key._replace(iteration=call_number), table_shape, self.is_first.device)
        return table[:, worlds * shard.number : worlds * (shard.number + 1)] if shard.count > 1 else table

    def _advance(self, act: Act, step: Step) -> None:
        copy_into(self.obs, step.obs)
        copy_into(self.carry, act.carry)
        torch.logical_or(step.terminated, step.truncated, out=self.is_first)

    def state_dict(self) -> dict:
        return {
            "obs": tree_map(torch.clone, self.obs),
            "is_first": self.is_first.clone(),
            "carry": [x.clone() for x in leaves(self.carry)],
            "calls": self.calls,
            "window": self.window.state_dict(),
            "envs": self.envs.state_dict(),
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue exactly; worlds that cannot restore their state replace the observations by new episodes' first."""
        copy_into(leaves(self.carry), state["carry"])
        self.is_first.copy_(state["is_first"])
        copy_into(self.obs, state["obs"])
        self.calls = state["calls"]
        self.window.load_state_dict(state["window"])
        self.envs.load_state_dict(state["envs"])


def _fetch(table: CountedStep, wrong: Tensor | None) -> tuple[bool, bool, CountedStep]:
    """Copy steps to the CPU in one transfer: (a number is non-finite, an action was wrong, the steps [T, N, ...]).

    If a number is non-finite all columns are fetched, in further transfers; else only ended, returns and lengths.
    `wrong`: the flag `VecEnv.wrong`, int32 [1] or None.
    """
    episode_columns = torch.stack((table.ended.float(), table.returns, table.lengths))
    problem_flags = torch.zeros(2, device=episode_columns.device)
    if leaves(table.reward):
        # final observations and returns mean something only where an episode ended
        last_columns = [x.masked_fill(~expand(table.ended, x), 0) for x in leaves((table.last, table.returns))]
        checked_columns = [*leaves((table.obs, table.action, table.reward)), *last_columns]
        problem_flags[:1].copy_(~torch.stack(torch._foreach_norm(checked_columns, math.inf)).isfinite().all())
    if wrong is not None:
        problem_flags[1:].copy_(wrong)
    fetched = torch.cat((episode_columns.flatten(), problem_flags)).cpu()
    is_broken, is_wrong = fetched[-2:].bool().tolist()
    results = tree_map(Tensor.cpu, table) if is_broken else CountedStep(*fetched[:-2].view(episode_columns.shape))
    return is_broken, is_wrong, results
