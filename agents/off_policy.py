"""What algorithms with a replay memory share: its size, batches, an iteration, target networks.

`BoundedAgent` is the base class of SAC, TQC and TD3, whose actions are continuous with bounds. Letters in shapes:
B samples, n critics, A numbers of an action, K outputs of a critic (quantiles or bins).
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stride.agents.base import Agent, scaled_optimizer
from stride.agents.experience.memory import slots_for
from stride.agents.experience.minibatches import in_order
from stride.agents.experience.nouns import Transitions, tree_map
from stride.agents.experience.ratio import Ratio, updates_per_step
from stride.agents.experience.reward_scale import ReplayedRewardScale
from stride.agents.networks.categorical import Bins
from stride.agents.networks.popart import ValueScale, scale_values
from stride.agents.networks.q_network import image_reader
from stride.agents.networks.residual import batch_moments, batch_norms, project
from stride.agents.networks.squashed import BoundedPolicy, Critics
from stride.config.schema import BoundedConfig, ReplayConfig, TransitionConfig
from stride.envs_fast.vec_env import Obs, VecEnv

SEAM_SLOTS = 8  # slots per environment for episodes that a resume cuts, beside those that the time limit ends
FIRST_SLOTS = 64  # slots per environment at first, if no limit says how many final observations there will be


class ReplaySize(NamedTuple):
    """The size of a replay memory, for each environment."""

    rows: int
    """time steps"""
    slots: int
    """final observations of ended episodes"""


def replay_size(config: ReplayConfig, envs: VecEnv, keep_terminal: bool = False) -> ReplaySize:
    """Return how many rows make up `buffer_size`, and how many slots the final observations in them can need.

    With `keep_terminal` terminated episodes need slots, too, up to one in every row. On the CPU the memory begins with
    few and adds more. On a GPU it gets all at once, because to learn that it needs more the host would have to wait.
    """
    row_count = -(-config.buffer_size // config.n_envs)
    if not keep_terminal:
        slot_count = slots_for(row_count, envs.time_limit) + SEAM_SLOTS
    else:
        slot_count = FIRST_SLOTS if envs.device.type == "cpu" else row_count
    return ReplaySize(row_count, min(row_count, slot_count))


class BoundedAgent(Agent):
    """An actor and critics for continuous actions with bounds, with a replay memory: the base of SAC, TQC and TD3.

    With `norm: batch` these passes use the moments of the batch: the target critics on (s', a'), the critics on (s, a)
    (with `joint_batch`, both on the two as one batch), and the actor on s. Two passes use the running moments: the
    critics inside the actor's loss, and the actor that chooses a' for a target.
    """

    config: BoundedConfig
    policy: BoundedPolicy
    actor: type[BoundedPolicy]
    """the class of the policy"""

    def __init__(self, config: BoundedConfig, envs: VecEnv, rank: int = 0) -> None:
        space, reading = envs.observation_space, (config.normalize_obs, image_reader(config, envs))
        policy = self.actor(
            space,
            envs.action_space,
            config.actor_shape,
            *reading,
            config.seed,
            config.noise_correlation,
            config.noise_hold,
        ).to(envs.device)
        super().__init__(config, envs, policy, *replay_size(config, envs), rank=rank, storage=config.replay_storage)
        prioritise(self, config)
        self.bins = Bins(config.bins, config.bin_range, envs.device) if config.bins else None
        count, quantiles = self.critic_sizes
        outputs, shape = config.bins or quantiles, config.critic_shape
        critics = Critics(count, space, policy.actions, shape, *reading, config.seed + 1, outputs)
        scale_values(critics, config, *critics.last_layers)
        self.critics = critics.to(envs.device)
        self.project(moved_actor=True)
        self.target = deepcopy(critics).requires_grad_(False)
        self.value_scale = ValueScale(critics, self.target)
        self.actor_norms, self.critic_norms, self.target_norms = map(batch_norms, (policy, critics, self.target))
        self.ratio = updates_due(self, config)
        reach = config.bin_range if config.bins else None
        self.reward_scale = ReplayedRewardScale(
            config.normalize_reward, self.live, self.collector.is_first.float(), reach
        )
        if config.normalize_reward:
            self.parts["reward_scale"] = self.reward_scale

    def configure_optimizers(self) -> Optimizer:
        """Build one optimizer for all; it leaves the actor unchanged in updates that give it no gradient."""
        config = self.config
        parts = [
            ([*self.policy.parameters()], config.actor_shape.lr_scale),
            ([*self.critics.parameters()], config.critic_shape.lr_scale),
            (self.beside, 1.0),
        ]
        return scaled_optimizer(config, parts, self.live.policy_lr)

    @property
    def beside(self) -> list[nn.Parameter]:
        """Parameters that are learnt beside actor and critics."""
        return []

    @property
    def critic_sizes(self) -> tuple[int, int]:
        """(number of critics, quantiles that each of them learns; 1 = only the mean)"""
        raise NotImplementedError

    def iteration(self) -> None:
        self.policy.at_random = self.progress["env_steps"] < self.config.learning_starts
        collect_and_learn(self, self.config.train_freq, self.ratio, self.config.n_step + 1)

    def learn(self, updates: int) -> None:
        """Draw minibatches and noise for this many updates, and make them."""
        self.renew_statistics()
        if not updates:
            return
        pairs = zip(batches(self, self.config, updates), self.update_noise(updates), strict=True)
        self.metrics.add_all([self.update(batch, noise) for batch, noise in pairs])

    def renew_statistics(self) -> None:
        """Update the statistics of observations and rewards by the rows that were collected last."""
        learn_statistics(self, self.config, self.policy, self.critics, self.target)
        if self.config.normalize_reward:
            memory = self.memory
            rows = torch.arange(memory.written - self.config.train_freq, memory.written) % memory.rows
            table, rows = memory.table, rows.to(memory.slot.device)
            self.reward_scale.learn(table.reward[rows], table.terminated[rows] | table.truncated[rows])

    def scaled(self, batch: Transitions) -> Transitions:
        """Return the batch with its rewards scaled, as updates use it."""
        return batch._replace(reward=self.reward_scale.scaled(batch.reward))

    def target_q(self, batch: Transitions, next_action: Tensor) -> Tensor:
        """Return the target critics' outputs for (s', a'), [n, B] or [n, B, K]; `next_action` a' [B, A]."""
        with batch_moments(self.target_norms):
            if not self.config.joint_batch:
                return self.target(batch.next_obs, next_action)
            return self.target(*joined(batch, next_action))[:, len(next_action) :]

    def present_q(self, batch: Transitions, next_action: Tensor) -> Tensor:
        """Return the critics' outputs for (s, a), [n, B] or [n, B, K]; joint_batch needs `next_action` [B, A], too."""
        with batch_moments(self.critic_norms):
            if not self.config.joint_batch:
                return self.critics(batch.obs, batch.action)
            return self.critics(*joined(batch, next_action))[:, : len(next_action)]

    def expected(self, q: Tensor) -> Tensor:
        """Turn outputs of critics with bins [n, B, K] into expected returns [n, B]; return other outputs unchanged."""
        return q if self.bins is None else self.bins.mean(q)

    def moves_actor(self) -> bool:
        """Return whether this update moves the actor, too: every `actor_every`-th one does."""
        return (self.progress["updates"] + 1) % self.config.actor_every == 0

    def project(self, moved_actor: bool) -> None:
        """With `weight_projection`, scale the weights that an update moved back to their fixed lengths."""
        if self.config.weight_projection:
            project(self.critics)
            if moved_actor:
                project(self.policy)

    def value_metrics(self, batch: Transitions, q: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Return metrics of the critics' outputs [n, B, ..] and targets [B, ..], and renew priorities by both."""
        if self.bins:
            with torch.no_grad():
                q, target = self.bins.mean(q), target @ self.bins.values
        renew_priorities(self, batch, q, target)
        return {"train/value/q": q.mean(), "train/value/target": target.mean()}

    def update_noise(self, updates: int) -> Tensor:
        """Draw the random numbers of this many updates, [updates, ...]."""
        raise NotImplementedError

    def update(self, batch: Transitions, noise: Tensor) -> Mapping[str, Tensor]:
        """Make one step on a batch, with one row of `update_noise`. -> metrics"""
        raise NotImplementedError


def prioritise(agent: Agent, config: TransitionConfig) -> None:
    """With `prioritised`, make the agent's memory draw transitions by priority."""
    if config.prioritised:
        agent.memory.prioritise(config.priority_alpha, config.n_step)


def batches(agent: Agent, config: TransitionConfig, updates: int) -> Iterator[Transitions]:
    """Yield the minibatches of this many updates; draws by priority wait for the update before them."""
    live = agent.live
    pieces = agent.memory.draws(updates, config.batch_size, config.n_step, live.gamma, live.priority_beta)
    return chain.from_iterable(in_order(piece, config.batch_size) for piece in pieces)


def renew_priorities(agent: Agent, batch: Transitions, q: Tensor, target: Tensor) -> None:
    """Set the priorities of a batch to |target - q|, averaged over the n critics; does nothing without priorities.

    `q` [n, B] and `target` [B]; quantiles [n, B, K] and [B, M] are averaged first.
    """
    if agent.memory.priorities:
        if target.dim() > 1:
            q, target = q.mean(-1), target.mean(-1)
        agent.memory.priorities.update(batch.row_id, (target - q.detach()).abs().mean(0))


def updates_due(agent: Agent, config: ReplayConfig) -> Ratio:
    """Make the Ratio that says how many updates are due, and register it as a part, so that checkpoints store it."""
    agent.parts["ratio"] = ratio = Ratio(updates_per_step(config), config.learning_starts)
    return ratio


def collect_and_learn(agent: Agent, steps: int, ratio: Ratio, span: int) -> None:
    """Run an iteration: collect `steps` steps per environment, then make the updates that are due for them.

    No update is made until the memory has `span` consecutive rows to draw from.
    """
    steps_before = agent.progress["env_steps"]
    agent.collect(steps)
    steps_after = agent.progress["env_steps"]
    agent.learn_from(ratio.due(steps_after - steps_before, steps_after, agent.memory.ready(span)))


def learn_statistics(agent: Agent, config: ReplayConfig, *networks: Any) -> None:
    """With `normalize_obs: rolling`, update the statistics in each network's encoder by the latest observations."""
    if config.normalize_obs == "rolling":
        for network in networks:
            network.encoder.learn(agent.memory.recent(config.train_freq))


def joined(batch: Transitions, next_action: Tensor) -> tuple[Obs, Tensor]:
    """Concatenate (s, a) and (s', a') to one batch [2 B, ...]: (observations, actions)."""
    obs = tree_map(lambda x, y: torch.cat((x, y)), batch.obs, batch.next_obs)
    return obs, torch.cat((batch.action, next_action))


@torch.no_grad()
def move_towards(target: nn.Module, source: nn.Module, fraction: float) -> None:
    """target += fraction * (source - target) for all parameters of two networks of one form (Polyak averaging)."""
    targets: list[Tensor] = [*target.parameters()]
    sources: list[Tensor] = [*source.parameters()]
    if fraction < 1:
        torch._foreach_lerp_(targets, sources, fraction)
    else:
        torch._foreach_copy_(targets, sources)
