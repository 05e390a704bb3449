"""DreamerV3 (Hafner et al. 2023): a world model learns from replayed sequences, actor and critic from imagined ones.

Letters in shapes: L steps of a replayed sequence, B sequences, K imagined starts, H imagined steps, S categorical
variables of the model's state.
"""

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

RANGE_QUANTILES = (0.05, 0.95)  # the range of returns is the distance between these quantiles


def arrival_returns(reward: Tensor, discount: Tensor, value: Tensor, lam: float) -> Tensor:
    """Lambda-returns R_t = r_t + d_t ((1 - lam) v_t + lam R_t+1), where v stands for R after the last one. -> [H, ...]

    `reward` r_t, `discount` d_t and `value` v_t [H, ...] are those of the state that step t arrives at. So R_t is the
    return of the state before it: the reward on arrival, plus the discounted return from there.
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
    """A slow average of the distance between the 5th and the 95th percentile of returns: the paper's S."""

    value: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("value", torch.zeros(()))

    @torch.no_grad()
    def learn(self, returns: Tensor, rate: float) -> Tensor:
        """Average these returns in, unless one is non-finite; return max(1, S) [], the divisor of advantages."""
        ordered = returns.flatten().sort().values
        low_return, high_return = (ordered[round(quantile * (len(ordered) - 1))] for quantile in RANGE_QUANTILES)
        all_finite = returns.isfinite().all()
        self.value.lerp_(torch.where(all_finite, high_return - low_return, self.value), rate)
        return self.value.clamp(min=1.0)


class DreamerDraws(NamedTuple):
    """All random numbers of an update, uniform in [0, 1)."""

    posterior: Tensor
    """[L, B, S] for the model's states of the batch; with `stoch: 0` [L, B, 1]"""
    starts: Tensor
    """[L * B], one for each state of the batch; imagination starts from those with the K largest"""
    guess: Tensor
    """[H, K, S] for the imagined states"""
    action: Tensor
    """[H, K, draws of an action] for the imagined actions"""


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
        """Make this many updates. `losses`: what computes the losses, such as an engine; None: this class, in torch."""
        size, length = self.config.batch_size, self.config.batch_length
        self.metrics.add_all(
            [self.update(self.memory.sequences(size, length), self.draw(), losses) for _ in range(updates)]
        )

    def draw(self) -> DreamerDraws:
        """Draw the random numbers of the next update, from one table."""
        config = self.config
        posterior, stoch = self.policy.model.rssm.draws, self.policy.sizes.stoch
        rows = (config.batch_length, config.batch_size)
        steps = (config.horizon, config.imagined_starts)
        shapes = ((*rows, posterior), (prod(rows),), (*steps, stoch), (*steps, self.policy.head.draws))
        sizes = [prod(shape) for shape in shapes]
        table = uniforms(self.key(EXPLORE, self.progress["updates"]), (sum(sizes),), self.range.value.device)
        return DreamerDraws(*(piece.view(shape) for piece, shape in zip(table.split(sizes), shapes, strict=True)))

    def update(
        self, batch: Sequences, draws: DreamerDraws, losses: "DreamerLosses | None" = None
    ) -> Mapping[str, Tensor]:
        """Make one step on all losses: the model's on a replayed batch, the behaviour's on what is imagined from it.

        The behaviour is actor and critic; imagination starts from K random states of the batch. -> metrics
        """
        config = self.config
        losses = losses or self
        recalled = losses.recall_loss(batch, draws.posterior)
        # K different random indices into the L * B states
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
        """Return the losses on a batch of replayed sequences: the model's and the critic's; `u`: uniforms [L, B, S]."""
        recalled = model_loss(self.policy, batch, u, self.live)
        replayed, reached = self.replay_loss(batch, recalled.states)
        replayed = self.live.replay_value_coef * replayed
        parts = recalled.parts | {"replay_value": replayed}
        metrics = recalled.metrics | {"train/return/reached": reached}
        return recalled._replace(loss=recalled.loss + replayed, parts=parts, metrics=metrics)

    def behaviour_loss(
        self, start: State, alive: Tensor, of_guess: Tensor, of_action: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the losses {"policy", "critic"} of actor and critic on H imagined steps from K starts, and metrics.

        actor:   -E[w (log pi(a|s) A + eta H(pi))],  A = (R - v) / max(1, S), eta = ent_coef, S = ReturnRange
        critic:   E[w (L(R) + slow_coef L(v_slow))],  L = two-hot cross-entropy, v_slow of the slow copy of the critic

        R are `arrival_returns`. The weight w [H, K] is the probability that the episode still goes on where the action
        is chosen, with discounts: `alive` [K] (0 for terminal states) at the start, then times gamma P(goes on).
        `of_guess`, `of_action`: uniforms of `DreamerDraws`.
        """
        policy, live, two_hot = self.policy, self.live, self.policy.model.two_hot
        features, actions = self.imagine(start, of_guess, of_action)
        acted_on = features[:-1]  # [H, K, ..] the states in which actions were chosen
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
        """Imagine H steps from K states; -> (features [H + 1, K, ..], actions in all but the last one [H, K, ..])"""
        policy = self.policy
        features = [state.features]
        actions = []
        for u, action_draws in zip(of_guess, of_action, strict=True):
            actions.append(policy.head.sample(policy.choices(features[-1]), action_draws))
            state = policy.model.rssm.imagine(state, policy.actions(actions[-1]), u)
            features.append(state.features)
        return torch.stack(features), torch.stack(actions)

    def replay_loss(self, batch: Sequences, states: State) -> tuple[Tensor, Tensor]:
        """Return the critic's loss [] on replayed sequences, and the mean of its targets [].

        Targets are lambda-returns of the recorded rewards. The gradients reach the model, too.
        """
        live, two_hot, features = self.live, self.policy.model.two_hot, states.features
        logits = self.policy.critic(features)
        with torch.no_grad():
            value = two_hot.mean(logits)
            slow = two_hot.mean(self.slow(features[:-1].detach()))
            is_last = batch.is_first[1:]  # the state before a new episode has no successor: its return is its value
            discount = live.gamma * (~(is_last | batch.terminated[1:])).float()
            reward = torch.where(is_last, value[:-1], batch.reward[1:])
            target = arrival_returns(reward, discount, value[1:], live.return_lambda)
            weight = (~is_last).float()
            reached = (weight * target).sum() / weight.sum().clamp(min=1)
        logits = logits[:-1]
        error = two_hot.loss(logits, target) + live.slow_coef * two_hot.loss(logits, slow)
        return (weight * error).mean(), reached


class DreamerLosses(ModelLosses, Protocol):
    """What computes the losses of an update: the agent itself, or an engine's kernels."""

    def behaviour_loss(
        self, start: State, alive: Tensor, of_guess: Tensor, of_action: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]: ...
