"""Learn from a rollout with CUDA kernels (update.cuh): all updates without a wait of the host.

First `judge`, `worth`, `moments` and `weigh` compute values, advantages and their normalisation. Then each update is
three launches: `gradient` (a part for each block), `reduce` (their sum) and `descend` (the optimizer's step).
"""

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stride.agents.engines.fused_gpu.ahead import Beside
from stride.agents.engines.fused_gpu.lag import PlayedPolicy
from stride.agents.engines.fused_gpu.order import Order
from stride.agents.engines.fused_gpu.parameters import DeviceParameters
from stride.agents.engines.fused_gpu.play import multiple_of_4, scaling_of
from stride.agents.engines.graphed import CapturedWork
from stride.agents.engines.plan.layout import padded
from stride.agents.engines.plan.numbers import Live, MomentSums, Stat, Sum, names_of
from stride.agents.engines.plan.on_policy import OnPolicy
from stride.agents.engines.plan.recipe import main_observation
from stride.agents.experience.nouns import Rollout
from stride.agents.networks.encoders import OneHot, RunningNorm
from stride.agents.ppo import PPO
from stride.agents.sockets import Learner
from stride.envs_gym.spaces import MASK
from stride.utils.cuda_kernels import Compile, Source, compile_cuda, read_source, shared_of_block, with_sizes

UPDATE_SOURCE = Path(__file__).with_name("update.cuh")
THREADS, WEIGHERS = 256, 1024  # threads of a block; of a block of `weigh`
TILES = (128, 64)  # choices for the samples that a block passes through the nets together
MAX_PARTS = 256  # blocks that share a minibatch, each with a partial gradient: two for each of 128 multiprocessors
JUDGES, COLUMNS, METRIC_SUMS, WORTH_COLUMNS = 64, 128, 5, 5  # as in update.cuh and losses.cuh
FIELDS = {  # constants for kernels: the index of each number in its struct, such as LIVE_STEP in Live
    f"{prefix}_{name.upper()}": index
    for prefix, names in (
        ("LIVE", names_of(Live)),
        ("MOMENT", names_of(MomentSums)),
        ("STAT", names_of(Stat)),
        ("SUM", list(Sum.__members__)),
    )
    for index, name in enumerate(names)
}
BITS: dict[str | int, int] = {32: 32, "tf32": 19, "bf16": 16}  # of an operand: sign, exponent and mantissa
Defines = dict[str, Any]


def choose_sizes(recipe: OnPolicy, room: int) -> Defines:
    """Return the sizes with the larger tile if minibatches fill a GPU with such tiles and two blocks fit into `room`.

    `room`: bytes of shared memory. Otherwise the smaller tile, which may still be too large (see `why_not_fused`).
    """
    large, small = (sizes_of(recipe, tile) for tile in TILES)
    return large if recipe.shape.batch >= MAX_PARTS * TILES[0] and 2 * shared_of(large) <= room else small


def sizes_of(recipe: OnPolicy, tile: int) -> Defines:
    """Return the constants that update.cuh is compiled with; it and the files it includes explain them."""
    layout, encoder, config = recipe.shape.layout, recipe.shape.encoder, recipe.agent.config
    nets, encoding = layout.nets, encoder.leaf[0]
    return {
        "TILE": tile,
        "FEATURES": encoder.size,
        "HIDDEN": nets["width"][0, :-1].tolist(),
        "OUTPUTS": nets["width"][:, -1].tolist(),
        "NETS": len(nets),
        "DEPTH": nets.shape[1] - 1,
        "WEIGHTS": nets["weight"].reshape(-1).tolist(),
        "BIASES": nets["bias"].reshape(-1).tolist(),
        "RELU": config.activation == "relu",
        "ONE_HOT": isinstance(encoding, OneHot),
        "ROLLING": isinstance(encoding, RunningNorm),
        "VARIANCE_ADDED": np.float32(RunningNorm.epsilon),
        "BOUND": np.float32(RunningNorm.bound),
        "ACTIONS": recipe.shape.actions,
        "LOG_STD": layout.log_std,
        "VALUE_NET": layout.value_net,
        "VALUE_ROW": layout.value_row,
        "DECOUPLED": config.optimizer == "adamw",
        "PRECISION": BITS[config.precision],
        "LAGS": vars(config).get("lag") == 1,
        "MOMENTS": len(names_of(MomentSums)),
        **{name.upper(): value for name, value in recipe.switches.items() if name != "epochs"},
        **FIELDS,
    }


