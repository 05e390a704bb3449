"""One agent that learns from a replay memory, as the kernels find it.

Its parameters, targets and moments are views of flat buffers from the first call on: an update per env step would pay
for copies. A checkpoint holds them one by one.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from agents.engines.fused_cpu import dqn_gradient, nets, replay_update, sac_gradient
from agents.engines.fused_cpu.bound import FLOPS_PER_CALL, Bound, aligned
from agents.engines.fused_cpu.frame import SUMS, TILE, At, Layer, Setting
from agents.engines.fused_cpu.layout import Replayed, lay_out_q, lay_out_twins
from agents.engines.fused_cpu.recipes import main_leaf
from config.schema import DQNConfig

PARTS, ROWS_PER_PART = (2, 8), 128  # partial gradients of a minibatch, at least and at most
TRY_THREADS_EVERY = 1024  # iterations: they may be of a single update
COLUMNS = 5  # of a sample's numbers, beside its slopes at the actions
OWN = {
    At.TO_INPUTS: nets.to_inputs,
    At.LEARN: replay_update.learn,
}
GRADIENTS = {"dqn": dqn_gradient.q_gradient, "sac": sac_gradient.sac_gradient}
ACTORS = {"dqn": dqn_gradient.act_by_value, "sac": sac_gradient.act_squashed}


class Sizes(NamedTuple):
    """What DQN and SAC differ in, in numbers."""

    layout: Replayed
    encoder: Any
    actions: int
    inputs: int  # of the widest net
    outputs: int
    passes: int  # products of batch x net in an update


def sizes_of(agent: Any) -> Sizes:
    """Those of a DQN or SAC agent."""
    if isinstance(agent.config, DQNConfig):
        network = agent.policy.network
        layout, actions = lay_out_q(network, agent.target), network.actions
        passes = 5 if agent.config.double_q else 4
        return Sizes(layout, network.encoder, actions, network.encoder.size, actions + 1, passes)
    layout = lay_out_twins(agent.policy, agent.critics, agent.target, agent.log_alpha)
    encoder, actions = agent.policy.encoder, agent.policy.draws
    return Sizes(layout, encoder, actions, encoder.size + actions, 2 * actions, 16)


class ReplayBinding(Bound):
    """The frame of a DQN or SAC agent and everything it points to."""

    def __init__(self, agent: Any, threads: int) -> None:
        config = agent.config
        layout, encoder, actions, inputs, outputs, passes = sizes_of(agent)
        parts = max(PARTS[0], min(PARTS[1], config.batch_size // ROWS_PER_PART))
        super().__init__(min(threads, parts), encoder, TRY_THREADS_EVERY)
        self.layout, self._drawn = layout, 0
        self.parameters = [place.parameter for place in layout.places[: layout.learnt]]
        self._count({
            At.THREADS: self.workers.threads,
            At.WORLDS: agent.memory.num_envs,
            At.ROW: inputs,
            At.OUTPUTS: outputs,
            At.ACTIONS: actions,
            At.NETS: len(layout.nets),
            At.MOVING: len(layout.nets) if layout.follows else 1,
            At.LAYERS: layout.nets.shape[1] - 1,
            At.MINIBATCH: config.batch_size,
            At.PARTS: parts,
            At.SIZE: layout.size,
            At.SEGMENTS: len(layout.segments),
            At.DECOUPLED: config.optimizer == "adamw",
            At.HIDDEN_SIZE: layout.hidden,
            At.WIDEST: layout.widest,
            At.FOLLOWS: layout.follows,
            At.LEARNT_ALPHA: layout.log_alpha >= 0,
            At.LOG_ALPHA: max(layout.log_alpha, 0),
        })  # fmt: skip
        # as tile_of says: two rows of inputs, three nets' activations, two of slopes, columns
        columns = outputs + COLUMNS + 2 * actions
        self._scratch(TILE * (2 * inputs + 3 * layout.hidden + 2 * layout.widest + columns))
        flat = {"PARAMETERS": layout.whole, "FIRST_MOMENT": layout.size, "SECOND_MOMENT": layout.size}
        ours = {"GRADIENT": layout.size, "PARTIAL": parts * layout.size, "TURNED": layout.turned}
        for name, count in {**flat, **ours, "LANES": parts * SUMS * TILE}.items():
            self._keep(name, aligned(count))
        self._flat = {name: torch.from_numpy(self._held[name]) for name in flat}
        self._keep("NET_TABLE", layout.nets)
        self._keep("SEGMENT_TABLE", layout.segments)
        self._keep("SQUARES", np.zeros(len(layout.segments)))
        self._keep("POISONED", agent.poisoned)
        table = agent.memory.table
        self._keep("OBS", main_leaf(table.obs))
        self._keep("FINAL_OBS", main_leaf(agent.memory.final.obs))
        self._keep("RING_REWARD", table.reward)
        for name in ("action", "terminated", "truncated", "slot"):
            self._keep(name.upper(), getattr(table, name))
        gradient, actor = GRADIENTS[config.algo_id], ACTORS[config.algo_id]
        self._point(config.activation, {**OWN, At.GRADIENT_PART: gradient, At.SAMPLE: actor})
        work = 2 * sum(int(row[Layer.INNER] * row[Layer.WIDTH]) for row in layout.nets[0])
        self.updates_per_call = max(1, int(FLOPS_PER_CALL / (passes * work * config.batch_size)))
        self.steps_per_call = max(1, int(FLOPS_PER_CALL / (4 * work * agent.memory.num_envs)))

    def attach(self, optimizer: Optimizer) -> None:
        """Make parameters and moments views of our memory; again when somebody has given them other memory."""
        state, places = optimizer.state, [place.parameter.data_ptr() for place in self.layout.places]
        if state is self._optimizer_state and places == self._places:
            return
        self._know(optimizer, state[self.parameters[0]])
        for place in self.layout.places:
            place.parameter.data = _moved(place.parameter.data, place.view(self._flat["PARAMETERS"]))
        for place in self.layout.places[: self.layout.learnt]:
            own = state[place.parameter]
            for name, flat in (("exp_avg", "FIRST_MOMENT"), ("exp_avg_sq", "SECOND_MOMENT")):
                view = place.view(self._flat[flat])
                own[name] = _moved(own[name], view) if name in own else view.zero_()
        self._count_steps(self.parameters, state)
        self._optimizer_state = state
        self._places = [place.parameter.data_ptr() for place in self.layout.places]

    def fetch(self) -> None:
        """The encoder's statistics, and for whoever plays the transposes of the net that acts."""
        self.look()
        nets.turn(self.address, 0, 0, 1)

    def note_steps(self) -> None:
        """The optimizer's count of steps, as the kernels left it."""
        self._counters.fill_(float(self.settings[Setting.STEP]))

    def draws(self, memory: Any, updates: int, span: int, gamma: float) -> Iterator[int]:
        """Draw the transitions of so many updates, in the pieces that the memory draws; how many updates each holds."""
        self._keep("POWERS", gamma ** torch.arange(span + 1))
        self.frame[At.SPAN] = span
        size = int(self.frame[At.MINIBATCH])
        memory.check_slots()
        for count in memory.pieces(updates, size):
            self._take(count * size)
            self._keep("UNIFORMS", memory.next_uniforms(count * size))
            replay_update.draw(self.address, memory.written, memory.rows)
            yield count

    def lend_noise(self, noise: Tensor) -> None:
        """Standard normals of the updates of a piece."""
        self._keep("NOISE", noise)

    def _take(self, count: int) -> None:
        """Room for so many transitions."""
        self.frame[At.DRAWN] = count
        if count > self._drawn:
            self._drawn = count
            for name in ("PLACE", "FOLLOWING"):
                self._keep(name, np.zeros(count, np.int32))
            for name in ("REWARD", "DISCOUNT"):
                self._keep(name, aligned(count))


def _moved(values: Tensor, view: Tensor) -> Tensor:
    """`view`, with these values in it."""
    return view if values.data_ptr() == view.data_ptr() else view.copy_(values)
