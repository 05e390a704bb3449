"""Whole episodes by compiled worlds and the compiled actor: what Collector.play does, in one kernel, with its draws.

Weights and statistics are copied in as they are: training's own memory is neither read by kernels here nor written.
"""

from typing import Any

import numba
import numpy as np
import torch
from numba import types
from torch import Tensor

from stride.agents.engines.fused_cpu.bind import FLOPS_PER_CALL, B, Binding, Bound
from stride.agents.engines.fused_cpu.frame import At
from stride.agents.engines.fused_cpu.kernels import episodes, nets, q
from stride.agents.engines.fused_cpu.kernels.calls import ROOM, address_of
from stride.agents.engines.fused_cpu.kernels.episodes import TROUBLE, WHAT, Match, Tally
from stride.agents.engines.fused_cpu.parameters import aligned
from stride.agents.engines.plan.numbers import Live
from stride.agents.engines.plan.recipe import scaling
from stride.agents.experience.collector import Collector, EpisodeResults, episodes_per_world
from stride.agents.experience.finite_guard import NonFiniteError, non_finite_in
from stride.agents.experience.nouns import leaves
from stride.agents.sockets import EagerEpisodes, Learner
from stride.envs_fast import world
from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_fast.world import NUMBA, Told
from stride.utils.counter_rng import normal

CALL = 64  # steps at most whose draws are made at once
GREEDY_DRAW = 2  # floats, of zeros, that a kernel may read of each world where nothing is sampled
NAMES = {
    episodes.OBSERVATION: "observation",
    episodes.ACTION: "action",
    episodes.REWARD: "reward",
    episodes.LAST: "last observation",
    episodes.RETURN: "return",
}


class FusedEpisodes:
    """Plays the learner's own weights; any other policy, and worlds that are not compiled, are the collector's."""

    name = "fused_cpu"

    def __init__(self, binding: Binding[B]) -> None:
        self._binding, self._plain = binding, EagerEpisodes()
        self._actors: dict[bool, Actor] = {}  # by whether it is greedy

    def play(self, learner: Learner, collector: Collector, count: int, max_steps: int | None) -> EpisodeResults:
        compiled = isinstance(collector.envs, NumbaEnv) and collector.policy is learner.policy
        if not compiled or (leaves(collector.carry) and not collector.greedy):  # only draws are carried
            return self._plain.play(learner, collector, count, max_steps)
        bound = self._binding.of(learner)
        if collector.greedy not in self._actors or self._actors[collector.greedy].bound is not bound:
            self._actors[collector.greedy] = Actor(bound, collector.greedy)
        actor = self._actors[collector.greedy]
        if not actor.renew():
            return self._plain.play(learner, collector, count, max_steps)
        return actor.play(collector, count, max_steps)


