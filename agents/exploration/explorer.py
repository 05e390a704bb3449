"""Exploration by intrinsic rewards for PPO and PQN: the agent is rewarded for reaching what is new to it.

PPO adds an intrinsic advantage, from a separate critic, to its own advantage; PQN adds the intrinsic reward to the
rewards in its targets. Logged returns, goals and the policy's network do not change. The networks here have their own
optimizer. Letters in shapes: T steps, N environments.
"""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stride.agents.base import Agent, plain
from stride.agents.experience.minibatches import minibatches
from stride.agents.experience.nouns import Rollout, Tree, known_uncut, leaves, tree_map, where
from stride.agents.experience.reward_scale import RewardScale
from stride.agents.exploration.novelty import Experience, Spaces, make_novelty
from stride.agents.exploration.sight import initialize, pieces
from stride.agents.networks.encoders import FlatEncoder
from stride.agents.on_policy import epochs
from stride.agents.optimizer_step import parameters_of, step_unless
from stride.agents.returns import gae, next_values
from stride.config.exploration import Exploration
from stride.config.schema import PPOConfig, PQNConfig
from stride.envs_fast.vec_env import Obs

SEED_SHIFT = 1 << 62  # xor with the seed, so that first weights are drawn from another stream than the policy's


class Explorer:
    """Owns the novelty module, the intrinsic critic, their optimizer, and the scale of intrinsic rewards."""

    def __init__(
        self,
        agent: Agent,
        config: PPOConfig | PQNConfig,
        exploration: Exploration,
        encoder: FlatEncoder,
        valued: bool,
    ) -> None:
        """`encoder`: the policy's. `valued`: whether there is a critic of intrinsic rewards (PPO), or none (PQN)."""
        self.agent, self.rollouts, self.config = agent, config, exploration
        envs = agent.collector.envs
        spaces = Spaces(envs.observation_space, envs.action_space, encoder)
        generator = torch.Generator().manual_seed(config.seed ^ SEED_SHIFT)
        self.novelty = make_novelty(exploration, spaces, generator)
        self.critic: nn.Sequential | None = None
        if valued:
            last_layer = nn.Linear(exploration.width, 1)
            self.critic = nn.Sequential(spaces.features(exploration.width), last_layer)
            initialize(self.critic, generator)
            nn.init.zeros_(last_layer.weight)
        self.networks = nn.ModuleList([self.novelty, self.critic or nn.Identity()]).to(envs.device)
        learnable = [parameter for parameter in self.networks.parameters() if parameter.requires_grad]
        # `counts` without a critic has nothing to learn
        self.optimizer = torch.optim.Adam(learnable, exploration.lr, fused=True) if learnable else None
        self.scale = RewardScale(True, SimpleNamespace(gamma=exploration.gamma), agent.memory.table.reward[0])
        self.experience: Experience | None = None  # the rollout that was judged last, until `learn`

    @torch.no_grad()
    def reward(self, rollout: Rollout) -> Tensor:
        """Return scaled intrinsic rewards [T, N], 0 for terminated rows; remember the rollout for `learn`."""
        row = rollout.row
        self.novelty.sight.learn(row.obs)
        known = ~row.terminated
        self.experience = Experience(row.obs, row.action, led_to(rollout), known, torch.zeros_like(row.reward))
        novelty = torch.where(known, self.novelty.judge(self.experience), 0)
        reward = self.scale(novelty, (row.terminated | row.truncated) & self.config.episodic)
        self.agent.metrics.add(
            {
                "train/explore/novelty": novelty.sum() / known.sum().clamp(min=1),
                "train/explore/reward": reward.mean(),
                **self.novelty.describe(),
            }
        )
        return reward

    @torch.no_grad()
    def advantage(self, rollout: Rollout, lam: float) -> Tensor:
        """Return coef * GAE of intrinsic rewards, [T, N]; without `episodic`, values continue over ends of episodes."""
        reward, row = self.reward(rollout), rollout.row
        v_t = self.value(row.obs)
        v_next = self.value(tree_map(lambda x: x[None], rollout.next.obs))[0]
        v_final, terminated, truncated = None, row.terminated, row.truncated
        if not self.config.episodic:
            terminated = truncated = torch.zeros_like(row.terminated)
        elif not known_uncut(rollout):
            v_final = self.value(rollout.final.obs)
        v_tp1 = next_values(v_t, v_next, v_final, truncated, row.slot)
        advantage = gae(reward, terminated, truncated, v_t, v_tp1, self.config.gamma, lam)
        assert self.experience is not None
        self.experience = self.experience._replace(target=advantage + v_t)
        return self.config.coef * advantage

    def value(self, obs: Obs) -> Tensor:
        """Return the intrinsic value [T, N] of observations [T, N, ...]."""
        assert self.critic is not None
        values = [self.critic(self.novelty.sight(piece)) for piece in pieces(obs)]
        return torch.cat(values).view(leaves(obs)[0].shape[:2])

    def learn(self) -> None:
        """Make n_epochs passes over the rollout that was judged last, in minibatches, then forget it."""
        assert self.experience is not None
        if self.optimizer is not None:
            for batch in epochs(self.agent, self.rollouts, minibatches, self.experience):
                self.update(batch, self.optimizer)
        self.experience = None  # the next `collect` overwrites its rows

    def update(self, batch: Experience, optimizer: Optimizer) -> None:
        """Make one clipped step on novelty loss + value loss / 2, or none if anything is non-finite."""
        agent = self.agent
        loss = self.novelty.loss(batch)
        agent.metrics.add({"train/loss/novelty": loss})
        if self.critic is not None:
            value = self.critic(self.novelty.sight(batch.obs)).squeeze(-1)
            value_loss = (value - batch.target).square().mean()
            agent.metrics.add({"train/loss/intrinsic_value": value_loss})
            loss = loss + value_loss / 2
        parameters = parameters_of(optimizer)
        optimizer.zero_grad()
        loss.backward()
        max_norm = agent.live.max_grad_norm
        norm = nn.utils.clip_grad_norm_(parameters, torch.inf if max_norm is None else max_norm)
        step_unless(optimizer, agent.broken | agent.poisoned | ~(loss + norm).detach().isfinite())

    def state_dict(self) -> dict:
        """Return everything that its future depends on: networks, optimizer, scale."""
        moments = self.optimizer.state_dict() if self.optimizer else {}
        return {
            "networks": plain(self.networks.state_dict()),
            "optimizer": plain(moments),
            "scale": self.scale.state_dict(),
        }

    def load_state_dict(self, state: dict) -> None:
        self.networks.load_state_dict(state["networks"])
        if self.optimizer:
            self.optimizer.load_state_dict(state["optimizer"])
        self.scale.load_state_dict(state["scale"])


def led_to(rollout: Rollout) -> Tree:
    """Return the observation that each action led to, [T, N, ...]; after a termination the next episode's first."""
    row = rollout.row
    following = tree_map(lambda x, last: torch.cat([x[1:], last[None]]), row.obs, rollout.next.obs)
    if known_uncut(rollout):
        return following
    worlds = torch.arange(row.slot.shape[1], device=row.slot.device)
    return where(row.truncated, tree_map(lambda x: x[row.slot, worlds], rollout.final.obs), following)


def make_explorer(agent: Agent, config: PPOConfig | PQNConfig, encoder: FlatEncoder, valued: bool) -> Explorer | None:
    """Make the explorer that the config asks for, and register it as a part of the agent; None if it has none."""
    if config.exploration is None:
        return None
    explorer = Explorer(agent, config, config.exploration, encoder, valued)
    agent.parts["explorer"] = explorer
    return explorer