def source_of(sizes: Defines) -> Source:
    """Return the source of the kernels for these sizes."""
    return with_sizes(read_source(UPDATE_SOURCE), sizes)


def shared_of(sizes: Defines) -> int:
    """Return the bytes of shared memory that a block of `judge` or `gradient` needs, in the layout of nets.cuh."""
    tile, features, hidden, one_hot = sizes["TILE"], sizes["FEATURES"], sizes["HIDDEN"], sizes["ONE_HOT"]
    # a row of weights or activations has 4 floats more than it needs, against conflicts of memory banks
    inside = sum(width + width * (inner + 4) for inner, width in pairwise(hidden))
    first = hidden[0] * (1 if one_hot else 1 + features)
    heads = max(multiple_of_4(outputs) + outputs * (hidden[-1] + 4) for outputs in sizes["OUTPUTS"])
    activations = sum(tile * (width + 4) for width in hidden) + (0 if one_hot else tile * (features | 1))
    ends, scaling = 2 * tile * (max(sizes["OUTPUTS"]) | 1), 0 if one_hot else 2 * features
    return 4 * (first + inside + heads + activations + ends + scaling + tile * (2 + METRIC_SUMS + WORTH_COLUMNS))


class Updates:
    """The updates of one agent: launches the kernels, and owns the buffers they need besides the agent's memory."""

    def __init__(self, recipe: OnPolicy, compile: Compile) -> None:
        agent, layout = recipe.agent, recipe.shape.layout
        memory, device = agent.memory, agent.memory.table.reward.device
        self.recipe, self._device = recipe, device
        sizes = choose_sizes(recipe, shared_of_block(device))
        self._kernels, self._shared, self._tile = compile(source_of(sizes), device), shared_of(sizes), sizes["TILE"]
        self._rows, self._worlds, self._batch = recipe.rows, memory.num_envs, recipe.shape.batch
        self._parts = min(MAX_PARTS, -(-self._batch // self._tile))
        self._columns = -(-layout.size // COLUMNS)  # blocks of `reduce`
        self.parameters = DeviceParameters(layout, device)
        self._scaling = scaling_of(recipe.shape.encoder, device)
        self._order, self._beside = Order(agent.config.n_epochs, self._rows, device, compile), Beside(device)
        self.host = Live(*[math.inf] * len(names_of(Live)))
        zeros: Callable[..., Tensor] = torch.zeros
        doubles = {"dtype": torch.float64, "device": device}
        self.live, self.stats = zeros(len(names_of(Live)), **doubles), zeros(len(names_of(Stat)), **doubles)
        # a copy on the host, complete once the host has read the iteration's flags
        self._host_stats = torch.zeros(len(self.stats), dtype=torch.float64, pin_memory=device.type == "cuda")
        self._key = zeros(5, dtype=torch.int64, device=device)
        # float32 [rows] of the rollout: log-probabilities, advantages, targets of the critic, 1 where a row counts
        self.log_prob, self.weight, self.target, self.counted = zeros(4, self._rows, device=device)
        self.value = zeros(self._rows + self._worlds, device=device)
        self.played = PlayedPolicy(agent, agent.lagging) if isinstance(agent, PPO) and agent.lagging else None
        self._moments, self._totals = zeros(JUDGES, len(names_of(MomentSums)), **doubles), zeros(METRIC_SUMS, **doubles)
        # of each update: mean, 1 / deviation, 1 / rows of weights; steps made before it, whether target_kl stopped it
        self._weighing, self._state = zeros(recipe.updates, 3, **doubles), zeros(recipe.updates + 1, 2, **doubles)
        self._squares = zeros(self._columns, 3, **doubles)
        self.partial = zeros(self._parts, layout.size, device=device)
        self._sums = zeros(self._parts, METRIC_SUMS, device=device)
        self.gradient = zeros(layout.size, device=device)
        self._owners = zeros(padded(layout.size), dtype=torch.uint8, device=device)
        for first, last, part in layout.segments.tolist():
            self._owners[first:last] = part
        self._unmasked = zeros(1, dtype=torch.bool, device=device)

    def prepare(self) -> None:
        """Copy settings, the random key, parameters and moments to the device."""
        self.parameters.attach(self.recipe.agent.optimizer, self.host)
        self.recipe.before_learning(self.host)
        # non_blocking: otherwise the host would wait for the rollout; so few bytes are copied before the call returns
        self.live.copy_(torch.frombuffer(self.host, dtype=torch.float64), non_blocking=True)
        self._key.copy_(torch.tensor(self.recipe.order()), non_blocking=True)
        self.parameters.fetch(self.live[FIELDS["LIVE_STEP"]])
        if self.played:
            self.played.fetch()
        self.stats.zero_()

    def make(self, work: Rollout) -> None:
        """Make all updates, and copy parameters and moments back to torch.

        A CUDA graph may capture this, so no number that changes between iterations may come from Python.
        """
        self.judge(self.recipe.reward(work))
        for number in range(self.recipe.updates):
            self.update(number)
        self.give()
        agent = self.recipe.agent
        agent.broken |= self.stats[FIELDS["STAT_BROKEN"]] > 0
        agent.lost |= self.stats[FIELDS["STAT_LOST"]] > 0

    def judge(self, reward: Tensor) -> None:
        """Compute advantages, targets of the critic, and the order in which rows are learnt from."""
        agent, launch = self.recipe.agent, self._kernels.launch
        memory, rows, worlds = agent.memory, self._rows, self._worlds
        self._beside.begin(self._draw_order)
        table, value = memory.table, self.value
        final = torch.zeros(memory.slots * worlds, device=self._device)
        policy, obs, ratio = (self.parameters.values, *self._scaling), main_observation(table.obs), self.log_prob
        # parameters, observations, values, log-probabilities, rows; whether log-probabilities and values are needed
        passes: list[tuple[Any, ...]] = [(policy, obs, value, ratio, rows, True, True)]
        if self.played:
            ratio = self.played.ratio  # log-probabilities of the policy that played, until `worth` makes ratios of them
            passes += [((self.played.values, *self.played.scaling), obs, value, ratio, rows, True, False)]
        if self.recipe.shape.layout.value_net >= 0:
            passes += [
                (policy, main_observation(agent.collector.obs), value[rows:], self.log_prob, worlds, False, True),
                (policy, main_observation(memory.final.obs), final, self.log_prob, memory.slots * worlds, False, True),
            ]
        for parameters, obs, values, log_prob, size, *wanted in passes:
            blocks = min(2 * MAX_PARTS, -(-size // self._tile))
            launch(
                "judge", blocks * THREADS, *parameters, obs, table.action, self._mask, values, log_prob, np.int64(size),
                *map(np.int32, wanted), block=THREADS, shared=self._shared,
            )  # fmt: skip
        flags = table.terminated, table.truncated, table.is_first, table.slot
        weights = self.weight, self.target, self.counted
        sizes = np.int32(memory.rows), np.int32(worlds)
        judged = value, final, self.log_prob, ratio
        launch("worth", worlds, reward.contiguous(), *flags, *judged, self.live, *weights, *sizes)
        launch("moments", JUDGES * THREADS, *weights, value, self._moments, np.int64(rows), block=THREADS)
        self._beside.wait()
        launch(
            "weigh", self.recipe.updates * WEIGHERS, self.weight, self.counted, self.order, self._moments, self.live,
            self._weighing, self.stats, self._state, np.int64(rows), np.int64(self._batch), block=WEIGHERS,
        )  # fmt: skip

    def _draw_order(self) -> None:
        """Draw the order of rows. Only `weigh` needs it, so it is sorted on the second stream while `judge` runs."""
        self.order = self._order.draw(self._key)

    def update(self, number: int) -> None:
        """Make update `number`: a step, or none if a number is non-finite or target_kl was exceeded."""
        launch, own, update = self._kernels.launch, self.parameters, np.int32(number)
        table, parts, floats = self.recipe.agent.memory.table, np.int32(self._parts), np.int32(len(self.gradient))
        blocks = np.int32(self._columns)
        launch(
            "gradient", self._parts * THREADS, own.values, *self._scaling, main_observation(table.obs), table.action,
            self._mask, self.log_prob, self.weight, self.counted, self.value, self.target, self.order, self.live,
            self._weighing, self._state, self.partial, self._sums, np.int64(self._rows), np.int64(self._batch), update,
            floats, block=THREADS, shared=self._shared,
        )  # fmt: skip
        launch(
            "reduce", (self._columns + 1) * THREADS, self.partial, self._sums, self._owners, self._state, self.gradient,
            self._squares, self._totals, update, parts, floats, block=THREADS,
        )  # fmt: skip
        launch(
            "descend", len(self.gradient), self.gradient, self._squares, self._totals, self.live,
            self.recipe.agent.poisoned, own.values, own.first, own.second, self._state, self.stats, update, blocks,
            floats, block=THREADS,
        )  # fmt: skip

    def report(self) -> None:
        """Start to copy the statistics to the host; the recipe reports them once they have arrived."""
        stats = self._host_stats.copy_(self.stats, non_blocking=True)
        self.recipe.agent.metrics.later(
            lambda: self.recipe.report(Stat.from_buffer(stats.numpy().data), self.recipe.updates)
        )

    def give(self) -> None:
        """Copy parameters, moments and the count of steps back to torch."""
        self.parameters.give(self._state[-1, 0])

    @property
    def _mask(self) -> Tensor:
        """The action masks of the rows; a dummy tensor if there are none."""
        obs = self.recipe.agent.memory.table.obs
        return obs[MASK] if isinstance(obs, dict) and MASK in obs else self._unmasked


class FusedLearn:
    """The socket Learn: all updates of a rollout. Statistics reach the host together with the iteration's flags."""

    name = "fused_gpu"

    def __init__(
        self, make: Callable[[Any], OnPolicy], compile: Compile = compile_cuda, captured: CapturedWork | None = None
    ) -> None:
        """`make`: returns an agent's recipe; `captured`: captures the launches in a CUDA graph, None: no graph."""
        self._make, self._compile, self._captured = make, compile, captured
        self._learner: Learner | None = None
        self.updates: Updates
        self.beside: Callable[[Learner], None] | None = None
        """called before the updates, when the policy of the next rollout is known (`lag: 1`); starts to play it"""

    def updates_of(self, learner: Learner) -> Updates:
        """Return the learner's Updates, which are made at the first call."""
        if learner is not self._learner:
            self._learner, self.updates = learner, Updates(self._make(learner), self._compile)
        return self.updates

    @torch.no_grad()
    def learn(self, learner: Learner, work: Rollout) -> None:
        updates = self.updates_of(learner)
        recipe = updates.recipe
        learner.metrics.settle()  # take the last iteration's numbers before they are overwritten
        updates.prepare()
        if self.beside:
            self.beside(learner)
        if self._captured:
            self._captured.run(lambda: updates.make(work), learner.loads)
        else:
            updates.make(work)
        learner.progress["updates"] += recipe.updates
        if updates.played:
            updates.played.report()
        updates.report()
        recipe.after_learning(work)
