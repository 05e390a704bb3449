"""The Episodes socket of the fused CPU engine: plays complete episodes for evaluation, in one kernel.

It does what Collector.play does, with the same random draws. Weights and statistics are copied first; the kernel
neither reads nor writes the memory that training uses, so an evaluation cannot change a training.
"""

import math
import time
from typing import Any

import numba
import numpy as np
import torch
from numba import types
from torch import Tensor

from stride.agents.engines.fused_cpu.bind import Binding, Bound
from stride.agents.engines.fused_cpu.frame import aligned
from stride.agents.engines.fused_cpu.kernels import episodes, q
from stride.agents.engines.fused_cpu.kernels.calls import ARGUMENT_BYTES, address_of
from stride.agents.engines.fused_cpu.kernels.episodes import KIND, NOTE_COLUMNS, EpisodeTally, Match
from stride.agents.engines.fused_cpu.parameters import FeatureScaling
from stride.agents.engines.fused_cpu.play import advance_address
from stride.agents.engines.fused_cpu.workers import CallLength
from stride.agents.engines.plan.numbers import Live
from stride.agents.experience.collector import Collector, EpisodeResults, episodes_per_world
from stride.agents.experience.finite_guard import NonFiniteError, non_finite_in
from stride.agents.experience.nouns import leaves
from stride.agents.sockets import EagerEpisodes, Learner
from stride.envs_fast import world
from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_fast.world import StepResults
from stride.utils.counter_rng import normal

MAX_SAMPLED_STEPS = 64  # steps whose random draws are made at once
GREEDY_DRAW_FLOATS = 2  # zeros that a kernel may read for each world where nothing is sampled


class FusedEpisodes:
    """Plays the learner's own policy in compiled environments; leaves everything else to the collector."""

    name = "fused_cpu"

    def __init__(self, binding: Binding[Any]) -> None:
        self._binding = binding
        self._actors: dict[bool, EpisodeActor] = {}  # one that plays greedily (True), one that samples (False)

    def play(
        self, learner: Learner, collector: Collector, count: int, max_steps: int | None, deadline: float = math.inf
    ) -> EpisodeResults:
        greedy = collector.greedy
        compiled = isinstance(collector.envs, NumbaEnv) and collector.policy is learner.policy
        # a carry, which kernels here do not have, holds nothing but random draws: a greedy policy needs none
        if compiled and (greedy or not leaves(collector.carry)):
            bound = self._binding.get(learner)
            if greedy not in self._actors or self._actors[greedy].bound is not bound:
                self._actors[greedy] = EpisodeActor(bound, greedy)
            actor = self._actors[greedy]
            if actor.renew():
                return actor.play(collector, count, max_steps, deadline)
        return EagerEpisodes().play(learner, collector, count, max_steps, deadline)


