"""One agent's data as the kernels find it: fills the frame, owns their scratch memory, carries parameters to and fro.

Parameters and their moments are torch's; they are copied in before and out after each call, which costs a microsecond
per ten thousand and leaves nothing to fall out of step.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from agents.engines.fused_cpu import layers, losses, nets, returns, update
from agents.engines.fused_cpu.calls import address_of
from agents.engines.fused_cpu.frame import MOMENTS, SETTINGS, STATS, SUMS, TILE, At, Layer, Setting
from agents.engines.fused_cpu.lanes import LANES
from agents.engines.fused_cpu.layout import lay_out
from agents.engines.fused_cpu.recipes import main_leaf, normalisation, recipe_of, told
from agents.engines.fused_cpu.workers import Job, Pace, Workers
from agents.networks.encoders import OneHot, RunningNorm
from agents.networks.heads import Gaussian
from envs_gym.spaces import MASK

FLOPS_PER_CALL = 1.5e10  # about a tenth of a second: Ctrl-C is heard between two calls
MOST_PARTS, ROWS_PER_PART = 8, 128  # partial gradients of a minibatch, and so the threads that can work on it
LAYERS = {
    "tanh": (layers.forward_tanh, layers.backward_tanh),
    "relu": (layers.forward_relu, layers.backward_relu),
}
WORTH = (returns.advantages, returns.monte_carlo)
PIECES = {
    At.ACCUMULATE: layers.accumulate,
    At.FORWARD: nets.forward,
    At.BACKWARD: nets.backward,
    At.ENCODE: nets.encode,
    At.TURN: nets.turn,
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
}


class Binding:
    """The frame of one agent and everything it points to."""

    def __init__(self, agent: Any, threads: int) -> None:
        config, policy, memory = agent.config, agent.policy, agent.memory
        self.frame, self._held = np.zeros(len(At), np.int64), dict[str, np.ndarray | Tensor]()
        self.address = self.frame.ctypes.data
        self.layout, self.recipe = lay_out(policy), recipe_of(config)
        names = told(config, policy)
        self.told, self.told_from = tuple(names), np.array([*names.values()], np.int64)
        self.rows, worlds = memory.rows * memory.num_envs, memory.num_envs
        self.updates = config.n_epochs * -(-self.rows // config.minibatch_size)
        parts = max(1, min(MOST_PARTS, config.minibatch_size // ROWS_PER_PART))
        self.workers = Workers(min(threads, parts, worlds))
        self.pace = Pace(self.workers.threads)
        self._parameters = list(policy.parameters())
        self._normalised = policy.encoder.leaf[0]
        self.head, self.learns = policy.head, isinstance(self._normalised, RunningNorm)
        self._optimizer_state: Any = None
        self._places: list[int] = []
        self._count(agent, parts)
        self._take(worlds, worlds * memory.slots)
        self._lend(agent)
        for entry, kernel in zip((At.FORWARD_LAYER, At.BACKWARD_LAYER), LAYERS[config.activation], strict=True):
            self.frame[entry] = address_of(kernel)
        self.frame[At.WORTH] = address_of(WORTH[self.recipe.reinforce])
        for entry, kernel in PIECES.items():
            self.frame[entry] = address_of(kernel)
        work = 2 * sum(int(row[Layer.INNER] * row[Layer.WIDTH]) for net in self.layout.nets for row in net)
        self.updates_per_call = max(1, int(FLOPS_PER_CALL / (3 * work * config.minibatch_size)))
        self.steps_per_call = max(1, int(FLOPS_PER_CALL / (4 * work * worlds)))

    def attach(self, optimizer: Optimizer) -> None:
        """Find the parameters and their moments; again when the state was exchanged, as loading does."""
        state, places = optimizer.state, [p.data_ptr() for p in self._parameters]
        if state is self._optimizer_state and places == self._places:
            return
        first = state[self._parameters[0]]
        self.settings[Setting.STEP] = float(first["step"]) if first else 0.0
        # equal numbers, so one memory for all of them
        self._counters = torch.full((len(self._parameters),), float(self.settings[Setting.STEP]))
        for parameter, step in zip(self._parameters, self._counters, strict=True):
            own = state[parameter]
            if not own:
                own["exp_avg"], own["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            own["step"] = step
        self._keep("TENSOR_TABLE", self.layout.tensors(state))
        self.group = group = optimizer.param_groups[0]
        self.settings[Setting.BETA_1], self.settings[Setting.BETA_2] = group["betas"]
        self.settings[Setting.EPSILON], self.settings[Setting.DECAY] = group["eps"], group["weight_decay"]
        self._optimizer_state, self._places = state, places

    def fetch(self) -> None:
        """Torch's parameters and statistics as they are now."""
        if self.learns:
            centre, scale, _ = normalisation(self._normalised, len(self._normalised.mean))
            self._centre.copy_(centre)
            self._scale.copy_(scale)
        nets.fetch_parameters(self.address)
        for net in range(len(self.layout.nets)):
            nets.turn(self.address, net)

    def give(self) -> None:
        """Parameters, moments and the count of steps back to torch."""
        nets.give_parameters(self.address)
        self._counters.fill_(float(self.settings[Setting.STEP]))

    def run(self, job: Job) -> None:
        """The job once on each of the threads this iteration takes."""
        self._arrivals[0] = 0  # the barrier counts anew, for this number of threads
        self.workers.run(job, int(self.frame[At.THREADS]))

    def _keep(self, name: str, memory: np.ndarray | Tensor) -> None:
        """Hold on to memory and note where it is."""
        self._held[name] = memory
        self.frame[At[name]] = memory.data_ptr() if isinstance(memory, Tensor) else memory.ctypes.data

    def _count(self, agent: Any, parts: int) -> None:
        """Counts and switches."""
        config, policy, memory, layout = agent.config, agent.policy, agent.memory, self.layout
        features, actions = policy.encoder.size, policy.head.linear.out_features
        scratch = LANES + TILE * (features + layout.hidden + 5 * actions + 7 + 2 * layout.widest)
        counts = {
            At.THREADS: self.workers.threads,
            At.STEPS: memory.rows,
            At.WORLDS: memory.num_envs,
            At.SLOTS: memory.slots,
            At.FEATURES: features,
            At.OBS_WIDTH: 0 if isinstance(policy.encoder.leaf[0], OneHot) else features,
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
            At.SCRATCH_SIZE: -(-scratch // LANES) * LANES,
        }
        for entry, count in counts.items():
            self.frame[entry] = int(count)

    def _take(self, worlds: int, finals: int) -> None:
        """Memory of our own, zero."""
        rows, size, frame = self.rows, self.layout.size, self.frame
        parts, threads, epochs = int(frame[At.PARTS]), int(frame[At.THREADS]), int(frame[At.EPOCHS])
        singles = {"LOG_PROB": rows, "VALUE": rows + worlds, "FINAL_VALUE": finals, "WEIGHT": rows, "TARGET": rows}
        singles |= dict.fromkeys(("PARAMETERS", "FIRST_MOMENT", "SECOND_MOMENT", "GRADIENT"), size)
        singles |= {"TURNED": self.layout.turned, "PARTIAL": parts * size, "LANES": parts * SUMS * TILE}
        for name, count in singles.items():
            self._keep(name, aligned(count))
        scratch = aligned(threads * int(frame[At.SCRATCH_SIZE]))
        scratch.reshape(threads, -1)[:, 0] = 1.0
        self.settings, self.stats = np.full(SETTINGS, math.inf), np.zeros(STATS)
        self._arrivals = np.zeros(LANES, np.int64)
        for name, array in {
            "SCRATCH": scratch,
            "SETTINGS": self.settings,
            "STATS": self.stats,
            "COUNTED": np.ones(rows, np.float32),
            "ORDER": np.zeros(epochs * rows, np.int32),
            "SPARE": np.zeros(threads * 3 * rows, np.int32),
            "NET_TABLE": self.layout.nets,
            "SEGMENT_TABLE": self.layout.segments,
            "SQUARES": np.zeros(len(self.layout.segments)),
            "MOMENTS": np.zeros((parts, MOMENTS)),
            "BARRIER": self._arrivals,
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
        centre, scale, bound = normalisation(self._normalised, policy.encoder.size)
        self._centre, self._scale = centre.clone(), scale.clone()
        self._keep("CENTRE", self._centre)
        self._keep("SCALE", self._scale)
        self.settings[Setting.BOUND] = bound


def aligned(count: int) -> np.ndarray:
    """float32 zeros that begin on a cache line."""
    raw = np.zeros(count + LANES, np.float32)
    skip = -raw.ctypes.data % (4 * LANES) // 4
    return raw[skip : skip + count]
