"""DQN: targets and losses as pure functions, then the agent (Mnih et al. 2015, and the switches of its config)."""

from copy import deepcopy
from itertools import zip_longest

import torch
from torch import Tensor
from torch.nn import functional as F

from stride.agents.base import Agent
from stride.agents.experience.minibatches import in_order
from stride.agents.experience.nouns import Transitions
from stride.agents.networks.heads import action_mask
from stride.agents.networks.popart import ValueScale
from stride.agents.networks.q_network import QNetwork, QNetworkShape, QPolicy, best, build_q_policy, pick
from stride.agents.off_policy import learn_statistics, move_towards, replay_size, updates_due
from stride.agents.returns import td_target
from stride.config.schema import DQNConfig
from stride.envs_fast.vec_env import VecEnv

LOGGED = 8  # every so many updates more than the loss is logged: means of 64 numbers cost as much as products


def huber(error: Tensor, limit: float | None) -> Tensor:
    """error^2 / 2, beyond `limit` a straight line of that slope."""
    if limit is None:
        return error.square() / 2
    if limit == 0:  # where a schedule may end
        return 0 * error
    return F.huber_loss(error, error.new_zeros(()).expand_as(error), reduction="none", delta=limit)


def quantile_loss(quantiles: Tensor, target: Tensor, limit: float | None) -> Tensor:
    """Quantile regression, [..., B]: [..., B, K] to samples [B, M], tau_i = (i + 1/2) / K (Dabney et al. 2018).

    sum over i of mean over j of |tau_i - 1{target_j < quantile_i}| * huber(target_j - quantile_i) / limit
    """
    k = quantiles.shape[-1]
    tau = (torch.arange(k, device=quantiles.device) + 0.5) / k
    error = target[..., None, :] - quantiles[..., :, None]
    asymmetry = torch.where(error.detach() < 0, 1 - tau[:, None], tau[:, None])
    return (asymmetry * huber(error, limit) / (limit or 1.0)).mean(-1).sum(-1)


class DQN(Agent):
    """Steps into a replay memory, updates at the pace of `Ratio`, a target network that follows by env steps."""

    config: DQNConfig
    policy: QPolicy

    def __init__(self, config: DQNConfig, envs: VecEnv, rank: int = 0) -> None:
        shape = QNetworkShape(config.hidden_dims, config.activation, config.normalize_obs, dueling=config.dueling)
        policy = build_q_policy(config, envs, shape._replace(quantiles=config.quantiles or 1))
        super().__init__(config, envs, policy, *replay_size(config, envs), rank=rank, storage=config.replay_storage)
        if config.prioritised:
            self.memory.prioritise(config.priority_alpha, config.n_step)
        if "gamma" in config.driven():
            self.memory.keep_gammas(self.live.gamma)
        self.target: QNetwork = deepcopy(policy.network).requires_grad_(False)
        self.value_scale = ValueScale(policy, self.target)
        self.ratio = updates_due(self, config)

    def iteration(self) -> None:
        before = self.progress["env_steps"]
        self.policy.epsilon = 1.0 if before < self.config.learning_starts else self.live.epsilon
        self.collect(self.config.train_freq)
        if self.memory.gammas is not None:
            self.memory.set_gamma(self.config.train_freq, self.live.gamma)
        now = self.progress["env_steps"]
        self.follow(now // self.config.target_freq - before // self.config.target_freq)
        self.learn_from(self.ratio.due(now - before, now, self.memory.ready(self.config.n_step + 1)))

    def follow(self, times: int) -> None:
        """Move the target network towards the network, `times` times at once."""
        if times:
            move_towards(self.target, self.policy.network, 1 - (1 - self.live.tau) ** times)

    def learn(self, updates: int) -> None:
        config, live = self.config, self.live
        self.renew_statistics()
        for transitions in self.memory.draws(updates, config.batch_size, config.n_step, live.gamma, live.priority_beta):
            # the target network does not change meanwhile: without double_q all targets can be computed at once
            targets = [] if config.double_q else self.judge(transitions).split(config.batch_size)
            batches = in_order(transitions, config.batch_size)
            losses = [self.update(batch, target) for batch, target in zip_longest(batches, targets)]
            self.metrics.add({"train/loss/q": torch.stack(losses).mean()})

    def renew_statistics(self) -> None:
        learn_statistics(self, self.config, self.policy.network, self.target)

    def update(self, batch: Transitions, target: Tensor | None) -> Tensor:
        """One step on a batch; `target` [B] or [B, K], None where it must be computed first. -> the loss"""
        target = self.judge(batch) if target is None else target
        moments, relative = self.value_scale.learn(target), self.value_scale.relative
        q = pick(self.policy.network(batch.obs), batch.action)
        limit = self.live.huber
        if self.config.quantiles:  # priorities need one error for each row: that of the means
            losses = quantile_loss(relative(q), relative(target), limit)
            error = (target.mean(-1) - q.mean(-1)).detach()
        else:
            difference = target - q
            losses = huber(relative(difference), limit)
            error = difference.detach()
        # the weight makes up for uneven draws (Schaul et al. 2016); it is 1 where they are even
        loss = (batch.weight * losses).mean()
        norms = self.descend(self.optimizer, loss, self.live.max_grad_norm)
        if self.memory.priorities:
            self.memory.priorities.update(batch.row_id, error)
        if self.progress["updates"] % LOGGED == 0:
            self.metrics.add(
                {
                    "train/value/q": q.mean(),
                    "train/value/target": target.mean(),
                    "train/value/td_error": error.abs().mean(),
                    "train/grad_norm/total": norms.norm(),
                    **moments,
                }
            )
        return loss.detach()

    @torch.no_grad()
    def judge(self, batch: Transitions) -> Tensor:
        """The targets of the actions taken, by the target network: [B], or quantiles [B, K]."""
        next_q = self.target(batch.next_obs)
        if self.config.double_q:
            choosing = self.policy.network.mean(batch.next_obs)
        else:
            choosing = next_q.mean(-1) if self.config.quantiles else next_q
        best_action = best(choosing, action_mask(batch.next_obs))
        return td_target(batch.reward, batch.discount, pick(next_q, best_action))