class EpisodeActor:
    """A frame with its own copy of the weights; sizes, kernels, scratch memory and threads are those of training."""

    def __init__(self, bound: Bound, greedy: bool) -> None:
        self.bound, self._greedy, self.frame = bound, greedy, bound.frame.copy()
        recipe, layout = bound.recipe, bound.recipe.shape.layout
        self._live = Live.from_buffer_copy(bound.live)
        self._scaling = FeatureScaling(self.frame, self._live, recipe.shape.encoder)
        parameters = aligned(layout.full_size)
        self._views = [tensor.view(torch.as_tensor(parameters)) for tensor in layout.tensors]
        self._draw = max(recipe.agent.policy.draws, GREEDY_DRAW_FLOATS if greedy else 0)
        self.frame.fill(parameters=parameters, turned=aligned(layout.turned), live=self._live, draw=self._draw)
        if greedy and not recipe.normals:  # a greedy choice is the first of the highest outputs, as with action values
            self.frame.fill(sample=q.act_by_value)
        self._arguments = np.zeros(ARGUMENT_BYTES // 8, np.int64)

    def renew(self) -> bool:
        """Copy the present weights and statistics; return False where the policy itself must choose the actions."""
        if self._greedy:
            self._live.epsilon_greedy = 0.0
            self._live.action_noise = 0.0
        elif not self.bound.recipe.before_play(self._live):
            return False
        tensors = self.bound.recipe.shape.layout.tensors
        torch._foreach_copy_(self._views, [tensor.parameter.detach().view(tensor.shape) for tensor in tensors])
        self._scaling.refresh()
        self.frame.held["turn"](self.frame.address, 0, 0, 1)
        return True

    def play(
        self, collector: Collector, count: int, max_steps: int | None, deadline: float = math.inf
    ) -> EpisodeResults:
        """Play `count` episodes in worlds that have just begun, as Collector.play does.

        `max_steps` limits the steps of each world (None: no limit); `deadline` is a time of time.monotonic(). Episodes
        that have not ended by then are left out. NonFiniteError where a number is not finite.
        """
        envs, fields, workers = collector.envs, self.frame.fields, self.bound.workers
        assert isinstance(envs, NumbaEnv)
        fields.threads, fields.worlds = min(workers.threads, envs.num_envs), envs.num_envs
        match = self._match(collector, count)
        tally = match.tally
        world.bind(episodes.leave_match, 0, match)(self._arguments.ctypes.data, match)
        play = address_of(episodes.play_episodes, types.CPointer(numba.typeof(match)), types.int64)
        self.frame.check(episodes.play_episodes, ("final_obs",) if match.sampled else ("final_obs", "draws"))
        step, length = 0, CallLength()
        while int(tally.done.sum()) < count and (max_steps is None or step < max_steps):
            if time.monotonic() >= deadline:
                break
            most = min(length.steps, MAX_SAMPLED_STEPS) if match.sampled else length.steps
            fields.begin, fields.end = step, step + most if max_steps is None else min(step + most, max_steps)
            if match.sampled:
                noise = torch.cat([collector.noise(1) for _ in range(step, fields.end)])
                self.frame.fill(draws=normal(noise) if self.bound.recipe.normals else noise)
            start_time = time.perf_counter()
            workers.run(play, self._arguments.ctypes.data, fields.threads)
            length.record(fields.end - step, time.perf_counter() - start_time)
            if tally.non_finite[:, KIND].any():
                raise _located(match)
            step = fields.end
        # bool [count]: was this episode played to its end? A world's episodes are next to one another
        ended = np.arange(count) - np.repeat(tally.first, tally.wanted) < np.repeat(tally.done, tally.wanted)
        return EpisodeResults(tally.returns[ended].tolist(), tally.lengths[ended].tolist())

    def _match(self, collector: Collector, count: int) -> Match:
        """Return the kernel's arguments: the collector's worlds, and arrays for their results."""
        envs = collector.envs
        assert isinstance(envs, NumbaEnv) and isinstance(collector.obs, Tensor)  # no dicts here
        wanted = np.array(episodes_per_world(count, envs.num_envs), np.int64)
        match = make_match(envs, wanted, self._draw, self.frame.fields.threads)
        match.obs[0] = collector.obs.numpy()
        advance = advance_address(envs, match.action, match.step)
        return match._replace(frame=self.frame.address, advance=advance, sampled=int(not self._greedy))


def make_match(envs: NumbaEnv, wanted: np.ndarray, draw: int, threads: int) -> Match:
    """Return the arguments of `play_episodes` for these worlds; the addresses in it are still 0.

    `wanted` int64 [N]: episodes that each world is to play; `draw`: floats of a world's random draw in a step.
    """
    assert isinstance(envs.obs, Tensor)
    n, count, shape = envs.num_envs, int(wanted.sum()), envs.action_space.shape or ()
    obs, final_obs = np.zeros((2, 1, *envs.obs.shape), envs.obs.numpy().dtype)
    action, packed_action = np.zeros((2, 1, n, *shape), np.float32 if shape else np.int64)
    reward, episode_return, episode_length = np.zeros((3, 1, n), np.float32)
    terminated, truncated = np.zeros((2, 1, n), np.uint8)
    done, start_step = np.zeros((2, n), np.int64)
    returns, lengths = np.zeros((2, count), np.float32)
    return Match(
        frame=0,
        advance=0,
        sampled=0,
        simulation=envs.simulation,
        obs=obs,
        action=action,
        step=StepResults(obs, reward, terminated, truncated, final_obs, episode_return, episode_length),
        playing=np.zeros(n, np.int32),
        packed_action=packed_action,
        packed_draws=np.zeros(n * draw, np.float32),
        tally=EpisodeTally(
            wanted,
            done,
            np.cumsum(wanted) - wanted,
            start_step,
            returns,
            lengths,
            np.zeros((threads, NOTE_COLUMNS), np.int64),
        ),
    )


def _located(match: Match) -> NonFiniteError:
    """Return the error for the earliest non-finite number: the first by step, then by kind, then by world.

    The kinds are in the order in which the collector checks them, so that both name the same number.
    """
    tally, results = match.tally, match.step
    step, kind, index = min(tuple(note) for note in tally.non_finite.tolist() if note[KIND])
    name, array = {
        episodes.OBSERVATION: ("observation", match.obs),
        episodes.ACTION: ("action", match.action),
        episodes.REWARD: ("reward", results.reward),
        episodes.FINAL_OBSERVATION: ("last observation", results.final_obs),
        episodes.RETURN: ("return", results.episode_return),
    }[kind]
    location = non_finite_in(name, torch.from_numpy(array[0]), [index])
    step += kind != episodes.OBSERVATION  # an observation is before the step, everything else is a result of it
    description = location[0] if location else name
    return NonFiniteError(description, index, step - int(tally.start_step[index]), int(tally.done[index]) + 1)
