"""A policy meets worlds. One collector plays for training (into a memory), another for evaluation (without one)."""

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

WINDOW = 100  # episodes in the running mean, as everywhere in the field
LOOKS = 32  # steps on a device after which the host looks for finished episodes


class Policy(nn.Module):
    """Answers observations; owns weights and statistics, and no per-world state."""

    draws: int
    """uniforms one answer takes"""

    def initial(self, num_envs: int) -> Tree:
        """The carry before an episode's first step, [num_envs, ...] tensors; () where nothing is remembered."""
        raise NotImplementedError

    def act(self, obs: Obs, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        """An action for each world of one instant, tensors [N, ...], from the uniforms `noise` [N, draws] in [0, 1).

        The same arguments and weights give the same answer: it draws nothing itself. It resets the carry where
        is_first and hands a new one back, never written in place. `greedy` asks for the best action instead of a draw.
        Collectors call it in inference mode, so gradients are not to be had here; and the next step overwrites `obs`,
        so an answer must not hold on to it.
        """
        raise NotImplementedError

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        """The judgement that `act` would start from, for people to look at: no draw, no carry, nothing changes.

        Tensors [N, ...] of one instant. Gradients flow from the answer to `obs` (saliency takes them), so images may
        come as floats here. How the numbers are made may change with the algorithm: nothing is learnt from them.
        """
        raise NotImplementedError

    def laid_out(self, obs: Obs) -> Obs:
        """A copy of one instant's observations, in the order of memory in which this policy reads them fastest."""
        return tree_map(torch.clone, obs)

    def follow(self, obs: Obs, carry: Tree, is_first: Tensor, action: Tensor) -> Tree:
        """The carry after an instant at which somebody else chose `action`.

        By default that of `act`; a policy that remembers its actions overrides this.
        """
        zero_noise = torch.zeros(len(is_first), self.draws, device=is_first.device)
        return self.act(obs, carry, is_first, zero_noise, True).carry

    def moved(self, before: Tree, after: Tree) -> Tensor | None:
        """How far a step took what the actor remembers, [N]: the norm of the change; None where that means nothing."""
        return None

    def dream(self, states: Tree, actions: Tensor) -> Dream | None:
        """Imagine the future from states [T, ...] of `explain` under actions [T, H, ...]; None without a model.

        Deterministic: it takes the likeliest where `act` would draw. No gradients.
        """
        return None


class Window:
    """Returns and lengths of the last finished episodes, stored on the device: one transfer for a summary."""

    def __init__(self, device: torch.device) -> None:
        self.ring = torch.zeros(2, WINDOW + 1, device=device)  # returns, lengths; the last column is a bin
        self.count = torch.zeros((), dtype=torch.int64, device=device)
        self.best = float("-inf")

    def add(self, ended: Tensor, returns: Tensor, lengths: Tensor) -> None:
        """[T, N] tensors; where `ended`, an episode of that return and length has finished."""
        ended = ended.flatten()
        # the number of each episode among those that ended now, 1, 2, ..: only the last WINDOW get a column of the
        # ring, everything else is written to the bin, so that the shapes do not depend on the data
        finish_order = ended.long().cumsum(0)
        finished_count = finish_order[-1:]
        in_window = ended & (finish_order > finished_count - WINDOW)
        ring_column = torch.where(in_window, (self.count + finish_order - 1) % WINDOW, WINDOW)
        self.ring[:, ring_column] = torch.stack((returns.flatten(), lengths.flatten()))
        self.count += finished_count[0]

    def summary(self) -> dict[str, float]:
        """Means over the window, their best so far, and how many episodes have ended."""
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
        ring[:, WINDOW] = 0  # the content of the bin depends on where a run was stopped
        return {"ring": ring, "count": self.count.clone(), "best": self.best}

    def load_state_dict(self, state: dict) -> None:
        self.ring.copy_(state["ring"])
        self.count.copy_(state["count"])
        self.best = state["best"]


class EpisodeResults(NamedTuple):
    """Complete episodes, in the order of their worlds."""

    returns: list[float]
    lengths: list[float]


def episodes_per_world(count: int, worlds: int) -> list[int]:
    """`count` episodes shared out over the worlds: evenly, so that short ones are not favoured."""
    return [count // worlds + (world_index < count % worlds) for world_index in range(worlds)]


class CountedStep(NamedTuple):
    """One step of all worlds as a tally counts it, [N, ...]; [T, N, ...] where several are stacked.

    Tensors that cannot be non-finite are left out, and () stands for what is not guarded.
    """

    ended: Tensor
    returns: Tensor
    lengths: Tensor
    obs: Tree = ()
    """that was acted upon"""
    action: Tree = ()
    reward: Tree = ()
    last: Tree = ()


class EpisodeTally:
    """`count` episodes, shared out over the worlds. It is given every step in its order, by tensors on the CPU."""

    def __init__(self, count: int, worlds: int) -> None:
        self.missing = count
        self.steps = 0
        self._wanted = episodes_per_world(count, worlds)
        self._episodes: list[list[tuple[float, float]]] = [[] for _ in range(worlds)]  # (return, length) by world
        self._first_step = [0] * worlds  # of each world's running episode

    def _counts(self, world_index: int) -> bool:
        return len(self._episodes[world_index]) < self._wanted[world_index]

    def check(self, name: str, tree: Tree, worlds: Iterable[int] | None = None) -> None:
        """NonFiniteError where a world that still counts, of these or of all, has a non-finite number in [N, ...]."""
        if worlds is None:
            worlds = range(len(self._wanted))
        if problem := non_finite_in(name, tree, [world_index for world_index in worlds if self._counts(world_index)]):
            description, world_index = problem
            step = self.steps - self._first_step[world_index]
            raise NonFiniteError(description, world_index, step, len(self._episodes[world_index]) + 1)

    def add(self, ended: list[int], returns: Tensor, lengths: Tensor, last: Tree | None) -> None:
        """The episodes that this step ended, [N]; with their last observations [N, ...] they are checked."""
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
        """About how much of all steps is done, by the mean length so far; 0 until an episode has ended."""
        lengths = [length for episodes in self._episodes for _, length in episodes]
        return min(1.0, self.steps * len(lengths) / (sum(lengths) * max(self._wanted))) if lengths else 0.0

    def results(self) -> EpisodeResults:
        """All counted episodes, world by world."""
        episodes = [episode for world in self._episodes for episode in world]
        return EpisodeResults([total for total, _ in episodes], [length for _, length in episodes])


class Collector:
    """Owns the current observation, is_first, carry and the acting randomness; refers to worlds and policy."""

    def __init__(self, envs: VecEnv, policy: Policy, seed: int, purpose: int = ACT, greedy: bool = False) -> None:
        self.envs = envs
        self.policy = policy
        self.greedy = greedy
        self.looks = 1 if envs.device.type == "cpu" else LOOKS
        self.shard: SingleShard = SINGLE
        self.obs = policy.laid_out(envs.reset(seed))
        self.carry = policy.initial(envs.num_envs)
        self._key = Key(seed, purpose)
        self.calls = 0
        self.counter: Tensor | None = None  # calls, int64 [] on the device, where a graph reads them
        self.is_first = torch.ones(envs.num_envs, dtype=torch.bool, device=envs.device)
        self.window = Window(envs.device)
        self.tally: EpisodeTally | None = None  # of the episodes that `play` was asked for last

    @torch.no_grad()
    def example(self) -> Row:
        """A row of the right shapes and types: one answer of the policy, thrown away."""
        flag = self.is_first
        zero_noise = torch.zeros(self.envs.num_envs, self.policy.draws, device=flag.device)
        act = self.policy.act(self.obs, self.carry, flag, zero_noise, False)
        slot = torch.zeros_like(flag, dtype=torch.long)
        return Row(self.obs, flag, act.action, flag.float(), flag, flag, slot, act.extras)

    @torch.inference_mode()
    def collect(self, steps: int, memory: Memory) -> None:
        """Play `steps` steps in every world and write them down: `steps` rows, whatever ends on the way.

        The current observation, is_first and carry are afterwards those after the last row. Nothing is learnt or
        checked here, env steps are counted by the agent, and no gradient leads from what was written to the policy.
        The draws are one table per call: two calls of 64 steps are another run than one of 128.
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
        """`count` complete episodes, shared out over the worlds (`episodes_per_world`).

        For worlds that have just begun. Nothing is written to a memory or to the window of finished episodes.
        Worlds that are done go on without being counted. After `max_steps` steps per world, and once time.monotonic()
        is past the deadline, unfinished episodes are dropped, so there may be fewer than `count`.
        NonFiniteError where `guarded` and what would count is non-finite.
        """
        episode_tally = self.tally = EpisodeTally(count, self.envs.num_envs)
        step_limit = math.inf if max_steps is None else max_steps
        play_steps = self._play_watched if self.looks == 1 else self._play_unwatched
        with np.errstate(over="ignore", invalid="ignore"):  # of what is too large for 32 bits, and of their sum
            play_steps(episode_tally, step_limit, guarded, deadline)
        return episode_tally.results()

    def _play_watched(self, tally: EpisodeTally, limit: float, guarded: bool, deadline: float) -> None:
        """The host looks at every step."""
        obs_views = float_views(self.obs) if guarded else []  # the collector's own: written in place
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

    def _play_unwatched(self, tally: EpisodeTally, limit: float, guarded: bool, deadline: float) -> None:
        """The host looks once in `looks` steps; steps after the last episode that counts are dropped."""
        while tally.missing and tally.steps < limit and time.monotonic() < deadline:
            steps = int(min(self.looks, limit - tally.steps))
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
        """One step, in copies that last."""
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
        """The uniforms of the next `steps` answers, one table per call; of a shard its slice of that of all worlds."""
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
        """Continue exactly, or, where the worlds could only begin anew, from their first observations."""
        copy_into(leaves(self.carry), state["carry"])
        self.is_first.copy_(state["is_first"])
        copy_into(self.obs, state["obs"])
        self.calls = state["calls"]
        self.window.load_state_dict(state["window"])
        self.envs.load_state_dict(state["envs"])


def _fetch(table: CountedStep, wrong: Tensor | None) -> tuple[bool, bool, CountedStep]:
    """(whether a guarded number is non-finite, whether the worlds' flag is set, the rows on the CPU), in one copy.

    Where a number is non-finite all columns are fetched; else ended, returns and lengths alone.
    """
    episode_columns = torch.stack((table.ended.float(), table.returns, table.lengths))
    problem_flags = torch.zeros(2, device=episode_columns.device)
    if leaves(table.reward):
        # what an episode leaves counts only where it ended
        last_columns = [x.masked_fill(~expand(table.ended, x), 0) for x in leaves((table.last, table.returns))]
        checked_columns = [*leaves((table.obs, table.action, table.reward)), *last_columns]
        problem_flags[:1].copy_(~torch.stack(torch._foreach_norm(checked_columns, math.inf)).isfinite().all())
    if wrong is not None:
        problem_flags[1:].copy_(wrong)
    fetched = torch.cat((episode_columns.flatten(), problem_flags)).cpu()
    is_broken, is_wrong = fetched[-2:].bool().tolist()
    results = tree_map(Tensor.cpu, table) if is_broken else CountedStep(*fetched[:-2].view(episode_columns.shape))
    return is_broken, is_wrong, results
