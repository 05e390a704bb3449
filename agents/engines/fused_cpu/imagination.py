"""Dreamer's imagination by kernels: the tables they read, and room of their own for a thread's 16 starts."""

import numpy as np
import torch
from torch import Tensor

from agents.engines.fused_cpu.kernels import model_imagine
from agents.engines.fused_cpu.kernels.calls import address_of
from agents.engines.fused_cpu.kernels.model_imagine import DREAM, Dream, lay
from agents.engines.fused_cpu.model_nets import Net
from agents.engines.fused_cpu.parameters import aligned
from agents.engines.fused_cpu.workers import Workers
from agents.engines.plan.layout import LANES
from agents.networks.dreamer_policy import DreamerPolicy
from agents.networks.world_model import DenseCell, State
from utils.counter_rng import normal


class Imagination:
    """Of one policy, for any number of starts: lanes that are left do what the first one does."""

    def __init__(self, policy: DreamerPolicy, workers: Workers) -> None:
        cell = policy.model.rssm.cell
        assert isinstance(cell, DenseCell)
        self._policy, self._cell, self._workers = policy, cell, workers
        self._prior, self._actor = Net(policy.model.rssm.prior), Net(policy.torso, policy.head)
        self._options = np.array(policy.actions.options, np.int64)
        sizes, widest = policy.sizes, max(self._prior.width, self._actor.width)
        encoded, stoch = policy.actions.size, sizes.stoch * sizes.classes
        room = lay.py_func(0, sizes.deter, sizes.width, stoch, encoded, widest).end
        self._scratch = aligned(workers.threads * room // 4)
        self._table = np.zeros(DREAM, np.int64)
        for entry, value in {
            Dream.PRIOR: self._prior.table.ctypes.data,
            Dream.PRIOR_LAYERS: self._prior.hidden,
            Dream.ACTOR: self._actor.table.ctypes.data,
            Dream.ACTOR_LAYERS: self._actor.hidden,
            Dream.ENCODED: encoded,
            Dream.CHOICES: len(self._options),
            Dream.OPTIONS: self._options.ctypes.data,
            Dream.WIDEST: widest,
            Dream.SCRATCH: self._scratch.ctypes.data,
            Dream.SCRATCH_SIZE: room,
        }.items():
            self._table[entry] = value

    def run(
        self, model: np.ndarray, state: State, of_guess: Tensor, of_action: Tensor, threads: int
    ) -> tuple[Tensor, Tensor]:
        """What Dreamer.imagine answers, by the table of the model's sizes and weights."""
        (steps, starts), several = of_guess.shape[:2], self._policy.actions.several
        whole = -(-starts // LANES) * LANES
        numbers = not len(self._options)
        draws = normal(of_action) if numbers else of_action
        if whole > starts:
            state = State(*(filled(part, whole, 0) for part in state))
            of_guess, draws = filled(of_guess, whole, 1), filled(draws, whole, 1)
        of_guess, draws = of_guess.contiguous(), draws.contiguous()
        features = of_guess.new_empty(steps + 1, whole, self._policy.model.features)
        torch.cat(state, -1, out=features[0])
        actions = draws.new_empty(draws.shape, dtype=torch.float32 if numbers else torch.int64)
        for entry, value in {
            Dream.MODEL: model.ctypes.data,
            Dream.STEPS: steps,
            Dream.STARTS: whole,
            Dream.THREADS: threads,
            Dream.FROM_ACTION: self._cell.from_action.weight.data_ptr(),
            Dream.FEATURES: features.data_ptr(),
            Dream.ACTIONS: actions.data_ptr(),
            Dream.OF_GUESS: of_guess.data_ptr(),
            Dream.OF_ACTION: draws.data_ptr(),
        }.items():
            self._table[entry] = value
        self._prior.find()
        self._actor.find()
        self._workers.run(address_of(model_imagine.imagine), self._table.ctypes.data, threads)
        return features[:, :starts], (actions if numbers or several else actions[..., 0])[:, :starts]


def filled(rows: Tensor, count: int, along: int) -> Tensor:
    """So many rows: the first one again where some are missing."""
    missing = count - rows.shape[along]
    return torch.cat(
        (rows, rows.narrow(along, 0, 1).expand(*rows.shape[:along], missing, *rows.shape[along + 1 :])), along
    )
