"""Fills the frame for one agent: sizes, memory of the agent and of the engine, and its kernels.

`Bound` has what all agents need; RolloutBound and ReplayBound add what rollouts or a replay memory need. play.py,
learn.py and episodes.py use them, and get them from a `Binding`, one for each agent.
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

FLOPS_PER_CALL = 1.5e10  # about 0.1 s; Python handles signals, such as Ctrl-C, only between two calls
MOST_PARTS = 8  # parts of a minibatch, each with a partial gradient, and so threads that can work on it
ROWS_PER_PART = 128  # at least
TRY_REPLAY_EVERY = 1024  # iterations from one trial of thread counts to the next; one may be of a single update
Count = Callable[[int], None]  # receives how many updates are done


def most_parts_of(config: RolloutConfig) -> int:
    """Return how many parts a minibatch of this config is cut into.

    A part has at least ROWS_PER_PART rows; with PQN, whose minibatches are small, one tile; with sequences one of them.
    """
    rows = TILE if isinstance(config, PQNConfig) else ROWS_PER_PART
    if config.policy == "mingru":
        rows = max(rows, config.n_steps)
    return max(1, min(MOST_PARTS, config.minibatch_size // rows))


class Bound:
    """A frame filled for one agent, and the threads that run its kernels."""

    recipe: Recipe
    parameters: CopiedParameters | ViewedParameters
    carry: Carry | None = None  # recurrent states; None where nets have no memory
    unread: tuple[str, ...] = ()  # fields that kernels read only under a switch that is off; their address may be 0

    def __init__(self, recipe: Recipe, threads: int, parts: int, try_every: int) -> None:
        shape, config = recipe.shape, recipe.agent.config
        self.frame = frame = Frame()
        self.live = Live(*[math.inf] * len(Live._fields_))  # a limit that nobody sets is infinite, which means off
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
        """Set counts, offsets and switches."""
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
        """Set the addresses of the agent's memory, and allocate the engine's own."""
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
        if layout.nets["normed"].any():  # activations are stored twice: before their layer norm and after their relu
            frame.fill(raw=activations)
            activations += layout.hidden
        hidden = activations if image is None else describe(frame, layout, image, activations)
        # the kernels rely on memory that begins as zeros: padding is always zero, and a kernel that has read
        # `partial` or `sums` sets it back to zero
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
        """Set the address of final observations again where the memory has moved them, to make room for more."""
        if self._final is not self._memory.final:
            self.point_finals()

    def point_finals(self) -> None:
        """Set the address of final observations."""
        self._final = self._memory.final
        self.frame.fill(final_obs=main_observation(self._final.obs))

    def attach(self, optimizer: Optimizer) -> None:
        """Find the parameters and the optimizer's moments; find them again where they have moved, as after loading."""
        self.parameters.attach(optimizer)

    def begin(self) -> None:
        """Prepare an iteration: fetch parameters and the encoder's statistics. Subclasses also choose the threads."""
        self.scaling.refresh()
        self.parameters.fetch()

    def clear_stats(self) -> None:
        """Begin new statistics of updates, all 0."""
        self.stats = Stat()
        self.frame.fill(stats=self.stats)

    def run(self, work: int, arguments: int, count: int, most: int, before: Count | None = None) -> None:
        """Run the kernel at address `work` for `count` updates, at most `most` in a call, on this iteration's threads.

        `arguments` is the address that each thread receives. `before` is called before each call of the kernel, with
        the number of updates that are done.
        """
        for begin in range(0, count, most):
            if before:
                before(begin)
            self.call(work, arguments, begin, min(begin + most, count))

    def play(self, work: int, arguments: int, steps: int) -> None:
        """Play `steps` steps by the kernel at address `work`, in calls of about 0.1 s."""
        done = 0
        while done < steps:
            start_time, end = perf_counter(), min(done + self.call_length.steps, steps)
            self.call(work, arguments, done, end)
            self.call_length.record(end - done, perf_counter() - start_time)
            done = end

    def call(self, work: int, arguments: int, begin: int, end: int) -> None:
        """Call the kernel at address `work` once, for the steps or updates [begin, end)."""
        fields = self.frame.fields
        fields.begin, fields.end = begin, end
        self._arrivals[0] = 0  # the count of the barrier, which must begin at 0 for this number of threads
        self.workers.run(work, arguments, fields.threads)

    def learn(self, updates: int, before: Count | None = None, kernel: str = "learn") -> None:
        """Make `updates` updates by the kernel in the field `kernel` of the frame.

        For a rollout the kernel "learn" first computes values, targets and orders; the kernel "update" does not.
        `before` receives how many updates are done, about ten times a second, and is not called in a shorter learn.
        """
        most, work = self.updates_per_call, self.checked(kernel)
        self.run(work, self.frame.address, updates, most, before if updates > most else None)

    def checked(self, kernel: str) -> int:
        """Return the address of the kernel in this field; RuntimeError where the frame lacks an address it reads."""
        self.frame.check(self.frame.held[kernel], self.unread)
        address: int = getattr(self.frame.fields, kernel)
        return address


