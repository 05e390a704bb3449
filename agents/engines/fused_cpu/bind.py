"""One agent's data as the kernels find it: the frame is filled here, and which kernels it names.

What a rollout and what a replay memory ask for beside the rest are two classes; everything else is said once.
"""

import math
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from stride.agents.engines.fused_cpu.frame import LIVES, MOMENTS, STATS, SUMS, TILE, At, Frame, Kernel, Kernels
from stride.agents.engines.fused_cpu.kernels import (
    heads,
    layers,
    minibatches,
    nets,
    policy_gradient,
    q,
    replay,
    returns,
    shuffle,
    squashed,
)
from stride.agents.engines.fused_cpu.kernels.scratch import scratch_floats
from stride.agents.engines.fused_cpu.parameters import Copied, Viewed, aligned
from stride.agents.engines.fused_cpu.workers import TRY_EVERY, Pace, Workers
from stride.agents.engines.plan.layout import LANES, Layout
from stride.agents.engines.plan.numbers import Live
from stride.agents.engines.plan.on_policy import OnPolicy
from stride.agents.engines.plan.recipe import Recipe, ReplayRecipe, main_leaf, scaling
from stride.agents.networks.encoders import OneHot, RunningNorm
from stride.agents.sockets import Learner
from stride.envs_gym.spaces import MASK

FLOPS_PER_CALL = 1.5e10  # about a tenth of a second: Ctrl-C is heard between two calls
MOST_PARTS, ROWS_PER_PART = 8, 128  # partial gradients of a minibatch, and so the threads that can work on it
TRY_REPLAY_EVERY = 1024  # iterations: they may be of a single update
ACTIVATIONS: dict[str, Kernels] = {
    "tanh": {At.FORWARD_LAYER: layers.forward_tanh, At.BACKWARD_LAYER: layers.backward_tanh},
    "relu": {At.FORWARD_LAYER: layers.forward_relu, At.BACKWARD_LAYER: layers.backward_relu},
}
EVERY: Kernels = {
    At.ACCUMULATE: layers.accumulate,
    At.FORWARD: nets.forward,
    At.BACKWARD: nets.backward,
    At.ENCODE: nets.encode,
    At.TURN: nets.turn,
}
ROLLOUT: Kernels = {
    At.ACTOR_LOSS: policy_gradient.actor_loss,
    At.CRITIC_LOSS: policy_gradient.critic_loss,
    At.LOG_PROBS: heads.log_probs,
    At.SAMPLE: heads.sample,
    At.GRADIENT_PART: policy_gradient.gradient_part,
    At.LOG_SOFTMAX: heads.log_softmax,
    At.VALUES: returns.values,
    At.ALL_LOG_PROBS: returns.all_log_probs,
    At.MOMENT_SUMS: returns.moment_sums,
    At.SHUFFLE: shuffle.shuffle_epochs,
    At.JUDGE: returns.judge,
    At.UPDATE: minibatches.update,
    At.LEARN: minibatches.learn,
}
REPLAY: Kernels = {
    At.TO_INPUTS: nets.to_inputs,
    At.LEARN: replay.learn,
}
KERNELS: dict[str, Kernels] = {  # of each algorithm
    **{algo_id: {**EVERY, **ROLLOUT, **own} for algo_id, own in returns.OWN.items()},
    **{algo_id: {**EVERY, **REPLAY, **own} for algo_id, own in (q.OWN | squashed.OWN).items()},
}
CALLED: dict[str, tuple[Kernel, ...]] = {  # kernels that no other calls
    **dict.fromkeys(returns.OWN, (nets.fetch_parameters, nets.give_parameters, q.act_by_value)),  # the last: greedy
    **dict.fromkeys(q.OWN | squashed.OWN, (replay.draw,)),
}


