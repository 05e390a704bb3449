"""One agent's data as the kernels find it: fills the frame, owns their scratch memory, carries parameters to and fro.

Parameters and their moments are torch's; they are copied in before and out after each call, which costs a microsecond
per ten thousand and leaves nothing to fall out of step.
"""

from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

from agents.engines.fused_cpu import losses, nets, returns, update
from agents.engines.fused_cpu.bound import FLOPS_PER_CALL, Bound, aligned
from agents.engines.fused_cpu.frame import MOMENTS, SUMS, TILE, At, Layer, Setting
from agents.engines.fused_cpu.layout import lay_out
from agents.engines.fused_cpu.recipes import main_leaf, recipe_of, told
from agents.networks.heads import Gaussian
from envs_gym.spaces import MASK

MOST_PARTS, ROWS_PER_PART = 8, 128  # partial gradients of a minibatch, and so the threads that can work on it
WORTH = (returns.advantages, returns.monte_carlo)
OWN = {
    At.ACTOR_LOSS: losses.actor_loss,
    At.CRITIC_LOSS: losses.critic_loss,
    At.LOG_PROBS: losses.log_probs,
    At.SAMPLE: losses.sample,
    At.GRADIENT_PART: update.gradient_part,
    At.LOG_SOFTMAX: losses.log_softmax,
    At.VALUES: returns.values,
    At.ALL_LOG_PROBS: returns.all_log_probs,
    At.MOMENT_SUMS: returns.moment_sums,
    At.SHUFFLE: update.shuffle_epochs,
    At.JUDGE: returns.judge,
    At.UPDATE: update.update,
    At.LEARN: update.learn,
}


class Binding(Bound):
    """The frame of an on-policy agent and everything it points to."""

    def __init__(self, agent: Any, threads: int) -> None:
        config, policy, memory = agent.config, agent.policy, agent.memory
        parts = max(1, min(MOST_PARTS, config.minibatch_size // ROWS_PER_PART))
        super().__init__(min(threads, parts, memory.num_envs), policy.encoder)
        self.layout, self.recipe = lay_out(policy), recipe_of(config)
        names = told(config, policy)
        self.told, self.told_from = tuple(names), np.array([*names.values()], np.int64)
        self.rows, worlds = memory.rows * memory.num_envs, memory.num_envs
        self.updates = config.n_epochs * -(-self.rows // config.minibatch_size)
        self._parameters = list(policy.parameters())
        self.head = policy.head
        self._sizes(agent, parts)
        self._take(worlds, worlds * memory.slots)
        self._lend(agent)
        self._point(config.activation, {**OWN, At.WORTH: WORTH[self.recipe.reinforce]})
        work = 2 * sum(int(row[Layer.INNER] * row[Layer.WIDTH]) for net in self.layout.nets for row in net)
        self.updates_per_call = max(1, int(FLOPS_PER_CALL / (3 * work * config.minibatch_size)))
        self.steps_per_call = max(1, int(FLOPS_PER_CALL / (4 * work * worlds)))

    def attach(self, optimizer: Optimizer) -> None:
        """Find the parameters and their moments; again when the state was exchanged, as loading does."""
        state, places = optimizer.state, [p.data_ptr() for p in self._parameters]
        if state is self._optimizer_state and places == self._places:
            return
        self._know(optimizer, state[self._parameters[0]])
        for parameter in self._parameters:
            if not state[parameter]:
                moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                state[parameter].update(moments)
        self._count_steps(self._parameters, state)
        self._keep("TENSOR_TABLE", self.layout.tensors(state))
        self._optimizer_state, self._places = state, places

    def fetch(self) -> None:
        """Torch's parameters and statistics as they are now."""
        self.look()
        nets.fetch_parameters(self.address)
        for net in range(len(self.layout.nets)):
            nets.turn(self.address, net, 0, 1)

    def order_by(self, key: tuple[int, ...]) -> None:
        """The words of the key that orders the rows of every epoch."""
        self._key[:] = key

    def give(self) -> None:
        """Parameters, moments and the count of steps back to torch."""
        nets.give_parameters(self.address)
        self._counters.fill_(float(self.settings[Setting.STEP]))

    def _sizes(self, agent: Any, parts: int) -> None:
        """Counts and switches."""
        config, policy, memory, layout = agent.config, agent.policy, agent.memory, self.layout
        features, actions = policy.encoder.size, policy.head.linear.out_features
        self._scratch(TILE * (features + layout.hidden + 5 * actions + 7 + 2 * layout.widest))
        self._count({
            At.THREADS: self.workers.threads,
            At.STEPS: memory.rows,
            At.WORLDS: memory.num_envs,
            At.SLOTS: memory.slots,
            At.ROW: features,
            At.OUTPUTS: actions + 1,
            At.ACTIONS: actions,
            At.NETS: len(layout.nets),
            At.LAYERS: layout.nets.shape[1] - 1,
            At.VALUE_NET: layout.value_net,
            At.VALUE_ROW: layout.value_row,
            At.GAUSSIAN: isinstance(policy.head, Gaussian),
            At.REINFORCE: self.recipe.reinforce,
            At.WHOLE_EPISODE: self.recipe.whole_episode,
            At.NORMALIZE: self.recipe.normalize,
            At.MASKED: policy.masked,
            At.EPOCHS: config.n_epochs,
            At.MINIBATCH: config.minibatch_size,
            At.PARTS: parts,
            At.SIZE: layout.size,
            At.SEGMENTS: len(layout.segments),
            At.TENSORS: len(layout.places),
            At.DECOUPLED: config.optimizer == "adamw",
            At.HIDDEN_SIZE: layout.hidden,
            At.WIDEST: layout.widest,
            At.LOG_STD: layout.log_std,
        })  # fmt: skip

    def _take(self, worlds: int, finals: int) -> None:
        """Memory of our own, zero."""
        rows, size, frame = self.rows, self.layout.size, self.frame
        self._key = np.zeros(5, np.int64)
        parts, threads, epochs = int(frame[At.PARTS]), int(frame[At.THREADS]), int(frame[At.EPOCHS])
        singles = {"LOG_PROB": rows, "VALUE": rows + worlds, "FINAL_VALUE": finals, "WEIGHT": rows, "TARGET": rows}
        singles |= dict.fromkeys(("PARAMETERS", "FIRST_MOMENT", "SECOND_MOMENT", "GRADIENT"), size)
        singles |= {"TURNED": self.layout.turned, "PARTIAL": parts * size, "LANES": parts * SUMS * TILE}
        for name, count in singles.items():
            self._keep(name, aligned(count))
        for name, array in {
            "COUNTED": np.ones(rows, np.float32),
            "ORDER": np.zeros(epochs * rows, np.int32),
            "SPARE": np.zeros(threads * 3 * rows, np.int32),
            "NET_TABLE": self.layout.nets,
            "SEGMENT_TABLE": self.layout.segments,
            "SQUARES": np.zeros(len(self.layout.segments)),
            "MOMENTS": np.zeros((parts, MOMENTS)),
            "KEY": self._key,
        }.items():
            self._keep(name, array)

    def _lend(self, agent: Any) -> None:
        """What the memory, the collector and the encoder own."""
        table, policy = agent.memory.table, agent.policy
        self._keep("OBS", main_leaf(table.obs))
        self._keep("NEXT_OBS", main_leaf(agent.collector.obs))
        self._keep("FINAL_OBS", main_leaf(agent.memory.final.obs))
        if policy.masked:
            self._keep("MASK", table.obs[MASK])
        for name in ("action", "terminated", "truncated", "is_first", "slot"):
            self._keep(name.upper(), getattr(table, name))
