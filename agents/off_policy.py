"""The common parts of algorithms that learn from a replay memory: its size, batches, an iteration, target networks."""

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

SEAMS = 8  # final observations a world may leave beyond its time limit: one per resume
FIRST_SLOTS = 64  # of each world at first, where no limit says how many final observations there will be


class ReplaySize(NamedTuple):
    """The size of a memory, for each of its worlds."""

    rows: int
    slots: int
    """for final observations"""


def replay_size(config: ReplayConfig, envs: VecEnv, keep_terminal: bool = False) -> ReplaySize:
    """Rows that make up the buffer, and slots for the final observations they can leave.

    Where terminations are kept too, every row may leave one: on the CPU a few slots are enough at first and the memory
    adds more, elsewhere it cannot, as it does not wait for the device to know.
    """
    row_count = -(-config.buffer_size // config.n_envs)
    if not keep_terminal:
        slot_count = slots_for(row_count, envs.time_limit) + SEAMS
    else:
        slot_count = FIRST_SLOTS if envs.device.type == "cpu" else row_count
    return ReplaySize(row_count, min(row_count, slot_count))


class BoundedAgent(Agent):
    """An actor and critics of actions with bounds, which learn from a replay memory: the base of SAC, TQC and TD3.

    Where the keys ask for it, batch norms take the moments of the batch: the target critics' of (s', a'), the critics'
    of (s, a), or of both as one batch, and the actor's of s. The critics as the actor's judges take running moments, as
    does the actor whose action a target asks for.
    """

    config: BoundedConfig
    policy: BoundedPolicy
    actor: type[BoundedPolicy]

    def __init__(self, config: BoundedConfig, envs: VecEnv, rank: int = 0) -> None:
        seen, reads = envs.observation_space, (config.normalize_obs, image_reader(config, envs))
        policy = self.actor(
            seen,
            envs.action_space,
            config.actor_shape,
            *reads,
            config.seed,
            config.noise_correlation,
            config.noise_hold,
        ).to(envs.device)
        super().__init__(config, envs, policy, *replay_size(config, envs), rank=rank, storage=config.replay_storage)
        prioritise(self, config)
        self.bins = Bins(config.bins, config.bin_range, envs.device) if config.bins else None
        count, quantiles = self.critic_sizes
        outputs, shape = config.bins or quantiles, config.critic_shape
        critics = Critics(count, seen, policy.actions, shape, *reads, config.seed + 1, outputs)
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
        """One for all: it leaves the actor as it is in an update that gave it no gradient."""
        config = self.config
        parts = [
            ([*self.policy.parameters()], config.actor_shape.lr_scale),
            ([*self.critics.parameters()], config.critic_shape.lr_scale),
            (self.beside, 1.0),
        ]
        return scaled_optimizer(config, parts, self.live.policy_lr)

    @property
    def beside(self) -> list[nn.Parameter]:
        """What is learnt beside actor and critics."""
        return []

    @property
    def critic_sizes(self) -> tuple[int, int]:
        """How many critics, and how many quantiles each of them learns; 1 = the mean alone."""
        raise NotImplementedError

    def iteration(self) -> None:
        self.policy.at_random = self.progress["env_steps"] < self.config.learning_starts
        collect_and_learn(self, self.config.train_freq, self.ratio, self.config.n_step + 1)

    def learn(self, updates: int) -> None:
        self.renew_statistics()
        if not updates:
            return
        pairs = zip(batches(self, self.config, updates), self.update_noise(updates), strict=True)
        self.metrics.add_all([self.update(batch, noise) for batch, noise in pairs])

    def renew_statistics(self) -> None:
        """Let the encoders and the scale of rewards see what was collected last."""
        learn_statistics(self, self.config, self.policy, self.critics, self.target)
        if self.config.normalize_reward:
            memory = self.memory
            rows = torch.arange(memory.written - self.config.train_freq, memory.written) % memory.rows
            table, rows = memory.table, rows.to(memory.slot.device)
            self.reward_scale.learn(table.reward[rows], table.terminated[rows] | table.truncated[rows])

    def scaled(self, batch: Transitions) -> Transitions:
        """The batch as it is learnt from."""
        return batch._replace(reward=self.reward_scale.scaled(batch.reward))

    def target_q(self, batch: Transitions, next_action: Tensor) -> Tensor:
        """What the target critics say of (s', a'), [n, B, ...]."""
        with batch_moments(self.target_norms):
            if not self.config.joint_batch:
                return self.target(batch.next_obs, next_action)
            return self.target(*joined(batch, next_action))[:, len(next_action) :]

    def present_q(self, batch: Transitions, next_action: Tensor) -> Tensor:
        """What the critics say of (s, a), [n, B, ...]."""
        with batch_moments(self.critic_norms):
            if not self.config.joint_batch:
                return self.critics(batch.obs, batch.action)
            return self.critics(*joined(batch, next_action))[:, : len(next_action)]

    def expected(self, q: Tensor) -> Tensor:
        """Expected returns [n, B] of what critics say; quantiles stay as they are."""
        return q if self.bins is None else self.bins.mean(q)

    def moves_actor(self) -> bool:
        """Whether this update is one of the actor's, too."""
        return (self.progress["updates"] + 1) % self.config.actor_every == 0

    def project(self, moved_actor: bool) -> None:
        """Project the weights that an update moved, where the config says so."""
        if self.config.weight_projection:
            project(self.critics)
            if moved_actor:
                project(self.policy)

    def value_metrics(self, batch: Transitions, q: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Metrics of what the critics said and learnt towards; priorities, where there are any, follow their errors."""
        if self.bins:
            with torch.no_grad():
                q, target = self.bins.mean(q), target @ self.bins.values
        renew_priorities(self, batch, q, target)
        return {"train/value/q": q.mean(), "train/value/target": target.mean()}

    def update_noise(self, updates: int) -> Tensor:
        """The random numbers of so many updates, [updates, ...]."""
        raise NotImplementedError

    def update(self, batch: Transitions, noise: Tensor) -> Mapping[str, Tensor]:
        """One step of all that is learnt; -> metrics."""
        raise NotImplementedError


def prioritise(agent: Agent, config: TransitionConfig) -> None:
    """Draw transitions by priority, where the config says so."""
    if config.prioritised:
        agent.memory.prioritise(config.priority_alpha, config.n_step)


def batches(agent: Agent, config: TransitionConfig, updates: int) -> Iterator[Transitions]:
    """Minibatches for so many updates; by priority each is drawn after the update before it."""
    live = agent.live
    pieces = agent.memory.draws(updates, config.batch_size, config.n_step, live.gamma, live.priority_beta)
    return chain.from_iterable(in_order(piece, config.batch_size) for piece in pieces)


def renew_priorities(agent: Agent, batch: Transitions, q: Tensor, target: Tensor) -> None:
    """Priorities, where there are any, by the distances of values [n, B, ...] from targets [B, ...].

    Mean over the critics; of quantiles the distance of their means.
    """
    if agent.memory.priorities:
        if target.dim() > 1:
            q, target = q.mean(-1), target.mean(-1)
        agent.memory.priorities.update(batch.row_id, (target - q.detach()).abs().mean(0))


def updates_due(agent: Agent, config: ReplayConfig) -> Ratio:
    """The debt of updates of an agent, which a checkpoint holds."""
    agent.parts["ratio"] = ratio = Ratio(updates_per_step(config), config.learning_starts)
    return ratio


def collect_and_learn(agent: Agent, steps: int, ratio: Ratio, span: int) -> None:
    """An iteration: a few steps, then the updates that are due for them, once `span` consecutive rows can be drawn."""
    steps_before = agent.progress["env_steps"]
    agent.collect(steps)
    steps_after = agent.progress["env_steps"]
    agent.learn_from(ratio.due(steps_after - steps_before, steps_after, agent.memory.ready(span)))


def learn_statistics(agent: Agent, config: ReplayConfig, *networks: Any) -> None:
    """Let the encoders of these networks see the latest observations, where their statistics are learnt."""
    if config.normalize_obs == "rolling":
        for network in networks:
            network.encoder.learn(agent.memory.recent(config.train_freq))


def joined(batch: Transitions, next_action: Tensor) -> tuple[Obs, Tensor]:
    """(s, a), and below them (s', a')."""
    obs = tree_map(lambda x, y: torch.cat((x, y)), batch.obs, batch.next_obs)
    return obs, torch.cat((batch.action, next_action))


@torch.no_grad()
def move_towards(target: nn.Module, source: nn.Module, fraction: float) -> None:
    """target += fraction * (source - target), parameter by parameter, at once."""
    targets: list[Tensor] = [*target.parameters()]
    sources: list[Tensor] = [*source.parameters()]
    if fraction < 1:
        torch._foreach_lerp_(targets, sources, fraction)
    else:
        torch._foreach_copy_(targets, sources)
