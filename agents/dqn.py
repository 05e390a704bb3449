"""Deep Q-network, DQN (Mnih et al. 2015): the losses as pure functions, then the agent.

Keys of the config add double Q-learning, dueling networks, prioritized replay, n-step returns and quantiles (QR-DQN).
Letters in shapes: B samples, A actions, K quantiles.
"""

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

LOG_EVERY = 8  # updates between two logs of values and norms: small means cost as much time as products of matrices


def huber(error: Tensor, limit: float | None) -> Tensor:
    """Huber loss of each error e, in its shape: e^2 / 2 if |e| <= c, else c (|e| - c / 2), with c = `limit`.

    `limit` None: e^2 / 2 everywhere; 0: 0 everywhere.
    """
    if limit is None:
        return error.square() / 2
    if limit == 0:  # a schedule may end at 0, which F.huber_loss refuses
        return 0 * error
    return F.huber_loss(error, error.new_zeros(()).expand_as(error), reduction="none", delta=limit)


def quantile_loss(quantiles: Tensor, target: Tensor, limit: float | None) -> Tensor:
    """Quantile Huber loss of QR-DQN (Dabney et al. 2018). -> [..., B]

    sum over i of E_j[|tau_i - 1{u_ij < 0}| huber(u_ij) / kappa],  u_ij = target_j - quantile_i,  tau_i = (i + 1/2) / K

    `quantiles` [..., B, K], i = 0 .. K - 1; `target` [B, M]: samples of the return, j = 0 .. M - 1; `limit` is kappa.
    """
    k = quantiles.shape[-1]
    tau = (torch.arange(k, device=quantiles.device) + 0.5) / k
    error = target[..., None, :] - quantiles[..., :, None]  # [..., B, K, M]
    asymmetry = torch.where(error.detach() < 0, 1 - tau[:, None], tau[:, None])
    return (asymmetry * huber(error, limit) / (limit or 1.0)).mean(-1).sum(-1)


class DQN(Agent):
    """Play into a replay memory, make the updates that are due (`Ratio`); the target network follows by env steps."""

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
        """Move the target network towards the network by the fraction tau, `times` times in one operation."""
        if times:
            move_towards(self.target, self.policy.network, 1 - (1 - self.live.tau) ** times)

    def learn(self, updates: int) -> None:
        config, live = self.config, self.live
        self.renew_statistics()
        for transitions in self.memory.draws(updates, config.batch_size, config.n_step, live.gamma, live.priority_beta):
            # the target network does not change here, so without double_q one pass computes the targets of all batches
            targets = [] if config.double_q else self.judge(transitions).split(config.batch_size)
            batches = in_order(transitions, config.batch_size)
            losses = [self.update(batch, target) for batch, target in zip_longest(batches, targets)]
            self.metrics.add({"train/loss/q": torch.stack(losses).mean()})

    def renew_statistics(self) -> None:
        learn_statistics(self, self.config, self.policy.network, self.target)

    def update(self, batch: Transitions, target: Tensor | None) -> Tensor:
        """Make one step on a batch and return its loss []; `target` [B] or [B, K], None: compute it here."""
        target = self.judge(batch) if target is None else target
        moments, relative = self.value_scale.learn(target), self.value_scale.relative
        q = pick(self.policy.network(batch.obs), batch.action)
        limit = self.live.huber
        if self.config.quantiles:  # priorities need one error [B] for each row: the difference of the means
            losses = quantile_loss(relative(q), relative(target), limit)
            error = (target.mean(-1) - q.mean(-1)).detach()
        else:
            difference = target - q
            losses = huber(relative(difference), limit)
            error = difference.detach()
        # the weight corrects the bias of draws by priority (Schaul et al. 2016); it is 1 for uniform draws
        loss = (batch.weight * losses).mean()
        norms = self.descend(self.optimizer, loss, self.live.max_grad_norm)
        if self.memory.priorities:
            self.memory.priorities.update(batch.row_id, error)
        if self.progress["updates"] % LOG_EVERY == 0:
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
        """Return the targets r + discount Q_target(s', a*) [B], or their quantiles [B, K].

        a* = argmax Q_target(s', a), with double_q argmax Q(s', a) of the online network (van Hasselt et al. 2016).
        """
        next_q = self.target(batch.next_obs)
        if self.config.double_q:
            choosing = self.policy.network.mean(batch.next_obs)
        else:
            choosing = next_q.mean(-1) if self.config.quantiles else next_q
        best_action = best(choosing, action_mask(batch.next_obs))
        return td_target(batch.reward, batch.discount, pick(next_q, best_action))