class Bound:
    """A frame, the memory it points to, and the threads that work on it."""

    recipe: Recipe
    unread: tuple[At, ...] = ()  # addresses that kernels read under a switch that is off

    def __init__(self, recipe: Recipe, threads: int, parts: int, try_every: int) -> None:
        layout, self._encoder, actions, inputs, outputs, batch, flops, passes = recipe.shape
        config, memory = recipe.agent.config, recipe.agent.memory
        self.frame, self.live, self.stats = Frame(), np.full(LIVES, math.inf), np.zeros(STATS)
        self.workers, self.pace = Workers(threads), Pace(threads, try_every)
        self.updates_per_call = max(1, int(FLOPS_PER_CALL / (passes * flops * batch)))
        self.steps_per_call = max(1, int(FLOPS_PER_CALL / (4 * flops * memory.num_envs)))
        self._arrivals, self._normalised = np.zeros(LANES, np.int64), self._encoder.leaf[0]
        centre, scale, self.live[Live.BOUND] = scaling(self._normalised, self._encoder.size)
        # copies, whose addresses kernels keep: `scaling` makes a new scale each time
        self._centre, self._scale = centre.clone(), scale.clone()
        sizes = (inputs, layout.hidden, outputs, layout.widest, actions)
        self.frame.count({
            At.THREADS: threads,
            At.WORLDS: memory.num_envs,
            At.FEATURES: self._encoder.size,
            At.ROW: inputs,
            At.OUTPUTS: outputs,
            At.OBS_WIDTH: 0 if isinstance(self._normalised, OneHot) else self._encoder.size,
            At.ACTIONS: actions,
            At.NETS: len(layout.nets),
            At.LAYERS: layout.nets.shape[1] - 1,
            At.MINIBATCH: batch,
            At.PARTS: parts,
            At.SIZE: layout.size,
            At.SEGMENTS: len(layout.segments),
            At.DECOUPLED: config.optimizer == "adamw",
            At.HIDDEN_SIZE: layout.hidden,
            At.WIDEST: layout.widest,
            At.LOG_STD: layout.log_std,
            At.LOG_ALPHA: max(layout.log_alpha, 0),
            At.VALUE_NET: layout.value_net,
            At.VALUE_ROW: layout.value_row,
            At.FOLLOWS: layout.follows,
            At.SCRATCH_SIZE: scratch_floats(*sizes),
        })  # fmt: skip
        self.frame.count({At[name]: value for name, value in recipe.switches.items()})
        self._allocate(layout, threads, parts)
        table = memory.table
        self.frame.point_all({
            At.OBS: main_leaf(table.obs),
            At.ACTION: table.action,
            At.TERMINATED: table.terminated,
            At.TRUNCATED: table.truncated,
            At.SLOT: table.slot,
        })  # fmt: skip
        self.frame.install({**ACTIVATIONS[config.activation], **KERNELS[config.algo_id]})
        self._memory, self._final = memory, memory.final
        self.point_finals()

    def follow_finals(self) -> None:
        """Final observations lie elsewhere once the memory has made room for more."""
        if self._final is not self._memory.final:
            self._final = self._memory.final
            self.point_finals()

    def point_finals(self) -> None:
        self.frame.point(At.FINAL_OBS, main_leaf(self._final.obs))

    def _allocate(self, layout: Layout, threads: int, parts: int) -> None:
        """Memory of our own, zero but for the first number of each thread's scratch, the 1.0 of scratch.py.

        Zero is relied upon: padding stays it for ever, and PARTIAL and SUMS are cleared by those who have read them.
        """
        scratch = aligned(threads * int(self.frame.table[At.SCRATCH_SIZE]))
        scratch.reshape(threads, -1)[:, 0] = 1.0
        self.frame.point_all({
            At.LIVE: self.live,
            At.STATS: self.stats,
            At.BARRIER: self._arrivals,
            At.CENTRE: self._centre,
            At.SCALE: self._scale,
            At.SCRATCH: scratch,
            At.PARAMETERS: aligned(layout.whole),
            At.FIRST_MOMENT: aligned(layout.size),
            At.SECOND_MOMENT: aligned(layout.size),
            At.GRADIENT: aligned(layout.size),
            At.PARTIAL: aligned(parts * layout.size),
            At.TURNED: aligned(layout.turned),
            At.SUMS: aligned(parts * SUMS * TILE),
            At.NET_TABLE: layout.nets,
            At.SEGMENT_TABLE: layout.segments,
            At.SQUARES: np.zeros(len(layout.segments)),
        })  # fmt: skip

    def attach(self, optimizer: Optimizer) -> None:
        """Find the parameters and their moments; anew when their memory is another, as after loading."""
        raise NotImplementedError

    def begin(self) -> None:
        """Before an iteration's steps: threads are chosen, parameters and statistics are as they are now."""
        raise NotImplementedError

    def refresh_scaling(self) -> None:
        """The encoder's statistics as they are now."""
        if isinstance(self._normalised, RunningNorm):
            centre, scale, _ = scaling(self._normalised, self._encoder.size)
            self._centre.copy_(centre)
            self._scale.copy_(scale)

    def run(self, work: int, arguments: int, count: int, most: int) -> None:
        """The kernel at `work` on the threads this iteration takes, for `count` steps or updates, `most` in a call."""
        table = self.frame.table
        threads = int(table[At.THREADS])
        for begin in range(0, count, most):
            table[At.BEGIN], table[At.END] = begin, min(begin + most, count)
            self._arrivals[0] = 0  # the barrier counts anew, for this number of threads
            self.workers.run(work, arguments, threads)

    def learn(self, kernel: Kernel, updates: int) -> None:
        """So many updates, and of a rollout what comes before the first of them."""
        self.frame.check(kernel, self.unread)
        self.run(int(self.frame.table[At.LEARN]), self.frame.address, updates, self.updates_per_call)


