"""What an agent learns from remembered sequences by kernels: its losses behind the scan as one node of a graph."""

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from stride.agents.dreamer import Dreamer
from stride.agents.engines.fused_cpu.kernels import model_recall
from stride.agents.engines.fused_cpu.kernels.calls import CompiledKernel
from stride.agents.engines.fused_cpu.kernels.model_memory import RECALL, WEIGHS, Recall, Teller, Told, Weigh
from stride.agents.engines.fused_cpu.model_nets import Crew, Net, answers_of, fill, gradients, scaled, way
from stride.agents.engines.fused_cpu.model_scan import Job, scanned
from stride.agents.experience.nouns import Sequences
from stride.agents.model_learning import ModelLoss
from stride.agents.networks.autograd import Context
from stride.agents.networks.senses import distance
from stride.agents.networks.world_model import State
from stride.agents.planet import PlaNet

CALLED: tuple[CompiledKernel, ...] = (model_recall.value, model_recall.look_back, model_recall.tell)


class Given(NamedTuple):
    """What losses hang on beside states and weights."""

    vector: Tensor
    """[T, B, K] as it was seen"""
    reward: Tensor
    ended: Tensor
    first: Tensor


class Recollection:
    """Of one agent."""

    def __init__(self, agent: Dreamer | PlaNet, crew: Crew) -> None:
        model, self.agent, self._crew = agent.policy.model, agent, crew
        nets: dict[Teller, Net] = {
            Teller.PRIOR: Net(model.rssm.prior),
            Teller.GOES_ON: Net(model.goes_on),
            Teller.REWARD: Net(model.reward),
        }
        if model.senses.tell_vector:
            nets[Teller.VECTOR] = Net(model.senses.tell_vector)
        self.learnt = dict(nets)
        if isinstance(agent, Dreamer):
            self.learnt[Teller.CRITIC] = nets[Teller.CRITIC] = Net(agent.policy.critic)
            nets[Teller.SLOW] = Net(agent.slow)
        self._nets, self._weighs = nets, np.zeros(WEIGHS, np.float32)
        sizes, self._most = agent.policy.sizes, max(net.outputs for net in nets.values())
        stoch, widest = sizes.stoch * sizes.classes, max(net.width for net in nets.values())
        self._room = model_recall.room.py_func(model.features, stoch, self._most, widest)

    def losses(self, batch: Sequences, u: Tensor) -> ModelLoss:
        """`recall_loss`."""
        agent, model = self.agent, self.agent.policy.model
        config, sizes = agent.config, agent.policy.sizes
        begins = batch.is_first.clone()
        begins[0] = True
        seen = model.senses.look(batch.obs)
        job = Job(self._crew, sizes, model.rssm.unimix)
        states, log_probs = scanned(job, model.rssm, model.senses(seen), agent.policy.actions(batch.action), begins, u)
        given = Given(seen.vector, batch.reward, batch.terminated.float(), batch.is_first.float())
        weights = [weight for net in self.learnt.values() for weight in net.weights]
        loss, told, ends = telling(self, job, given, *states, log_probs, *weights)
        parts = {
            "observation": told[Told.OBSERVATION],
            "reward": told[Told.REWARD],
            "going_on": told[Told.GOING_ON],
            "prior": config.prior_coef * told[Told.PULLED],
            "posterior": config.posterior_coef * told[Told.PULLED],
        }
        metrics = {"train/model/kl": told[Told.KL]}
        if seen.images:
            nats = config.observation_coef * distance(model.senses.told(states.features, seen.vector), seen).mean()
            loss, parts["observation"] = loss + nats, parts["observation"] + nats
        if Teller.CRITIC in self.learnt:
            parts["replay_value"] = told[Told.REPLAY]
            metrics["train/return/reached"] = told[Told.REACHED] / told[Told.WEIGHT].clamp(min=1)
        return ModelLoss(states, loss, parts, metrics, ends)

    def tell(self, job: Job, given: Given, state: State, log_probs: Tensor) -> "Answers":
        """Losses, slopes and gradients."""
        agent, (steps, sequences, features) = self.agent, (*log_probs.shape[:2], self.agent.policy.model.features)
        config, sizes, rows = agent.config, agent.policy.sizes, steps * sequences
        x = torch.cat(state, -1).view(rows, features)
        deter = state.deter.flatten(0, 1)
        ways = {teller: way(net, deter if teller == Teller.PRIOR else x) for teller, net in self.learnt.items()}
        self._weighs[: Weigh.GAMMA] = (
            1 / rows, config.free_nats, config.prior_coef, config.posterior_coef, config.observation_coef,
            config.end_weight, math.log(config.end_weight),
        )  # fmt: skip
        told, like = torch.zeros(len(Told), rows), State(*map(torch.empty_like, state))
        memory = {
            Recall.FEATURES: x, Recall.LOG_PROBS: log_probs, Recall.VECTOR: given.vector.contiguous(),
            Recall.REWARD: given.reward.contiguous(), Recall.ENDED: given.ended, Recall.FIRST: given.first,
            Recall.TOLD: told, Recall.SLOPE_DETER: like.deter, Recall.SLOPE_STOCH: like.stoch,
            Recall.SLOPE_LOG_PROBS: torch.empty_like(log_probs),
        }  # fmt: skip
        model, answers = job.table(), answers_of(len(Teller), self._nets, ways)
        scratch, size = self._crew.scratch(self._room)
        table = fill(np.zeros(RECALL, np.int64), memory | {
            Recall.MODEL: model.ctypes.data, Recall.ANSWERS: answers.ctypes.data, Recall.STEPS: steps,
            Recall.SEQUENCES: sequences, Recall.THREADS: self._crew.threads, Recall.BINS: sizes.bins,
            Recall.SEEN: given.vector.shape[-1], Recall.VALUES: agent.policy.model.two_hot.bins,
            Recall.MOST: self._most, Recall.WEIGHS: self._weighs.ctypes.data, Recall.SCRATCH: scratch,
            Recall.SCRATCH_SIZE: size,
        })  # fmt: skip
        if isinstance(agent, Dreamer):
            own, live = agent.config, agent.live
            replay = own.replay_value_coef / (rows - sequences)
            self._weighs[Weigh.GAMMA :] = live.gamma, own.return_lambda, own.slow_coef, replay
            known = {entry: torch.empty(rows) for entry in (Recall.VALUE, Recall.OF_SLOW, Recall.TARGET)}
            known[Recall.OF_CRITIC] = torch.empty(rows, sizes.bins)
            fill(table, known | {Recall.CRITIC: 1})
            self._crew.run(model_recall.value, table)
            model_recall.look_back(table.ctypes.data)
        self._crew.run(model_recall.tell, table)
        slopes = [memory[entry] for entry in (Recall.SLOPE_DETER, Recall.SLOPE_STOCH, Recall.SLOPE_LOG_PROBS)]
        return Answers(told, [*slopes, *gradients(self._crew, ways.values())])


class Answers(NamedTuple):
    """What is told of states [Told, N], and gradients of them and of weights."""

    told: Tensor
    gradients: list[Tensor]


class _Told(Context, Protocol):
    found: list[Tensor]


class Telling(torch.autograd.Function):
    """The loss, the sums of what is told, the chances of ends [T, B]; gradients are made on the way there."""

    @staticmethod
    def forward(
        ctx: _Told, recollection: Recollection, job: Job, given: Given, deter: Tensor, stoch: Tensor, log_probs: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        told, ctx.found = recollection.tell(job, given, State(deter, stoch), log_probs)
        sums, ends = told.sum(1), told[Told.ENDS].view(given.reward.shape)
        config = recollection.agent.config
        loss = sums[: Told.PULLED].sum() + (config.prior_coef + config.posterior_coef) * sums[Told.PULLED]
        loss = loss + sums[Told.REPLAY]
        ctx.mark_non_differentiable(sums, ends)
        return loss, sums, ends

    @staticmethod
    def backward(ctx: _Told, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        found, ctx.found = ctx.found, []  # nobody else has them: they become the weights' own
        return None, None, None, *scaled(found, slopes[0])


telling: Callable[..., tuple[Tensor, ...]] = Telling.apply
