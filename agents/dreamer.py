"""Dreamer: a world model from remembered sequences, actor and critic from what it imagines (Hafner et al. 2023)."""

from collections.abc import Mapping
from copy import deepcopy
from math import prod
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from stride.agents.base import Agent
from stride.agents.experience.nouns import Sequences
from stride.agents.model_learning import Ends, ModelLoss, ModelLosses, model_loss
from stride.agents.networks.dreamer_policy import DreamerPolicy
from stride.agents.networks.world_model import State
from stride.agents.off_policy import collect_and_learn, move_towards, replay_size, updates_due
from stride.config.schema import DreamerConfig
from stride.envs_fast.vec_env import VecEnv
from stride.utils.counter_rng import EXPLORE, uniforms

LOW, HIGH = 0.05, 0.95  # the quantiles between which returns are said to range


def arrival_returns(reward: Tensor, discount: Tensor, value: Tensor, lam: float) -> Tensor:
    """R_t = r_t + d_t ((1 - lam) v_t + lam R_t+1), the last with R = v; all [H, ...] and of the state arrived at.

    So R_t is the return of the state before: the reward on arrival, and the discounted return from there.
    """
    immediate = reward + discount * (1 - lam) * value
    weight = lam * discount
    future = value[-1]
    returns = []
    for immediate_t, weight_t in zip(immediate.flip(0), weight.flip(0), strict=True):
        future = torch.addcmul(immediate_t, weight_t, future)
        returns.append(future)
    return torch.stack(returns[::-1])


class ReturnRange(nn.Module):
    """A slow average of the distance between the 5th and the 95th percentile of the returns."""

    value: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("value", torch.zeros(()))

    @torch.no_grad()
    def learn(self, returns: Tensor, rate: float) -> Tensor:
        """Average these returns in, unless one is not finite; -> the number by which advantages are divided."""
        ordered = returns.flatten().sort().values
        low_return, high_return = (ordered[round(quantile * (len(ordered) - 1))] for quantile in (LOW, HIGH))
        all_finite = returns.isfinite().all()
        self.value.lerp_(torch.where(all_finite, high_return - low_return, self.value), rate)
        return self.value.clamp(min=1.0)


class DreamerDraws(NamedTuple):
    """All randomness of an update, as uniforms; K starts, H steps imagined from every start."""

    posterior: Tensor
    """[L, B, S], with `stoch: 0` [L, B, 1]"""
    starts: Tensor
    """[L * B], of which the largest K are taken"""
    guess: Tensor
    """[H, K, S]"""
    action: Tensor
    """[H, K, numbers of an action]"""