class RolloutBound(Bound):
    """Of an agent that learns from rollouts."""

    recipe: OnPolicy

    def __init__(self, recipe: OnPolicy, threads: int) -> None:
        agent = recipe.agent
        memory, table, batch = agent.memory, agent.memory.table, recipe.shape.batch
        parts = max(1, min(MOST_PARTS, batch // ROWS_PER_PART))
        super().__init__(recipe, min(threads, parts, memory.num_envs), parts, TRY_EVERY)
        self.recipe, layout = recipe, recipe.shape.layout
        self._parameters = Copied(self.frame, self.live, layout, [*agent.policy.parameters()])
        self.begun, self.began = False, 0.0  # whether this iteration has been; when
        rows, worlds, threads = recipe.rows, memory.num_envs, self.workers.threads
        self._key = np.zeros(5, np.int64)
        self.unread = () if agent.policy.masked else (At.MASK,)
        self.frame.count({At.STEPS: memory.rows, At.TENSORS: len(layout.places)})
        self.frame.point_all({
            At.NEXT_OBS: main_leaf(agent.collector.obs),
            At.IS_FIRST: table.is_first,
            At.LOG_PROB: aligned(rows),
            At.VALUE: aligned(rows + worlds),  # behind the rows V of the observation that follows the last of them
            At.WEIGHT: aligned(rows),
            At.TARGET: aligned(rows),
            At.COUNTED: np.ones(rows, np.float32),
            At.ORDER: np.zeros(agent.config.n_epochs * rows, np.int32),
            At.SPARE: np.zeros(threads * 3 * rows, np.int32),
            At.MOMENTS: np.zeros((parts, MOMENTS)),
            At.KEY: self._key,
        })  # fmt: skip
        if agent.policy.masked:
            assert isinstance(table.obs, dict)
            self.frame.point(At.MASK, table.obs[MASK])

    def point_finals(self) -> None:
        super().point_finals()
        self.frame.count({At.SLOTS: self._memory.slots})
        self.frame.point(At.FINAL_VALUE, aligned(self._memory.num_envs * self._memory.slots))

    def attach(self, optimizer: Optimizer) -> None:
        self._parameters.attach(optimizer)

    def begin(self) -> None:
        self.begun, self.began = True, perf_counter()
        self.frame.table[At.THREADS] = self.pace.choose()
        self.refresh_scaling()
        self._parameters.fetch()

    def give(self) -> None:
        """Parameters, moments and the count of steps back to torch; the iteration is over."""
        self.pace.took(int(self.frame.table[At.THREADS]), perf_counter() - self.began)
        self._parameters.give()

    def prepare(self, reward: Tensor, key: tuple[int, ...]) -> None:
        """What learning from this rollout depends on: its scaled reward, and the words of the key of its orders."""
        self.follow_finals()
        self.frame.point(At.REWARD, reward)
        self._key[:] = key
        self.live[Live.LEARNING_RATE] = self._parameters.group["lr"]
        self.stats[:] = 0.0


class ReplayBound(Bound):
    """Of an agent that learns from a replay memory."""

    recipe: ReplayRecipe
    unread = (At.LOG_PROB,)  # its address is handed on by whoever plays

    def __init__(self, recipe: ReplayRecipe, threads: int) -> None:
        parts = max(2, min(MOST_PARTS, recipe.shape.batch // ROWS_PER_PART))  # so that two threads can share 64 rows
        super().__init__(recipe, min(threads, parts), parts, TRY_REPLAY_EVERY)
        self.recipe, self._drawn = recipe, 0
        self._parameters = Viewed(self.frame, self.live, recipe.shape.layout)
        self.frame.point(At.RING_REWARD, self._memory.table.reward)
        self.frame.point(At.POISONED, recipe.agent.poisoned)

    def attach(self, optimizer: Optimizer) -> None:
        self._parameters.attach(optimizer)

    def begin(self) -> None:
        self.frame.table[At.THREADS] = min(self.workers.threads, self._memory.num_envs)
        self.refresh_scaling()
        self._parameters.fetch()

    def prepare(self) -> None:
        """What learning depends on: statistics, the rate, and where final observations lie."""
        self.follow_finals()
        self.refresh_scaling()
        self.live[Live.LEARNING_RATE] = self._parameters.group["lr"]

    def draws(self, updates: int, gamma: float) -> Iterator[int]:
        """Draw the transitions of so many updates, in the pieces that the memory draws; how many updates each holds."""
        memory, table = self._memory, self.frame.table
        self.frame.point(At.POWERS, gamma ** torch.arange(int(table[At.SPAN]) + 1))
        size = int(table[At.MINIBATCH])
        memory.check_slots()
        for count in memory.pieces(updates, size):
            self._make_room(count * size)
            self.frame.point(At.UNIFORMS, memory.next_uniforms(count * size))
            self.frame.check(replay.draw)
            replay.draw(self.frame.address, memory.written, memory.rows)
            yield count

    def _make_room(self, count: int) -> None:
        """For so many transitions."""
        self.frame.table[At.DRAWN] = count
        if count > self._drawn:
            self._drawn = count
            self.frame.point_all({
                At.PLACE: np.zeros(count, np.int32),
                At.FOLLOWING: np.zeros(count, np.int32),
                At.REWARD: aligned(count),
                At.DISCOUNT: aligned(count),
            })  # fmt: skip

    def note_steps(self) -> None:
        """The optimizer's count of steps, as the kernels left it."""
        self._parameters.give()


B = TypeVar("B", bound=Bound)


class Binding(Generic[B]):
    """What play and learn of one agent share; made at the first call, as only then the optimizer is there."""

    def __init__(self, make: Callable[[Learner], B]) -> None:
        self._make = make
        self._learner: Learner | None = None
        self.bound: B

    def of(self, learner: Learner) -> B:
        if learner is not self._learner:
            self._learner, self.bound = learner, self._make(learner)
        return self.bound