class Actor:
    """A frame of its own over memory of its own for weights; sizes, nets and threads are those of the training's."""

    def __init__(self, bound: Bound, greedy: bool) -> None:
        self.bound, self._greedy, self.frame = bound, greedy, bound.frame.copy()
        recipe, frame = bound.recipe, self.frame
        layout, self._encoder, flops = recipe.shape.layout, recipe.shape.encoder, recipe.shape.flops
        self._values, self._live = aligned(layout.whole), bound.live.copy()
        flat = torch.as_tensor(self._values)
        self._views = [place.view(flat) for place in layout.places]
        self._places = layout.places
        centre, scale, self._live[Live.BOUND] = scaling(self._encoder.leaf[0], self._encoder.size)
        self._centre, self._scale = centre.clone(), scale.clone()
        frame.point_all({
            At.PARAMETERS: self._values,
            At.TURNED: aligned(layout.turned),
            At.LIVE: self._live,
            At.CENTRE: self._centre,
            At.SCALE: self._scale,
        })  # fmt: skip
        self._draw = max(recipe.agent.policy.draws, GREEDY_DRAW if greedy else 0)
        frame.count({At.DRAW: self._draw})
        if greedy and not recipe.normals:  # of the outputs of a head as of values: the first of the highest
            frame.install({At.SAMPLE: q.act_by_value})
        self._flops = 4 * flops
        self._room = np.zeros(ROOM // 8, np.int64)
        self._addresses: dict[tuple[Any, ...], int] = {}  # by kernel and types

    def renew(self) -> bool:
        """Weights and statistics as they are now; False where the policy wants to be asked itself."""
        if self._greedy:
            self._live[Live.EPSILON_GREEDY] = 0.0
        elif not self.bound.recipe.before_play(self._live):
            return False
        torch._foreach_copy_(self._views, [place.parameter.detach() for place in self._places])
        centre, scale, _ = scaling(self._encoder.leaf[0], self._encoder.size)
        self._centre.copy_(centre)
        self._scale.copy_(scale)
        nets.turn(self.frame.address, 0, 0, 1)
        return True

    def play(self, collector: Collector, count: int, max_steps: int | None) -> EpisodeResults:
        """Collector.play, of worlds that have just begun."""
        envs, table, workers = collector.envs, self.frame.table, self.bound.workers
        assert isinstance(envs, NumbaEnv)
        threads = min(workers.threads, envs.num_envs)
        match = self._match(collector, count, threads)
        tally = match.tally
        table[At.THREADS], table[At.WORLDS] = threads, envs.num_envs
        world.bind(episodes.leave_match, 0, match)(self._room.ctypes.data, match)
        play = self._address(episodes.play_episodes, types.CPointer(numba.typeof(match)), types.int64)
        self.frame.check(episodes.play_episodes, (At.FINAL_OBS, *(() if match.sampled else (At.DRAWS,))))
        most = max(1, int(FLOPS_PER_CALL / (self._flops * envs.num_envs)))
        steps = 0
        while int(tally.found.sum()) < count and (max_steps is None or steps < max_steps):
            end = steps + min(most, CALL if match.sampled else most)
            end = end if max_steps is None else min(end, max_steps)
            if match.sampled:
                noise = torch.cat([collector.noise(1) for _ in range(steps, end)])
                self.frame.point(At.DRAWS, normal(noise) if self.bound.recipe.normals else noise)
            table[At.BEGIN], table[At.END] = steps, end
            workers.run(play, self._room.ctypes.data, threads)
            if tally.trouble[:, WHAT].any():
                raise _located(match)
            steps = end
        ended = np.arange(count) - np.repeat(tally.first, tally.wanted) < np.repeat(tally.found, tally.wanted)
        return EpisodeResults(tally.returns[ended].tolist(), tally.lengths[ended].tolist())

    def _match(self, collector: Collector, count: int, threads: int) -> Match:
        """What the kernel plays on: the collector's worlds, and room for what they tell."""
        envs = collector.envs
        assert isinstance(envs, NumbaEnv)
        wanted = np.array(episodes_per_world(count, envs.num_envs), np.int64)
        match = room_for(envs, wanted, self._draw, threads)
        assert isinstance(collector.obs, Tensor)  # no dicts here
        match.obs[0] = collector.obs.numpy()
        advance: Any = envs.world.kernels[NUMBA].advance
        address = self._address(advance, *advance_types(match))
        return match._replace(frame=self.frame.address, advance=address, sampled=int(not self._greedy))

    def _address(self, kernel: Any, *signature: types.Type) -> int:
        """Numba takes longer to look a kernel up than a short episode lasts."""
        known = (kernel, *signature)
        if known not in self._addresses:
            self._addresses[known] = address_of(kernel, *signature)
        return self._addresses[known]


def room_for(envs: NumbaEnv, wanted: np.ndarray, draw: int, threads: int) -> Match:
    """Arrays for a match of these worlds; addresses are still 0."""
    n, episodes_, space = envs.num_envs, int(wanted.sum()), envs.action_space.shape or ()
    assert isinstance(envs.obs, Tensor)
    obs, last = (np.zeros((1, *envs.obs.shape), envs.obs.numpy().dtype) for _ in range(2))
    action, given = (np.zeros((1, n, *space), np.float32 if space else np.int64) for _ in range(2))
    reward, total, length = (np.zeros((1, n), np.float32) for _ in range(3))
    lost, cut = (np.zeros((1, n), np.uint8) for _ in range(2))
    told = Told(obs, reward, lost, cut, last, total, length)
    first = np.cumsum(wanted) - wanted
    found, began = (np.zeros(n, np.int64) for _ in range(2))
    returns, lengths = (np.zeros(episodes_, np.float32) for _ in range(2))
    tally = Tally(wanted, found, first, began, returns, lengths, np.zeros((threads, TROUBLE), np.int64))
    playing, drawn = np.zeros(n, np.int32), np.zeros(n * draw, np.float32)
    return Match(0, 0, 0, envs.simulation, obs, action, told, playing, given, drawn, tally)


def advance_types(match: Match) -> list[types.Type]:
    """Of the arguments that `play_episodes` hands to the worlds' kernel."""
    return [numba.typeof(x) for x in (match.simulation, 0, 0, match.action, match.told)]


def _located(match: Match) -> NonFiniteError:
    """The earliest that is not finite, in the order in which the collector looks: what, then where."""
    tally, told = match.tally, match.told
    step, what, place = min(tuple(note) for note in tally.trouble.tolist() if note[WHAT])
    arrays = {
        episodes.OBSERVATION: match.obs,
        episodes.ACTION: match.action,
        episodes.REWARD: told.reward,
        episodes.LAST: told.final_obs,
        episodes.RETURN: told.episode_return,
    }
    found = non_finite_in(NAMES[what], torch.from_numpy(arrays[what][0]), [place])
    words = found[0] if found else NAMES[what]
    seen = step if what == episodes.OBSERVATION else step + 1
    return NonFiniteError(words, place, seen - int(tally.began[place]), int(tally.found[place]) + 1)