class RolloutBound(Bound):
    """The frame of an agent that learns from rollouts."""

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
        self.begun = False  # whether the current iteration has begun, so that its parameters are fetched
        self._start_time = 0.0
        self._key = np.zeros(5, np.int64)
        self._units = np.zeros(2, np.float32)
        self._target = aligned(rows)
        self.frame.fill(
            steps=memory.rows,
            next_obs=main_observation(agent.collector.obs),
            is_first=table.is_first,
            log_prob=aligned(rows),
            value=aligned(rows + memory.num_envs),  # of all rows, then of the observations after the last row
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
        """Copy parameters, moments and the count of steps back to torch."""
        self.pace.record(self.frame.fields.threads, perf_counter() - self._start_time)
        self.parameters.give()

    def prepare(self, reward: Tensor, key: tuple[int, ...], start: Tree) -> None:
        """Prepare learning from a rollout.

        `reward`: scaled rewards [T, N]; `key`: counters of the random key that orders rows; `start`: the recurrent
        states before the first row.
        """
        self.follow_finals()
        if self.carry:
            self.carry.fetch(start)
        self._key[:] = key
        self._units[:] = self.recipe.agent.value_scale.units()
        self.parameters.follow()
        self.frame.fill(reward=reward)
        self.clear_stats()

    def learn(self, updates: int, before: Count | None = None, kernel: str = "learn") -> None:
        """Make the updates as Bound.learn does.

        Where the critic has a value scale, that scale learns from the targets before the first update, as in eager.
        """
        if self.recipe.agent.value_scale.layers:
            self.run(self.checked("judge"), self.frame.address, 1, 1)
            self.scale_targets()
            kernel = "update"
        super().learn(updates, before, kernel)

    def scale_targets(self) -> None:
        """Let a value scale, where there is one, learn from the targets; then convert the targets to its units."""
        agent = self.recipe.agent
        if not agent.value_scale.layers:
            return
        with one_thread():
            agent.metrics.add(agent.value_scale.learn(torch.from_numpy(self._target), agent.shard))
        self.parameters.fetch()  # the scale has changed the last layer, so that values stay what they were
        self._units[:] = agent.value_scale.units()
        self._target -= self._units[0]
        self._target /= self._units[1]


class ReplayBound(Bound):
    """The frame of an agent that learns from a replay memory."""

    recipe: ReplayRecipe
    unread: tuple[str, ...] = ("log_prob",)  # the playing kernel passes this address on, and nobody uses it

    def __init__(self, recipe: ReplayRecipe, threads: int) -> None:
        parts = max(2, min(MOST_PARTS, recipe.shape.batch // ROWS_PER_PART))  # at least 2: two threads share 64 rows
        super().__init__(recipe, min(threads, parts), parts, TRY_REPLAY_EVERY)
        self.recipe, self._drawn = recipe, 0
        self._gamma: float | None = None  # the gamma of `powers`; None before the first draw
        layout, memory = recipe.shape.layout, self._memory
        if layout.convs.size:  # torch and kernels order a filter's pixels and channels differently: no view has both
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
        """Prepare learning: fetch statistics, the optimizer's settings and the address of final observations."""
        self.follow_finals()
        self.scaling.refresh()
        self.parameters.follow()
        if isinstance(self.parameters, CopiedParameters):  # torch may have changed target nets since the last fetch
            self.parameters.fetch()

    def draws(self, updates: int, gamma: float) -> Iterator[int]:
        """Draw the transitions of `updates` updates, in the same pieces as the memory does; yield the updates of each.

        The caller learns from a piece before it asks for the next, which takes the same memory.
        """
        memory, fields = self._memory, self.frame.fields
        if gamma != self._gamma:  # a schedule may change it
            self.frame.fill(powers=gamma ** torch.arange(fields.span + 1))
            self._gamma = gamma
        memory.check_slots()
        for count in memory.pieces(updates, fields.minibatch):
            transitions = count * fields.minibatch
            self._reserve(transitions)
            self.frame.fill(uniforms=memory.next_uniforms(transitions))
            self.frame.check(replay.draw, self.unread)
            replay.draw(self.frame.address, memory.written, memory.rows)
            yield count

    def _reserve(self, transitions: int) -> None:
        """Set D, and allocate the memory of drawn transitions anew where it is too small."""
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
    """Holds the Bound that the sockets of one agent share. It is made at the first call: the optimizer exists then."""

    def __init__(self, make: Callable[[Learner], B]) -> None:
        self._make: Callable[[Learner], B] = make
        self._learner: Learner | None = None
        self.bound: B

    def get(self, learner: Learner) -> B:
        """Return the Bound of this learner, and make it where the last call was for another learner."""
        if learner is not self._learner:
            self._learner, self.bound = learner, self._make(learner)
        return self.bound