class Dreamer(Agent):
    """Steps into a replay memory; one loss for the model, one for what is imagined, one optimizer."""

    config: DreamerConfig
    policy: DreamerPolicy

    def __init__(self, config: DreamerConfig, envs: VecEnv, rank: int = 0) -> None:
        policy = DreamerPolicy(config, envs).to(envs.device)
        size = replay_size(config, envs, keep_terminal=True)
        super().__init__(config, envs, policy, *size, keep_terminal=True, rank=rank, storage=config.replay_storage)
        self.slow = deepcopy(policy.critic).requires_grad_(False)
        self.range = ReturnRange().to(envs.device)
        self.ends = Ends().to(envs.device)
        self.ratio = updates_due(self, config)

    def iteration(self) -> None:
        self.policy.at_random = self.progress["env_steps"] < self.config.learning_starts
        collect_and_learn(self, self.config.train_freq, self.ratio, self.config.batch_length + 1)

    def learn(self, updates: int, losses: "DreamerLosses | None" = None) -> None:
        """Make updates by these losses; an engine passes its own, by default they are this class's, in torch."""
        size, length = self.config.batch_size, self.config.batch_length
        self.metrics.add_all(
            [self.update(self.memory.sequences(size, length), self.draw(), losses) for _ in range(updates)]
        )

    def draw(self) -> DreamerDraws:
        """The draws of the next update, one table for all of them."""
        config = self.config
        recalled, stoch = self.policy.model.rssm.draws, self.policy.sizes.stoch
        rows = (config.batch_length, config.batch_size)
        steps = (config.horizon, config.imagined_starts)
        shapes = ((*rows, recalled), (prod(rows),), (*steps, stoch), (*steps, self.policy.head.draws))
        sizes = [prod(shape) for shape in shapes]
        table = uniforms(self.key(EXPLORE, self.progress["updates"]), (sum(sizes),), self.range.value.device)
        return DreamerDraws(*(piece.view(shape) for piece, shape in zip(table.split(sizes), shapes, strict=True)))

    def update(
        self, batch: Sequences, draws: DreamerDraws, losses: "DreamerLosses | None" = None
    ) -> Mapping[str, Tensor]:
        """One step on everything: the model by what was seen, the behaviour by what is imagined from there."""
        config = self.config
        losses = losses or self
        recalled = losses.recall_loss(batch, draws.posterior)
        start_index = draws.starts.topk(config.imagined_starts).indices
        start = State(*(x.detach().flatten(0, 1)[start_index] for x in recalled.states))
        alive = (~batch.terminated).flatten()[start_index].float()
        behaviour, imagined = losses.behaviour_loss(start, alive, draws.guess, draws.action)
        loss = recalled.loss + behaviour["policy"] + behaviour["critic"]
        gradient_norms = self.descend(losses.optimizer, loss, self.live.max_grad_norm)
        move_towards(self.slow, self.policy.critic, self.live.tau)
        self.metrics.set({**self.ends.learn(recalled.ends, batch.terminated), "train/return/range": self.range.value})
        return {
            **{f"train/loss/{name}": value for name, value in (recalled.parts | behaviour).items()},
            **recalled.metrics,
            **imagined,
            "train/grad_norm/total": gradient_norms.norm(),
        }

    def recall_loss(self, batch: Sequences, u: Tensor) -> ModelLoss:
        """Losses of a batch of remembered sequences: the model's, and the critic's."""
        recalled = model_loss(self.policy, batch, u, self.live)
        replayed, reached = self.replay_loss(batch, recalled.states)
        replayed = self.live.replay_value_coef * replayed
        parts = recalled.parts | {"replay_value": replayed}
        metrics = recalled.metrics | {"train/return/reached": reached}
        return recalled._replace(loss=recalled.loss + replayed, parts=parts, metrics=metrics)

    def behaviour_loss(
        self, start: State, alive: Tensor, of_guess: Tensor, of_action: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Losses of actor and critic, and metrics; `alive` [K] is 0 where there is nothing to do.

        An action is weighted by the chance that the episode still goes on where it is chosen: by `alive` for the
        start, by the model's answer for the states between; never by the consequences of the action itself.
        """
        policy, live, two_hot = self.policy, self.live, self.policy.model.two_hot
        features, actions = self.imagine(start, of_guess, of_action)
        acted_on = features[:-1]
        logits = policy.critic(acted_on)
        with torch.no_grad():
            reward, goes_on = policy.model.expect(features[1:])
            last, slow = two_hot.mean(policy.critic(features[-1:])), two_hot.mean(self.slow(acted_on))
            value = torch.cat((two_hot.mean(logits), last))
            discount = live.gamma * goes_on
            returns = arrival_returns(reward, discount, value[1:], live.return_lambda)
            advantage = (returns - value[:-1]) / self.range.learn(returns, live.return_rate)
            weight = torch.cat((alive[None], alive * discount[:-1].cumprod(0)))
            mean = (alive * returns[0]).sum() / alive.sum().clamp(min=1)
        p = policy.choices(acted_on)
        entropy = policy.head.entropy(p)
        weighted_gain = policy.head.log_prob(p, actions) * advantage + live.ent_coef * entropy
        error = two_hot.loss(logits, returns) + live.slow_coef * two_hot.loss(logits, slow)
        losses = {"policy": -(weight * weighted_gain).mean(), "critic": (weight * error).mean()}
        return losses, {"train/return/imagined": mean, "train/policy/entropy": entropy.mean()}

    @torch.no_grad()
    def imagine(self, state: State, of_guess: Tensor, of_action: Tensor) -> tuple[Tensor, Tensor]:
        """(features [H + 1, K, ..], the actions [H, K, ..] the actor chose at all but the last of them)."""
        policy = self.policy
        features = [state.features]
        actions = []
        for u, action_draws in zip(of_guess, of_action, strict=True):
            actions.append(policy.head.sample(policy.choices(features[-1]), action_draws))
            state = policy.model.rssm.imagine(state, policy.actions(actions[-1]), u)
            features.append(state.features)
        return torch.stack(features), torch.stack(actions)

    def replay_loss(self, batch: Sequences, states: State) -> tuple[Tensor, Tensor]:
        """The critic's loss on remembered sequences, whose gradients reach the model, too, and the mean return."""
        live, two_hot, features = self.live, self.policy.model.two_hot, states.features
        logits = self.policy.critic(features)
        with torch.no_grad():
            value = two_hot.mean(logits)
            slow = two_hot.mean(self.slow(features[:-1].detach()))
            is_last = batch.is_first[1:]  # such an instant has no successor in the batch: its return is its value
            discount = live.gamma * (~(is_last | batch.terminated[1:])).float()
            reward = torch.where(is_last, value[:-1], batch.reward[1:])
            target = arrival_returns(reward, discount, value[1:], live.return_lambda)
            weight = (~is_last).float()
            reached = (weight * target).sum() / weight.sum().clamp(min=1)
        logits = logits[:-1]
        error = two_hot.loss(logits, target) + live.slow_coef * two_hot.loss(logits, slow)
        return (weight * error).mean(), reached


class DreamerLosses(ModelLosses, Protocol):
    """What answers the losses of an update: the agent itself, or an engine's kernels."""

    def behaviour_loss(
        self, start: State, alive: Tensor, of_guess: Tensor, of_action: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]: ...
