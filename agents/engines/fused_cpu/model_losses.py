"""A world model's losses by kernels, as nodes of torch's graph with gradients from their forward pass.

`ReplayLosses.losses` replaces an agent's `recall_loss`, which learns from remembered sequences. `DreamLosses.losses`
replaces Dreamer's `behaviour_loss`: imagination, and the losses of actor and critic. Each object belongs to one agent;
results do not depend on the number of threads. Letters for shapes are those of kernels/model_tables.py.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from stride.agents.dreamer import Dreamer
from stride.agents.engines.fused_cpu.kernels import model_dream, model_recall
from stride.agents.engines.fused_cpu.kernels.address_table import Value
from stride.agents.engines.fused_cpu.kernels.calls import CompiledKernel
from stride.agents.engines.fused_cpu.kernels.model_tables import LOSSES, DreamTable, RecallTable, dream_scratch
from stride.agents.engines.fused_cpu.kernels.vectors import BYTES
from stride.agents.engines.fused_cpu.model_nets import (
    KernelNet,
    KernelPool,
    NetPass,
    net_pass,
    scaled,
    weight_gradients,
)
from stride.agents.engines.fused_cpu.model_scan import letter_sizes, model_table, scan
from stride.agents.engines.plan.layout import LANES
from stride.agents.experience.nouns import Sequences
from stride.agents.model_learning import ModelLoss
from stride.agents.networks.layers import Context
from stride.agents.networks.senses import distance
from stride.agents.networks.world_model import DenseCell, State
from stride.agents.planet import PlaNet
from stride.utils.counter_rng import normal

KERNELS: tuple[CompiledKernel, ...] = (
    model_dream.imagine, model_dream.learn, model_recall.critic_values, model_recall.replay_returns,
    model_recall.state_losses,
)  # fmt: skip


class Observed(NamedTuple):
    """The observed part of a batch that the losses read, besides states and weights."""

    vector: Tensor  # [T, B, numbers] observed vectors
    reward: Tensor  # [T, B]
    ended: Tensor  # [T, B] 1.0 where the episode terminated
    first: Tensor  # [T, B] 1.0 where an episode begins


class ReplayLosses:
    """The losses of a model, and of Dreamer's critic, on remembered sequences."""

    def __init__(self, agent: Dreamer | PlaNet, pool: KernelPool) -> None:
        model = agent.policy.model
        self.agent = agent
        self._pool = pool
        # the nets that learn, by their entry in RecallTable
        self.learning = {
            "prior": KernelNet(model.rssm.prior),
            "goes_on": KernelNet(model.goes_on),
            "reward": KernelNet(model.reward),
        }
        if model.senses.tell_vector:
            self.learning["vector"] = KernelNet(model.senses.tell_vector)
        self._following: dict[str, KernelNet] = {}
        if isinstance(agent, Dreamer):
            self.learning["critic"] = KernelNet(agent.policy.critic)
            self._following["slow"] = KernelNet(agent.slow)
        nets = [*self.learning.values(), *self._following.values()]
        sizes = agent.policy.sizes
        self._most_outputs = max(net.outputs for net in nets)
        widest = max(net.width for net in nets)
        stoch = sizes.stoch * sizes.classes
        self._vectors = model_recall.scratch_size.py_func(model.features, stoch, self._most_outputs, widest)

    def losses(self, batch: Sequences, u: Tensor) -> ModelLoss:
        """Return what the agent's `recall_loss` returns; u [T, B, S] are uniform numbers that sample the states."""
        agent = self.agent
        model = self.agent.policy.model
        live = agent.live
        begins = batch.is_first.clone()
        begins[0] = True
        sensed = model.senses.look(batch.obs)
        actions = agent.policy.actions(batch.action)
        states, log_probs = scan(self._pool, model.rssm, model.senses(sensed), actions, begins, u)
        observed = Observed(sensed.vector, batch.reward, batch.terminated.float(), batch.is_first.float())
        weights = [weight for net in self.learning.values() for weight in net.weights]
        loss, sums, ends = apply_replay(self, observed, *states, log_probs, *weights)
        totals = dict(zip(LOSSES, sums, strict=True))
        summands = {
            "observation": totals["observation_loss"],
            "reward": totals["reward_loss"],
            "going_on": totals["going_on_loss"],
            "prior": live.prior_coef * totals["pulled"],
            "posterior": live.posterior_coef * totals["pulled"],
        }
        metrics = {"train/model/kl": totals["divergence"]}
        if sensed.images:
            pictures = (
                live.observation_coef * distance(model.senses.decoded(states.features, sensed.vector), sensed).mean()
            )
            loss = loss + pictures
            summands["observation"] = summands["observation"] + pictures
        if "critic" in self.learning:
            summands["replay_value"] = totals["replay_loss"]
            metrics["train/return/reached"] = totals["reached"] / totals["critic_weight"].clamp(min=1)
        return ModelLoss(states, loss, summands, metrics, ends)

    def run(self, observed: Observed, state: State, log_probs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Run the kernels; return losses and metrics [LOSSES, N] and a list of gradients.

        The gradients are those of deter, stoch, log-probabilities, then of the nets' weights.
        """
        agent = self.agent
        pool = self._pool
        live = agent.live
        model = agent.policy.model
        steps, sequences = log_probs.shape[:2]
        rows = steps * sequences
        bins = agent.policy.sizes.bins
        observed_size = observed.vector.shape[-1]
        features = torch.cat(state, -1).view(rows, model.features)
        passes = {
            name: net_pass(net, state.deter.flatten(0, 1) if name == "prior" else features)
            for name, net in self.learning.items()
        }
        losses = torch.zeros(len(LOSSES), rows)
        sizes = letter_sizes(agent.policy.sizes, steps, sequences) | {"N": rows, "bins": bins}
        scratch = pool.scratch(self._vectors)
        table = RecallTable(
            sizes, model=model_table(model.rssm), bin_values=model.two_hot.bins, steps=steps, sequences=sequences,
            threads=pool.threads, observed_size=observed_size, bins=bins, most_outputs=self._most_outputs,
            state_weight=1 / rows,
            free_nats=live.free_nats, prior_coef=live.prior_coef, posterior_coef=live.posterior_coef,
            observation_coef=live.observation_coef, end_weight=live.end_weight,
            log_end_weight=math.log(live.end_weight), features=features, log_probs=log_probs,
            observed=observed.vector.contiguous(), rewards=observed.reward.contiguous(), ended=observed.ended,
            first=observed.first, scratch=scratch, scratch_size=4 * scratch.shape[1],
            **dict(zip(LOSSES, losses, strict=True)), **{name: passes[name].table() for name in passes},
        )  # fmt: skip
        if isinstance(agent, Dreamer):
            table.fill(
                slow=self._following["slow"].table(rows), gamma=live.gamma, slow_coef=live.slow_coef,
                return_lambda=live.return_lambda, replay_weight=live.replay_value_coef / (rows - sequences),
            )  # fmt: skip
            pool.run(model_recall.critic_values, table)
            table.check("replay_returns")
            model_recall.replay_returns(table.address)
        pool.run(model_recall.state_losses, table)
        slopes = [table[name] for name in ("deter_slopes", "stoch_slopes", "log_prob_slopes")]
        return losses, [*slopes, *weight_gradients(pool, passes.values())]


class _Context(Context, Protocol):
    gradients: list[Tensor]
    actor_count: int  # how many of the gradients belong to the actor


class Replay(torch.autograd.Function):
    """A node of torch's graph: the loss, the sums of LOSSES over all states, the probabilities of ends [T, B]."""

    @staticmethod
    def forward(
        ctx: _Context, replay: ReplayLosses, observed: Observed, deter: Tensor, stoch: Tensor, log_probs: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        losses, ctx.gradients = replay.run(observed, State(deter, stoch), log_probs)
        sums = losses.sum(1)
        totals = dict(zip(LOSSES, sums, strict=True))
        ends = losses[LOSSES.index("end_chance")].view(observed.reward.shape)
        live = replay.agent.live
        loss = sums[: LOSSES.index("pulled")].sum() + (live.prior_coef + live.posterior_coef) * totals["pulled"]
        loss = loss + totals["replay_loss"]
        ctx.mark_non_differentiable(sums, ends)
        return loss, sums, ends

    @staticmethod
    def backward(ctx: _Context, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        # the node drops its gradients, so that torch can use these tensors as the weights' .grad without copies
        gradients, ctx.gradients = ctx.gradients, []
        return None, None, *scaled(gradients, slopes[0])


apply_replay: Callable[..., tuple[Tensor, ...]] = Replay.apply


class DreamStart(NamedTuple):
    """The states that imagination starts from, and its random numbers, as in Dreamer.behaviour_loss."""

    state: State
    alive: Tensor  # [K] 1.0, or 0.0 where the episode is over
    prior_uniforms: Tensor  # [H, K, S]
    action_draws: Tensor  # [H, K, numbers]


class Imagined(NamedTuple):
    """Imagined steps from K starts (padded to a multiple of 16), their returns, and the passes of actor and critic."""

    table: DreamTable
    passes: list[NetPass]


class DreamLosses:
    """Dreamer's losses on imagined steps. Lanes that pad K to a multiple of 16 repeat the first start; weight 0."""

    def __init__(self, agent: Dreamer, pool: KernelPool) -> None:
        policy = agent.policy
        model = agent.policy.model
        cell = model.rssm.cell
        sizes = policy.sizes
        assert isinstance(cell, DenseCell)
        self.agent = agent
        self._pool = pool
        self.actor = KernelNet(policy.torso, policy.head)
        self.critic = KernelNet(policy.critic)
        self._nets = {
            "prior": KernelNet(model.rssm.prior),
            "slow": KernelNet(agent.slow),
            "last": KernelNet(policy.critic),
            "reward": KernelNet(model.reward),
            "goes_on": KernelNet(model.goes_on),
        }
        nets = [self.actor, self.critic, *self._nets.values()]
        widest = max(net.width for net in nets)
        most_outputs = max(net.outputs for net in nets)
        encoded = policy.actions.size
        stoch = sizes.stoch * sizes.classes
        scratch = dream_scratch.py_func(0, sizes.deter, sizes.width, stoch, encoded, widest, most_outputs)
        self._vectors = max(scratch.end // BYTES, model_dream.learn_scratch_size.py_func(most_outputs, widest))
        self._options = np.array(policy.actions.options, np.int64)
        self._settings: dict[str, Value] = {
            "from_action": cell.from_action.weight, "options": self._options.ctypes.data, "encoded": encoded,
            "choices": len(self._options), "bins": sizes.bins, "widest": widest, "most_outputs": most_outputs,
        }  # fmt: skip

    def losses(
        self, start: State, alive: Tensor, prior_uniforms: Tensor, action_draws: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return what Dreamer.behaviour_loss returns: losses, and metrics."""
        dream = DreamStart(start, alive, prior_uniforms, action_draws)
        policy, critic, mean, entropy = apply_dream(self, dream, *self.actor.weights, *self.critic.weights)
        return {"policy": policy, "critic": critic}, {"train/return/imagined": mean, "train/policy/entropy": entropy}

    def imagine(self, start: DreamStart) -> Imagined:
        """Imagine all steps, and compute their returns."""
        agent = self.agent
        pool = self._pool
        live = agent.live
        model = agent.policy.model
        steps, starts = start.prior_uniforms.shape[:2]
        count = -(-starts // LANES) * LANES  # starts, rounded up to a multiple of 16
        choices = len(self._options)
        action_draws = filled(start.action_draws if choices else normal(start.action_draws), count, 1)
        alive = filled(start.alive, count, 0)
        alive[starts:] = 0
        features = torch.empty(steps + 1, count, model.features)
        torch.cat([filled(part, count, 0) for part in start.state], -1, out=features[0])
        inputs = features[:-1].flatten(0, 1)
        actor = net_pass(self.actor, inputs)
        critic = net_pass(self.critic, inputs)
        sizes = {
            "H": steps, "H+1": steps + 1, "K": count, "outputs": self.actor.outputs, "bins": self.critic.outputs,
        }  # fmt: skip
        scratch = pool.scratch(self._vectors)
        rows = steps * count
        table = DreamTable(
            sizes, model=model_table(model.rssm), actor=actor.table(), critic=critic.table(),
            bin_values=model.two_hot.bins, steps=steps, starts=count, threads=pool.threads, gamma=live.gamma,
            return_lambda=live.return_lambda, slow_coef=live.slow_coef, ent_coef=live.ent_coef,
            weight=1 / (steps * starts), features=features,
            actions=torch.empty(action_draws.shape, dtype=torch.int64 if choices else torch.float32),
            prior_uniforms=filled(start.prior_uniforms, count, 1).contiguous(),
            action_draws=action_draws.contiguous(), alive=alive.contiguous(), scratch=scratch,
            scratch_size=4 * scratch.shape[1], **self._settings,
            **{name: net.table(rows) for name, net in self._nets.items()},
        )  # fmt: skip
        pool.run(model_dream.imagine, table)
        return Imagined(table, [actor, critic])

    def learn(self, imagined: Imagined, span: float) -> list[Tensor]:
        """Return the gradients of actor and critic; write their losses to the table.

        `span`: the range of the returns, by which advantages are divided.
        """
        imagined.table.fill(span=span)
        self._pool.run(model_dream.learn, imagined.table)
        return weight_gradients(self._pool, imagined.passes)


def filled(rows: Tensor, count: int, dim: int) -> Tensor:
    """Return a copy with `count` rows along a dimension; missing rows repeat the first one."""
    missing = count - rows.shape[dim]
    shape = list(rows.shape)
    shape[dim] = missing
    return torch.cat((rows, rows.narrow(dim, 0, 1).expand(shape)), dim)


class Dream(torch.autograd.Function):
    """A node of torch's graph: losses of actor and critic, and two metrics: mean return and entropy."""

    @staticmethod
    def forward(ctx: _Context, dream: DreamLosses, start: DreamStart, *weights: Tensor) -> tuple[Tensor, ...]:
        starts = len(start.alive)
        imagined = dream.imagine(start)
        table = imagined.table
        returns = table["returns"][:, :starts]
        span = dream.agent.range.learn(returns, dream.agent.live.return_rate)
        ctx.gradients = dream.learn(imagined, float(span))
        ctx.actor_count = len(dream.actor.weights)
        mean = (start.alive * returns[0]).sum() / start.alive.sum().clamp(min=1)
        entropy = table["entropy"][:, :starts].mean()
        ctx.mark_non_differentiable(mean, entropy)
        return table["policy_loss"].sum(), table["critic_loss"].sum(), mean, entropy

    @staticmethod
    def backward(ctx: _Context, policy: Tensor, critic: Tensor, *metrics: Tensor) -> tuple[Tensor | None, ...]:
        # the node drops its gradients, so that torch can use these tensors as the weights' .grad without copies
        gradients, ctx.gradients = ctx.gradients, []
        actor = ctx.actor_count
        return None, None, *scaled(gradients[:actor], policy), *scaled(gradients[actor:], critic)


apply_dream: Callable[..., tuple[Tensor, ...]] = Dream.apply
