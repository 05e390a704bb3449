"""Dreamer: a world model from remembered sequences, actor and critic from what it imagines (Hafner et al. 2023)."""

from collections.abc import Mapping
from copy import deepcopy
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stride.agents.base import Agent, build_optimizer
from stride.agents.experience.nouns import Sequences
from stride.agents.model_learning import Ends, ModelLoss, ModelLosses, collect_and_learn, model_loss, updates_owed
from stride.agents.networks.dreamer_policy import DreamerPolicy
from stride.agents.networks.world_model import State
from stride.agents.off_policy import replay_room
from stride.agents.targets import move
from stride.config.schema import DreamerConfig
from stride.envs_fast.vec_env import VecEnv
from stride.utils.counter_rng import EXPLORE, uniforms

LOW, HIGH = 0.05, 0.95  # of the returns, between which they are said to range


def arrival_returns(reward: Tensor, discount: Tensor, value: Tensor, lam: float) -> Tensor:
    """R_t = r_t + d_t ((1 - lam) v_t + lam R_t+1), the last with R = v; all [H, ...] and of the state arrived at.

    R_t is so the return of the state before: what is paid on arriving, and discounted what follows from there.
    """
    found, following = [], value[-1]
    known, share = reward + discount * (1 - lam) * value, lam * discount
    for here, kept in zip(known.flip(0), share.flip(0), strict=True):
        following = torch.addcmul(here, kept, following)
        found.append(following)
    return torch.stack(found[::-1])


class Range(nn.Module):
    """Between the 5th and the 95th percentile of the returns, slowly."""

    value: Tensor

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("value", torch.zeros(()))

    @torch.no_grad()
    def learn(self, returns: Tensor) -> Tensor:
        """What to divide advantages by, these returns learnt from; any of them that is not finite teaches nothing."""
        ordered = returns.flatten().sort().values
        low, high = (ordered[round(share * (len(ordered) - 1))] for share in (LOW, HIGH))
        sound = returns.isfinite().all()
        self.value.lerp_(torch.where(sound, high - low, self.value), self.rate)
        return self.value.clamp(min=1.0)


