"""A Dreamer's behaviour by kernels: imagination, and gradients of actor and critic, as one node of torch's graph."""

from collections.abc import Callable
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from stride.agents.dreamer import Dreamer
from stride.agents.engines.fused_cpu.kernels import model_behaviour, model_imagine
from stride.agents.engines.fused_cpu.kernels.calls import CompiledKernel
from stride.agents.engines.fused_cpu.kernels.model_dream import DREAM, RATES, Dream, Rate, Reader, lay
from stride.agents.engines.fused_cpu.kernels.vectors import BYTES
from stride.agents.engines.fused_cpu.model_nets import Crew, Net, Way, answers_of, fill, gradients, scaled, way
from stride.agents.engines.fused_cpu.model_scan import Job, weights_of
from stride.agents.engines.plan.layout import LANES
from stride.agents.networks.autograd import Context
from stride.agents.networks.world_model import DenseCell, State
from stride.utils.counter_rng import normal

CALLED: tuple[CompiledKernel, ...] = (model_imagine.imagine, model_behaviour.learn)
LEARNT = (Reader.ACTOR, Reader.CRITIC)
NUMBERS = (
    Dream.OF_SLOW, Dream.PAID, Dream.DISCOUNT, Dream.RETURN, Dream.WEIGHT, Dream.POLICY_LOSS, Dream.CRITIC_LOSS,
    Dream.SPREAD,
)  # fmt: skip


class Start(NamedTuple):
    """What is imagined from, and all that is random in it; as in Dreamer.behaviour_loss."""

    state: State
    alive: Tensor
    of_guess: Tensor
    of_action: Tensor


class Dreamt(NamedTuple):
    """All of an imagination, K starts in whole lanes."""

    memory: dict[Dream, Tensor]
    ways: dict[Reader, Way]
    answers: np.ndarray

    @property
    def actions(self) -> Tensor:
        """[H, K, numbers of an action]"""
        return self.memory[Dream.ACTIONS]

    @property
    def features(self) -> Tensor:
        """[H + 1, K, E]"""
        return self.memory[Dream.FEATURES]


