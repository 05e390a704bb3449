"""Fills the frame for one agent: sizes, the agent's memory, the engine's own memory, and which kernels it runs.

Whatever rollouts or a replay memory need beside the rest is in two subclasses.
"""

import math
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from stride.agents.engines.fused_cpu.carry import Carry
from stride.agents.engines.fused_cpu.frame import TILE, Frame, aligned, make_scratch
from stride.agents.engines.fused_cpu.kernel_tables import KERNELS, NETS, nets_of
from stride.agents.engines.fused_cpu.kernels import replay
from stride.agents.engines.fused_cpu.parameters import CopiedParameters, FeatureScaling, ViewedParameters
from stride.agents.engines.fused_cpu.picture_room import describe
from stride.agents.engines.fused_cpu.workers import TRY_EVERY, CallLength, Pace, Workers
from stride.agents.engines.plan.numbers import SUMS, Live, MomentSums, Stat
from stride.agents.engines.plan.pictures import picture_of
from stride.agents.engines.plan.recipe import Recipe, ReplayRecipe, RolloutRecipe, main_observation
from stride.agents.experience.nouns import Tree
from stride.agents.networks.encoders import OneHot
from stride.agents.networks.layers import one_thread
from stride.agents.sockets import Learner
from stride.config.schema import PQNConfig, RolloutConfig
from stride.envs_gym.spaces import MASK

FLOPS_PER_CALL = 1.5e10  # about a tenth of a second: Ctrl-C is handled between two calls
MOST_PARTS, ROWS_PER_PART = 8, 128  # partial gradients of a minibatch, and so the threads that can work on it
TRY_REPLAY_EVERY = 1024  # iterations: they may be of a single update
Count = Callable[[int], None]


