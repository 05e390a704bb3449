"""Learning by kernels of a GPU: all updates from a rollout, three launches each (update.cuh), none of which waits."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stride.agents.engines.fused_gpu.lag import Played
from stride.agents.engines.fused_gpu.order import Order
from stride.agents.engines.fused_gpu.parameters import Copied
from stride.agents.engines.fused_gpu.play import scaling_of, whole
from stride.agents.engines.graphed import Repeated
from stride.agents.engines.plan.layout import Layer, padded
from stride.agents.engines.plan.numbers import Live, Moment, Stat, Sum
from stride.agents.engines.plan.on_policy import OnPolicy
from stride.agents.engines.plan.recipe import main_leaf
from stride.agents.experience.nouns import Rollout
from stride.agents.networks.encoders import OneHot, RunningNorm
from stride.agents.ppo import PPO
from stride.agents.reinforce import REINFORCE
from stride.agents.sockets import Learner
from stride.envs_gym.spaces import MASK
from stride.utils.cuda_kernels import Compile, Source, compile_cuda, read_source, with_sizes

UPDATE = Path(__file__).with_name("update.cuh")
BLOCK, TILE = 256, 64  # threads, and samples that pass through the nets together
MOST_PARTS = 512  # partial gradients of a minibatch: four blocks for each of 128 multiprocessors
JUDGES, COLUMNS, TOLD = 64, 128, 5  # as update.cuh says
NAMES = {f"{kind.__name__.upper()}_{each.name}": int(each) for kind in (Live, Moment, Stat, Sum) for each in kind}
BITS: dict[str | int, int] = {32: 32, "tf32": 19, "bf16": 16}  # of an operand
Sizes = dict[str, Any]


def sizes_of(recipe: OnPolicy) -> Sizes:
    """What update.cuh is compiled for; it and what it includes say what each of them is."""
    layout, encoder, config = recipe.shape.layout, recipe.shape.encoder, recipe.agent.config
    nets, leaf = layout.nets, encoder.leaf[0]
    return {
        "FEATURES": encoder.size,
        "HIDDEN": nets[0, :-1, Layer.WIDTH].tolist(),
        "OUTPUTS": nets[:, -1, Layer.WIDTH].tolist(),
        "NETS": len(nets),
        "DEPTH": nets.shape[1] - 1,
        "WEIGHTS": nets[:, :, Layer.WEIGHT].reshape(-1).tolist(),
        "BIASES": nets[:, :, Layer.BIAS].reshape(-1).tolist(),
        "RELU": config.activation == "relu",
        "ONE_HOT": isinstance(leaf, OneHot),
        "ROLLING": isinstance(leaf, RunningNorm),
        "VARIANCE_ADDED": np.float32(RunningNorm.epsilon),
        "BOUND": np.float32(RunningNorm.bound),
        "ACTIONS": recipe.shape.actions,
        "LOG_STD": layout.log_std,
        "VALUE_NET": layout.value_net,
        "VALUE_ROW": layout.value_row,
        "DECOUPLED": config.optimizer == "adamw",
        "PRECISION": BITS[config.precision],
        "LAGS": vars(config).get("lag") == 1,
        "MOMENTS": len(Moment),
        **{name: value for name, value in recipe.switches.items() if name != "EPOCHS"},
        **NAMES,
    }


def played_of(agent: PPO | REINFORCE) -> Played | None:
    """Of an agent in whose stead an older actor plays."""
    return Played(agent, agent.lagging) if isinstance(agent, PPO) and agent.lagging else None


def source_of(sizes: Sizes) -> Source:
    """The kernels for these sizes."""
    return with_sizes(read_source(UPDATE), sizes)


def shared_of(sizes: Sizes) -> int:
    """Bytes of shared memory of a block of `judge` and `gradient`, as nets.cuh lays it out."""
    features, hidden, one_hot = sizes["FEATURES"], sizes["HIDDEN"], sizes["ONE_HOT"]
    inside = sum(wide + wide * (inner + 4) for inner, wide in pairwise(hidden))
    first = hidden[0] * (1 if one_hot else 1 + features)
    heads = max(whole(outputs) + outputs * (hidden[-1] + 4) for outputs in sizes["OUTPUTS"])
    said = sum(TILE * (wide + 4) for wide in hidden) + (0 if one_hot else TILE * (features | 1))
    ends = 2 * TILE * (max(sizes["OUTPUTS"]) | 1)
    return 4 * (first + inside + heads + said + ends + (0 if one_hot else 2 * features) + TILE * (2 + TOLD))


class Updates:
    """One agent's updates: the memory of kernels beside the agent's own, and the order of launches."""

    def __init__(self, recipe: OnPolicy, compile: Compile) -> None:
        agent, layout = recipe.agent, recipe.shape.layout
        memory, device = agent.memory, agent.memory.table.reward.device
        self.recipe, self._device = recipe, device
        sizes = sizes_of(recipe)
        self._kernels, self._shared = compile(source_of(sizes), device), shared_of(sizes)
        self._rows, self._worlds, self._batch = recipe.rows, memory.num_envs, recipe.shape.batch
        self._parts = min(MOST_PARTS, -(-self._batch // TILE))
        self._columns = -(-layout.size // COLUMNS)  # blocks that add up the gradient
        self.parameters = Copied(layout, device)
        self._scaling = scaling_of(recipe.shape.encoder.leaf[0], recipe.shape.encoder.size, device)
        self._order = Order(agent.config.n_epochs, self._rows, device, compile)
        self.host = np.full(len(Live), np.inf)
        zeros: Callable[..., Tensor] = torch.zeros
        wide = {"dtype": torch.float64, "device": device}
        self.live, self.stats = zeros(len(Live), **wide), zeros(len(Stat), **wide)
        # where the host finds them, once it has waited for the iteration's flags
        self._told_host = torch.zeros(len(Stat), dtype=torch.float64, pin_memory=device.type == "cuda")
        self._key = zeros(5, dtype=torch.int64, device=device)
        self.log_prob, self.weight, self.target, self.counted = zeros(4, self._rows, device=device)
        self.value = zeros(self._rows + self._worlds, device=device)
        self.played = played_of(agent)
        self._moments, self._totals = zeros(JUDGES, len(Moment), **wide), zeros(TOLD, **wide)
        self._weighing, self._state = zeros(recipe.updates, 3, **wide), zeros(recipe.updates + 1, 2, **wide)
        self._squares = zeros(self._columns, 3, **wide)
        self.partial = zeros(self._parts, layout.size, device=device)
        self._sums = zeros(self._parts, TOLD, device=device)
        self.gradient = zeros(layout.size, device=device)
        self._belongs = zeros(padded(layout.size), dtype=torch.uint8, device=device)
        for first, last, part in layout.segments.tolist():
            self._belongs[first:last] = part
        self._unmasked = zeros(1, dtype=torch.bool, device=device)

    def prepare(self) -> None:
        """What the host knows, to the device; parameters and moments as they are now."""
        self.parameters.attach(self.recipe.agent.optimizer, self.host)
        self.recipe.before_learning(self.host)
        # else the host would wait for the rollout; so few bytes are staged before a copy returns
        self.live.copy_(torch.from_numpy(self.host), non_blocking=True)
        self._key.copy_(torch.tensor(self.recipe.order()), non_blocking=True)
        self.parameters.fetch(self.live[Live.STEP])
        if self.played:
            self.played.fetch()
        self.stats.zero_()

    def make(self, work: Rollout) -> None:
        """All of them, and parameters and moments back to torch; nothing here knows a number of the host's."""
        self.judge(self.recipe.reward(work))
        for number in range(self.recipe.updates):
            self.update(number)
        self.give()
        agent = self.recipe.agent
        agent.broken |= self.stats[Stat.BROKEN] > 0
        agent.lost |= self.stats[Stat.LOST] > 0

    def judge(self, reward: Tensor) -> None:
        """How good each action was, and the order in which it is learnt from."""
        agent, launch = self.recipe.agent, self._kernels.launch
        memory, rows, worlds = agent.memory, self._rows, self._worlds
        table, value = memory.table, self.value
        final = torch.zeros(memory.slots * worlds, device=self._device)
        own, seen, ratio = (self.parameters.values, *self._scaling), main_leaf(table.obs), self.log_prob
        asked = [(own, seen, value, ratio, rows, True, True)]  # and whose log-probabilities, whose values
        if self.played:
            ratio = self.played.ratio  # until `worth` makes it one: log-probabilities of who played
            asked += [((self.played.values, *self.played.scaling), seen, value, ratio, rows, True, False)]
        if self.recipe.shape.layout.value_net >= 0:
            asked += [
                (own, main_leaf(agent.collector.obs), value[rows:], self.log_prob, worlds, False, True),
                (own, main_leaf(memory.final.obs), final, self.log_prob, memory.slots * worlds, False, True),
            ]
        for by, obs, values, log_prob, size, *wanted in asked:
            blocks = min(2 * MOST_PARTS, -(-size // TILE))
            launch(
                "judge", blocks * BLOCK, *by, obs, table.action, self._mask, values, log_prob, np.int64(size),
                *map(np.int32, wanted), block=BLOCK, shared=self._shared,
            )  # fmt: skip
        flags = table.terminated, table.truncated, table.is_first, table.slot
        found = self.weight, self.target, self.counted
        sizes = np.int32(memory.rows), np.int32(worlds)
        judged = value, final, self.log_prob, ratio
        launch("worth", worlds, reward.contiguous(), *flags, *judged, self.live, *found, *sizes)
        launch("moments", JUDGES * BLOCK, *found, value, self._moments, np.int64(rows), block=BLOCK)
        self.order = self._order.draw(self._key)
        given = self.weight, self.counted, self.order, self._moments, self.live
        told = self._weighing, self.stats, self._state, np.int64(rows), np.int64(self._batch)
        launch("weigh", self.recipe.updates * BLOCK, *given, *told, block=BLOCK)

    def update(self, number: int) -> None:
        """One step, or none where a number is not finite, or target_kl was exceeded."""
        launch, own, update = self._kernels.launch, self.parameters, np.int32(number)
        table, parts, floats = self.recipe.agent.memory.table, np.int32(self._parts), np.int32(len(self.gradient))
        blocks = np.int32(self._columns)
        launch(
            "gradient", self._parts * BLOCK, own.values, *self._scaling, main_leaf(table.obs), table.action, self._mask,
            self.log_prob, self.weight, self.counted, self.value, self.target, self.order, self.live, self._weighing,
            self._state, self.partial, self._sums, np.int64(self._rows), np.int64(self._batch), update, floats,
            block=BLOCK, shared=self._shared,
        )  # fmt: skip
        launch(
            "reduce", (self._columns + 1) * BLOCK, self.partial, self._sums, self._belongs, self._state, self.gradient,
            self._squares, self._totals, update, parts, floats, block=BLOCK,
        )  # fmt: skip
        launch(
            "descend", len(self.gradient), self.gradient, self._squares, self._totals, self.live,
            self.recipe.agent.poisoned, own.values, own.first, own.second, self._state, self.stats, update, blocks,
            floats, block=BLOCK,
        )  # fmt: skip

    def tell(self) -> None:
        """What was told, on its way to the host, which nobody waits for."""
        told = self._told_host.copy_(self.stats, non_blocking=True)
        self.recipe.agent.metrics.later(lambda: self.recipe.tell(told.numpy(), self.recipe.updates))

    def give(self) -> None:
        """Parameters, moments and the count of steps back to torch."""
        self.parameters.give(self._state[-1, 0])

    @property
    def _mask(self) -> Tensor:
        obs = self.recipe.agent.memory.table.obs
        return obs[MASK] if isinstance(obs, dict) and MASK in obs else self._unmasked


class FusedLearn:
    """All epochs of a rollout; what is told of them reaches the host with the look at the flags behind them."""

    name = "fused_gpu"

    def __init__(
        self, make: Callable[[Any], OnPolicy], compile: Compile = compile_cuda, repeated: Repeated | None = None
    ) -> None:
        """`make`: the recipe, of an agent; `repeated`: who captures the launches."""
        self._make, self._compile, self._repeated = make, compile, repeated
        self._learner: Learner | None = None
        self.updates: Updates
        self.beside: Callable[[Learner], None] | None = None
        """what is begun as soon as who plays next is known, before the updates"""

    def of(self, learner: Learner) -> Updates:
        """Made at the first call."""
        if learner is not self._learner:
            self._learner, self.updates = learner, Updates(self._make(learner), self._compile)
        return self.updates

    @torch.no_grad()
    def learn(self, learner: Learner, work: Rollout) -> None:
        updates = self.of(learner)
        recipe = updates.recipe
        learner.metrics.settle()  # before the numbers of the last iteration are overwritten
        updates.prepare()
        if self.beside:
            self.beside(learner)
        if self._repeated:
            self._repeated.run(lambda: updates.make(work), learner.loads)
        else:
            updates.make(work)
        learner.progress["updates"] += recipe.updates
        if updates.played:
            updates.played.tell()
        updates.tell()
        recipe.after_learning(work)