class Draws(NamedTuple):
    """All that is random in an update, as uniforms; K starts, H steps imagined from each."""

    posterior: Tensor
    """[L, B, S]"""
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
        room = replay_room(config, envs, keep_terminal=True)
        super().__init__(config, envs, policy, *room, keep_terminal=True, rank=rank, storage=config.replay_storage)
        self.slow = deepcopy(policy.critic).requires_grad_(False)
        self.range, self.ends = Range(config.return_rate).to(envs.device), Ends().to(envs.device)
        self.ratio = updates_owed(self, config)

    def configure_optimizers(self) -> Optimizer:
        return build_optimizer(self.config, list(self.policy.parameters()), self.live.policy_lr)

    def iteration(self) -> None:
        collect_and_learn(self, self.policy, self.config, self.ratio)

    def learn(self, updates: int, losses: "DreamerLosses | None" = None) -> None:
        """Make updates by these losses; an engine passes its own, by default they are this class's, in torch."""
        size, length = self.config.batch_size, self.config.batch_length
        self.metrics.add_all(
            [self.update(self.memory.sequences(size, length), self.draw(), losses) for _ in range(updates)]
        )

    def draw(self) -> Draws:
        """The draws of the next update, one table for all of them."""
        config, policy = self.config, self.policy
        rows, steps = (config.batch_length, config.batch_size), (config.horizon, config.imagined_starts)
        stoch = policy.sizes.stoch
        shapes = ((*rows, stoch), (rows[0] * rows[1],), (*steps, stoch), (*steps, policy.head.draws))
        sizes = [torch.Size(shape).numel() for shape in shapes]
        table = uniforms(self.key(EXPLORE, self.progress["updates"]), (sum(sizes),), self.range.value.device)
        return Draws(*(piece.view(shape) for piece, shape in zip(table.split(sizes), shapes, strict=True)))

    def update(self, batch: Sequences, draws: Draws, losses: "DreamerLosses | None" = None) -> Mapping[str, Tensor]:
        """One step on everything: the model by what was seen, the behaviour by what is imagined from there."""
        config = self.config
        losses = losses or self
        told = losses.recall_loss(batch, draws.posterior)
        chosen = draws.starts.topk(config.imagined_starts).indices
        start = State(*(part.detach().flatten(0, 1)[chosen] for part in told.states))
        alive = (~batch.terminated).flatten()[chosen].float()
        behaviour, imagined = losses.behaviour_loss(start, alive, draws.guess, draws.action)
        loss = told.loss + behaviour["policy"] + behaviour["critic"]
        norms = self.descend(losses.optimizer, loss, self.live.max_grad_norm)
        move(self.slow, self.policy.critic, config.tau)
        self.metrics.set({**self.ends.learn(told.ends, batch.terminated), "train/return/range": self.range.value})
        return {
            **{f"train/loss/{name}": value for name, value in (told.parts | behaviour).items()},
            **told.metrics,
            **imagined,
            "train/grad_norm/total": norms.norm(),
        }

    def recall_loss(self, batch: Sequences, u: Tensor) -> ModelLoss:
        """Of what is remembered: the model's losses, and the critic's."""
        told = model_loss(self.policy, batch, u, self.config)
        replayed, reached = self.replay_loss(batch, told.states)
        replayed = self.config.replay_value_coef * replayed
        parts, metrics = told.parts | {"replay_value": replayed}, told.metrics | {"train/return/reached": reached}
        return told._replace(loss=told.loss + replayed, parts=parts, metrics=metrics)

    def behaviour_loss(
        self, start: State, alive: Tensor, of_guess: Tensor, of_action: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Losses of actor and critic, and metrics; `alive` [K] is 0 where there is nothing to do.

        An action counts as much as it is likely that there is anything left to do where it is chosen: by what was
        seen of the start, by what the model says of the states between; never by what comes of the action itself.
        """
        config, policy, live, two_hot = self.config, self.policy, self.live, self.policy.model.two_hot
        features, actions = self.imagine(start, of_guess, of_action)
        here = features[:-1]
        logits = policy.critic(here)
        with torch.no_grad():
            reward, goes_on = policy.model.expect(features[1:])
            last, slow = two_hot.mean(policy.critic(features[-1:])), two_hot.mean(self.slow(here))
            value = torch.cat((two_hot.mean(logits), last))
            discount = live.gamma * goes_on
            returns = arrival_returns(reward, discount, value[1:], config.return_lambda)
            advantage = (returns - value[:-1]) / self.range.learn(returns)
            weight = torch.cat((alive[None], alive * discount[:-1].cumprod(0)))
            mean = (alive * returns[0]).sum() / alive.sum().clamp(min=1)
        p = policy.choices(here)
        entropy = policy.head.entropy(p)
        gain = policy.head.log_prob(p, actions) * advantage + live.ent_coef * entropy
        off, astray = two_hot.loss(logits, returns), two_hot.loss(logits, slow)
        losses = {"policy": -(weight * gain).mean(), "critic": (weight * (off + config.slow_coef * astray)).mean()}
        return losses, {"train/return/imagined": mean, "train/policy/entropy": entropy.mean()}

    @torch.no_grad()
    def imagine(self, state: State, of_guess: Tensor, of_action: Tensor) -> tuple[Tensor, Tensor]:
        """(features [H + 1, K, ..], the actions [H, K, ..] the actor chose at all but the last of them)."""
        policy, features, actions = self.policy, [state.features], []
        for u, choice in zip(of_guess, of_action, strict=True):
            actions.append(policy.head.sample(policy.choices(features[-1]), choice))
            state = policy.model.rssm.imagine(state, policy.actions(actions[-1]), u)
            features.append(state.features)
        return torch.stack(features), torch.stack(actions)

    def replay_loss(self, batch: Sequences, states: State) -> tuple[Tensor, Tensor]:
        """The critic's loss on what was remembered, whose gradients reach the model, too, and the mean return."""
        config, two_hot, features = self.config, self.policy.model.two_hot, states.features
        logits = self.policy.critic(features)
        with torch.no_grad():
            value, slow = two_hot.mean(logits), two_hot.mean(self.slow(features[:-1].detach()))
            # the last instant of an episode has no successor here: its return is its value
            last, ended = batch.is_first[1:], batch.terminated[1:]
            discount = self.live.gamma * (~(last | ended)).float()
            reward = torch.where(last, value[:-1], batch.reward[1:])
            target = arrival_returns(reward, discount, value[1:], config.return_lambda)
            weight = (~last).float()
            reached = (weight * target).sum() / weight.sum().clamp(min=1)
        told = logits[:-1]
        off, astray = two_hot.loss(told, target), two_hot.loss(told, slow)
        return (weight * (off + config.slow_coef * astray)).mean(), reached


class DreamerLosses(ModelLosses, Protocol):
    """What answers the losses of an update: the agent itself, or an engine's kernels."""

    def behaviour_loss(
        self, start: State, alive: Tensor, of_guess: Tensor, of_action: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]: ...