def most_parts_of(config: RolloutConfig) -> int:
    """How many parts a minibatch is cut into: of a tile each where minibatches are as small as PQN's.

    Of sequences each has at least one.
    """
    rows = TILE if isinstance(config, PQNConfig) else ROWS_PER_PART
    if config.policy == "mingru":
        rows = max(rows, config.n_steps)
    return max(1, min(MOST_PARTS, config.minibatch_size // rows))


class Bound:
    """A frame filled for one agent, and the threads that work on it."""

    recipe: Recipe
    parameters: CopiedParameters | ViewedParameters
    carry: Carry | None = None  # of nets with a memory
    unread: tuple[str, ...] = ()  # addresses that kernels read under a switch that is off

    def __init__(self, recipe: Recipe, threads: int, parts: int, try_every: int) -> None:
        shape, config = recipe.shape, recipe.agent.config
        self.frame = frame = Frame()
        self.live = Live(*[math.inf] * len(Live._fields_))
        self.clear_stats()
        self.workers, self.pace = Workers(threads), Pace(threads, try_every)
        self.updates_per_call = max(1, int(FLOPS_PER_CALL / (shape.passes * shape.flops * shape.batch)))
        self.call_length = CallLength()
        self.scaling = FeatureScaling(frame, self.live, shape.encoder)
        self._arrivals = np.zeros(1, np.int64)
        self._memory = recipe.agent.memory
        self._fill_sizes(recipe, threads, parts)
        self._fill_memory(recipe, threads, parts)
        frame.fill(**{**KERNELS[config.algo_id], **NETS[nets_of(config)]})
        self.point_finals()

    def _fill_sizes(self, recipe: Recipe, threads: int, parts: int) -> None:
        shape, memory = recipe.shape, recipe.agent.memory
        layout, encoder = shape.layout, shape.encoder
        self.frame.fill(
            threads=threads,
            worlds=memory.num_envs,
            features=shape.features,
            row=shape.inputs,
            obs_width=0 if isinstance(encoder.leaf[0], OneHot) else encoder.size,
            actions=shape.actions,
            nets=layout.nets.shape[0],
            layers=layout.nets.shape[1] - 1,
            minibatch=shape.batch,
            parts=parts,
            size=layout.size,
            segments=len(layout.segments),
            decoupled=recipe.agent.config.optimizer == "adamw",
            rectified=recipe.agent.config.optimizer == "radam",
            log_std=layout.log_std,
            log_alpha=max(layout.log_alpha, 0),
            value_net=layout.value_net,
            value_row=layout.value_row,
            follows=layout.follows,
            **recipe.switches,
        )

    def _fill_memory(self, recipe: Recipe, threads: int, parts: int) -> None:
        """The agent's memory and the engine's own."""
        frame, shape, table = self.frame, recipe.shape, recipe.agent.memory.table
        layout, image = shape.layout, picture_of(shape.encoder)
        frame.fill(
            obs=main_observation(table.obs),
            action=table.action,
            terminated=table.terminated,
            truncated=table.truncated,
            slot=table.slot,
        )
        activations = layout.hidden
        if layout.nets["normed"].any():  # each is there twice, as its layer norm reads it and as it leaves its relu
            frame.fill(raw=activations)
            activations += layout.hidden
        hidden = activations if image is None else describe(frame, layout, image, activations)
        # the engine's memory is zero at first, which is relied upon: padding stays zero for ever, and `partial` and
        # `sums` are cleared by those who have read them
        scratch, self._scratch_memory = make_scratch(
            threads, shape.inputs, hidden, shape.outputs, layout.widest, shape.actions, shape.values
        )
        frame.fill(
            live=self.live,
            barrier=self._arrivals,
            scratch=scratch,
            parameters=aligned(layout.full_size),
            first_moment=aligned(layout.size),
            second_moment=aligned(layout.size),
            gradient=aligned(layout.size),
            partial=aligned(parts * layout.size),
            turned=aligned(layout.turned),
            sums=aligned(parts * SUMS * TILE),
            net_table=layout.nets,
            segment_table=layout.segments,
            squares=np.zeros(len(layout.segments)),
        )

    def follow_finals(self) -> None:
        """Final observations are in other memory once there is room for more of them."""
        if self._final is not self._memory.final:
            self.point_finals()

    def point_finals(self) -> None:
        self._final = self._memory.final
        self.frame.fill(final_obs=main_observation(self._final.obs))

    def attach(self, optimizer: Optimizer) -> None:
        """Find the parameters and their moments; again where their memory is another, as after loading."""
        self.parameters.attach(optimizer)

    def begin(self) -> None:
        """Before an iteration's steps: the number of threads is chosen, parameters and statistics are fetched."""
        self.scaling.refresh()
        self.parameters.fetch()

    def clear_stats(self) -> None:
        self.stats = Stat()
        self.frame.fill(stats=self.stats)

    def run(self, work: int, arguments: int, count: int, most: int, before: Count | None = None) -> None:
        """The kernel at `work` on this iteration's threads, for `count` updates, `most` in a call.

        `before` each call is given how many are done.
        """
        for begin in range(0, count, most):
            if before:
                before(begin)
            self.call(work, arguments, begin, min(begin + most, count))

    def play(self, work: int, arguments: int, steps: int) -> None:
        """So many steps by the kernel at `work`, in calls of a tenth of a second."""
        done = 0
        while done < steps:
            start_time, end = perf_counter(), min(done + self.call_length.steps, steps)
            self.call(work, arguments, done, end)
            self.call_length.took(end - done, perf_counter() - start_time)
            done = end

    def call(self, work: int, arguments: int, begin: int, end: int) -> None:
        """One call of the kernel at `work`, for the steps or updates [begin, end)."""
        fields = self.frame.fields
        fields.begin, fields.end = begin, end
        self._arrivals[0] = 0  # the barrier counts anew, for this number of threads
        self.workers.run(work, arguments, fields.threads)

    def learn(self, updates: int, before: Count | None = None, kernel: str = "learn") -> None:
        """Make so many updates; of a rollout also what precedes the first of them, but by the kernel `update`.

        `before` is given how many are done, about ten times a second; not called where all of it takes less than that.
        """
        most, work = self.updates_per_call, self.checked(kernel)
        self.run(work, self.frame.address, updates, most, before if updates > most else None)

    def checked(self, kernel: str) -> int:
        """The address of the kernel in that field of the frame, which has all that it reads."""
        self.frame.check(self.frame.held[kernel], self.unread)
        address: int = getattr(self.frame.fields, kernel)
        return address


class RolloutBound(Bound):
    """For an agent that learns from rollouts."""

    recipe: RolloutRecipe
    parameters: CopiedParameters

    def __init__(self, recipe: RolloutRecipe, threads: int) -> None:
        agent, layout, rows = recipe.agent, recipe.shape.layout, recipe.rows
        memory, table = agent.memory, agent.memory.table
        parts = most_parts_of(agent.config)
        threads = min(threads, parts, memory.num_envs)
        super().__init__(recipe, threads, parts, TRY_EVERY)
        self.recipe = recipe
        self.parameters = CopiedParameters(self.frame, self.live, layout)
        self.begun = False  # whether the current iteration has begun
        self._start_time = 0.0
        self._key = np.zeros(5, np.int64)
        self._units = np.zeros(2, np.float32)
        self._target = aligned(rows)
        self.frame.fill(
            steps=memory.rows,
            next_obs=main_observation(agent.collector.obs),
            is_first=table.is_first,
            log_prob=aligned(rows),
            value=aligned(rows + memory.num_envs),  # behind the rows V of the observation that follows the last of them
            weight=aligned(rows),
            target=self._target,
            units=self._units,
            counted=np.ones(rows, np.float32),
            order=np.zeros(agent.config.n_epochs * rows, np.int32),
            spare=np.zeros(threads * 3 * rows, np.int32),
            moments=np.zeros(parts, np.dtype(MomentSums)),
            key=self._key,
            together=TILE,
        )
        if layout.cells:
            self.carry = Carry(self.frame, layout, agent.collector.carry, memory.rows, threads)
        if agent.policy.masked:
            assert isinstance(table.obs, dict)
            self.frame.fill(mask=table.obs[MASK])
        self.unread = tuple(name for name in ("mask", "all_log_probs", "log_probs") if name not in self.frame.held)

    def point_finals(self) -> None:
        super().point_finals()
        slots = self._memory.slots
        self.frame.fill(slots=slots, final_value=aligned(self._memory.num_envs * slots))

    def begin(self) -> None:
        self.begun, self._start_time = True, perf_counter()
        self.frame.fields.threads = self.pace.choose()
        super().begin()

    def end(self) -> None:
        """Parameters, moments and the count of steps back to torch."""
        self.pace.took(self.frame.fields.threads, perf_counter() - self._start_time)
        self.parameters.give()

    def prepare(self, reward: Tensor, key: tuple[int, ...], start: Tree) -> None:
        """Before learning from a rollout: its scaled reward, the counters of the key of its orders, its first carry."""
        self.follow_finals()
        if self.carry:
            self.carry.fetch(start)
        self._key[:] = key
        self._units[:] = self.recipe.agent.value_scale.units()
        self.parameters.follow()
        self.frame.fill(reward=reward)
        self.clear_stats()

    def learn(self, updates: int, before: Count | None = None, kernel: str = "learn") -> None:
        """As ever; a value scale learns, as it does in eager, between the judgement and the updates."""
        if self.recipe.agent.value_scale.layers:
            self.run(self.checked("judge"), self.frame.address, 1, 1)
            self.scale_targets()
            kernel = "update"
        super().learn(updates, before, kernel)

    def scale_targets(self) -> None:
        """A value scale learns from the targets, which are then in its units."""
        agent = self.recipe.agent
        if not agent.value_scale.layers:
            return
        with one_thread():
            agent.metrics.add(agent.value_scale.learn(torch.from_numpy(self._target), agent.shard))
        self.parameters.fetch()  # whose last layer has moved against the scale
        self._units[:] = agent.value_scale.units()
        self._target -= self._units[0]
        self._target /= self._units[1]


class ReplayBound(Bound):
    """For an agent that learns from a replay memory."""

    recipe: ReplayRecipe
    unread: tuple[str, ...] = ("log_prob",)  # players pass its address on

    def __init__(self, recipe: ReplayRecipe, threads: int) -> None:
        parts = max(2, min(MOST_PARTS, recipe.shape.batch // ROWS_PER_PART))  # so that two threads can share 64 rows
        super().__init__(recipe, min(threads, parts), parts, TRY_REPLAY_EVERY)
        self.recipe, self._drawn = recipe, 0
        self._gamma: float | None = None  # of the powers that kernels read
        layout, memory = recipe.shape.layout, self._memory
        if layout.convs.size:  # no view has both torch's order of pixels and channels and that of kernels
            self.parameters = CopiedParameters(self.frame, self.live, layout)
        else:
            self.parameters = ViewedParameters(self.frame, self.live, layout)
        self.frame.fill(ring_reward=memory.table.reward, poisoned=recipe.agent.poisoned)
        if memory.gammas is None:
            self.unread = (*self.unread, "gammas")
        else:
            self.frame.fill(own_gamma=1, gammas=memory.gammas)

    def begin(self) -> None:
        self.frame.fields.threads = min(self.workers.threads, self._memory.num_envs)
        super().begin()

    def prepare(self) -> None:
        """Before learning: statistics, the rate, and where final observations are stored."""
        self.follow_finals()
        self.scaling.refresh()
        self.parameters.follow()
        if isinstance(self.parameters, CopiedParameters):  # targets may have moved since the worlds were played
            self.parameters.fetch()

    def draws(self, updates: int, gamma: float) -> Iterator[int]:
        """Draw the transitions of so many updates, in the pieces that the memory draws; yields the updates of each."""
        memory, fields = self._memory, self.frame.fields
        if gamma != self._gamma:  # a schedule may change it
            self.frame.fill(powers=gamma ** torch.arange(fields.span + 1))
            self._gamma = gamma
        memory.check_slots()
        for count in memory.pieces(updates, fields.minibatch):
            transitions = count * fields.minibatch
            self._make_room(transitions)
            self.frame.fill(uniforms=memory.next_uniforms(transitions))
            self.frame.check(replay.draw, self.unread)
            replay.draw(self.frame.address, memory.written, memory.rows)
            yield count

    def _make_room(self, transitions: int) -> None:
        self.frame.fill(drawn=transitions)
        if transitions > self._drawn:
            self._drawn = transitions
            self.frame.fill(
                place=np.zeros(transitions, np.int32),
                following=np.zeros(transitions, np.int32),
                reward=aligned(transitions),
                discount=aligned(transitions),
            )


B = TypeVar("B", RolloutBound, ReplayBound)


class Binding(Generic[B]):
    """The Bound that play and learn of one agent share; made at the first call, as only then the optimizer exists."""

    def __init__(self, make: Callable[[Learner], B]) -> None:
        self._make: Callable[[Learner], B] = make
        self._learner: Learner | None = None
        self.bound: B

    def get(self, learner: Learner) -> B:
        if learner is not self._learner:
            self._learner, self.bound = learner, self._make(learner)
        return self.bound