class Behaviour:
    """Of one agent, for any number of starts: lanes that are left do what the first one does, and count nothing."""

    def __init__(self, agent: Dreamer, crew: Crew) -> None:
        policy, model = agent.policy, agent.policy.model
        cell, sizes = model.rssm.cell, policy.sizes
        assert isinstance(cell, DenseCell)
        self.agent, self._crew, self._cell = agent, crew, cell
        self._nets = {
            Reader.PRIOR: Net(model.rssm.prior),
            Reader.ACTOR: Net(policy.torso, policy.head),
            Reader.CRITIC: Net(policy.critic),
            Reader.SLOW: Net(agent.slow),
            Reader.LAST: Net(policy.critic),
            Reader.REWARD: Net(model.reward),
            Reader.GOES_ON: Net(model.goes_on),
        }
        self.learnt = [self._nets[reader] for reader in LEARNT]
        self._options, self._rates = np.array(policy.actions.options, np.int64), np.zeros(RATES, np.float32)
        widest, most = (max(sizes) for sizes in zip(*((x.width, x.outputs) for x in self._nets.values()), strict=True))
        stoch, encoded = sizes.stoch * sizes.classes, policy.actions.size
        room = lay.py_func(0, sizes.deter, sizes.width, stoch, encoded, widest, most).end
        self._room = max(room // BYTES, model_behaviour.work_size.py_func(most, widest))
        self._table = np.zeros(DREAM, np.int64)
        fill(self._table, {
            Dream.ENCODED: encoded, Dream.CHOICES: len(self._options),
            Dream.OPTIONS: self._options.ctypes.data, Dream.OUTPUTS: self._nets[Reader.ACTOR].outputs,
            Dream.BINS: sizes.bins, Dream.WIDEST: widest, Dream.MOST: most, Dream.RATES: self._rates.ctypes.data,
        })  # fmt: skip

    def losses(
        self, start: State, alive: Tensor, of_guess: Tensor, of_action: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Dreamer.behaviour_loss."""
        weights = chain.from_iterable(net.weights for net in self.learnt)
        policy, critic, *told = behaving(self, Start(start, alive, of_guess, of_action), *weights)
        names = ("train/return/imagined", "train/policy/entropy")
        return {"policy": policy, "critic": critic}, dict(zip(names, told, strict=True))

    def imagine(self, start: Start) -> Dreamt:
        """Everything up to the returns."""
        agent, (steps, starts) = self.agent, start.of_guess.shape[:2]
        rssm, sizes, whole = agent.policy.model.rssm, agent.policy.sizes, -(-starts // LANES) * LANES
        state, alive, of_guess, draws = start
        if not len(self._options):
            draws = normal(draws)
        if whole > starts:
            state, alive = State(*(filled(part, whole, 0) for part in state)), filled(alive, whole, 0)
            of_guess, draws = filled(of_guess, whole, 1), filled(draws, whole, 1)
            alive[starts:] = 0
        groups = steps * whole // LANES
        memory = {entry: torch.empty(steps, whole) for entry in NUMBERS} | {
            Dream.OF_GUESS: of_guess.contiguous(),
            Dream.OF_ACTION: draws.contiguous(),
            Dream.ALIVE: alive.contiguous(),
            Dream.FEATURES: torch.empty(steps + 1, whole, agent.policy.model.features),
            Dream.ACTIONS: torch.empty(draws.shape, dtype=torch.int64 if len(self._options) else torch.float32),
            Dream.OF_ACTOR: torch.empty(groups, self._nets[Reader.ACTOR].outputs, LANES),
            Dream.OF_CRITIC: torch.empty(groups, sizes.bins, LANES),
            Dream.VALUE: torch.empty(steps + 1, whole),
        }
        torch.cat(state, -1, out=memory[Dream.FEATURES][0])
        here = memory[Dream.FEATURES][:-1].flatten(0, 1)
        ways = {reader: way(self._nets[reader], here) for reader in LEARNT}
        config, live, share = agent.config, agent.live, 1 / (steps * starts)
        self._rates[: Rate.SPAN] = live.gamma, config.return_lambda, config.slow_coef, live.ent_coef, share
        model = Job(self._crew, sizes, rssm.unimix).table(weights_of(rssm))
        answers, (scratch, size) = answers_of(len(Reader), self._nets, ways), self._crew.scratch(self._room)
        fill(self._table, memory | {
            Dream.MODEL: model.ctypes.data, Dream.ANSWERS: answers.ctypes.data, Dream.STEPS: steps,
            Dream.STARTS: whole, Dream.THREADS: self._crew.threads, Dream.FROM_ACTION: self._cell.from_action.weight,
            Dream.VALUES: agent.policy.model.two_hot.bins, Dream.SCRATCH: scratch, Dream.SCRATCH_SIZE: size,
        })  # fmt: skip
        self._crew.run(model_imagine.imagine, self._table)
        return Dreamt(memory, ways, answers)

    def learn(self, dreamt: Dreamt, span: float) -> list[Tensor]:
        """Gradients of actor and critic, of the losses that are left in what was dreamt just now."""
        self._rates[Rate.SPAN] = span
        self._crew.run(model_behaviour.learn, self._table)
        return gradients(self._crew, dreamt.ways.values())


def filled(rows: Tensor, count: int, along: int) -> Tensor:
    """So many rows: the first one again where some are missing."""
    missing = count - rows.shape[along]
    return torch.cat(
        (rows, rows.narrow(along, 0, 1).expand(*rows.shape[:along], missing, *rows.shape[along + 1 :])), along
    )


class _Behaved(Context, Protocol):
    found: list[Tensor]
    actors: int


class Behaving(torch.autograd.Function):
    """Losses of actor and critic, the mean return and entropy; gradients are made on the way there."""

    @staticmethod
    def forward(ctx: _Behaved, behaviour: Behaviour, start: Start, *weights: Tensor) -> tuple[Tensor, ...]:
        starts, dreamt = len(start.alive), behaviour.imagine(start)
        returns = dreamt.memory[Dream.RETURN][:, :starts]
        ctx.found = behaviour.learn(dreamt, float(behaviour.agent.range.learn(returns)))
        ctx.actors = len(behaviour.learnt[0].weights)
        policy, critic = (dreamt.memory[entry].sum() for entry in (Dream.POLICY_LOSS, Dream.CRITIC_LOSS))
        mean = (start.alive * returns[0]).sum() / start.alive.sum().clamp(min=1)
        entropy = dreamt.memory[Dream.SPREAD][:, :starts].mean()
        ctx.mark_non_differentiable(mean, entropy)
        return policy, critic, mean, entropy

    @staticmethod
    def backward(ctx: _Behaved, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        of_policy, of_critic, *_ = slopes
        found, ctx.found = ctx.found, []  # nobody else has them: they become the weights' own
        return None, None, *scaled(found[: ctx.actors], of_policy), *scaled(found[ctx.actors :], of_critic)


behaving: Callable[..., tuple[Tensor, ...]] = Behaving.apply
