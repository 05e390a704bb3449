"""The common parts of algorithms that learn from a replay memory: its size, batches, an iteration, target networks."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stride.agents.base import Agent
from stride.agents.experience.memory import slots_for
from stride.agents.experience.minibatches import in_order
from stride.agents.experience.nouns import Transitions
from stride.agents.experience.ratio import Ratio, updates_per_step
from stride.agents.networks.cnn import CNN
from stride.agents.networks.popart import ValueScale, scale_values
from stride.agents.networks.q_network import image_reader
from stride.agents.networks.squashed import BoundedPolicy, Critics
from stride.config.schema import BoundedConfig, ReplayConfig, TransitionConfig
from stride.envs_fast.vec_env import VecEnv

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


class Layers(NamedTuple):
    """What actor and critics have in common: hidden layers, and how they read observations."""

    hidden_dims: tuple[int, ...]
    activation: str
    normalize_obs: bool | str
    cnn: CNN | None


def layers_of(config: BoundedConfig, envs: VecEnv) -> Layers:
    return Layers(config.hidden_dims, config.activation, config.normalize_obs, image_reader(config, envs))


def build_critics(config: BoundedConfig, envs: VecEnv, actions: int, n: int, quantiles: int) -> Critics:
    """`n` critics of `actions` numbers, each with so many quantiles, on the device of the worlds."""
    layers = layers_of(config, envs)
    critics = Critics(n, envs.observation_space, actions, *layers, config.seed + 1, quantiles)
    scale_values(critics, config, *(f"networks.{i}.layers.{len(config.hidden_dims)}" for i in range(n)))
    return critics.to(envs.device)


class BoundedAgent(Agent):
    """An actor and critics of actions with bounds, which learn from a replay memory: the base of SAC, TQC and TD3."""

    config: BoundedConfig
    policy: BoundedPolicy
    actor: type[BoundedPolicy]

    def __init__(self, config: BoundedConfig, envs: VecEnv, rank: int = 0) -> None:
        policy = self.actor(
            envs.observation_space, envs.action_space, *layers_of(config, envs), config.noise_correlation, config.seed
        ).to(envs.device)
        super().__init__(config, envs, policy, *replay_size(config, envs), rank=rank, storage=config.replay_storage)
        prioritise(self, config)
        self.critics = build_critics(config, envs, policy.draws, *self.critic_sizes)
        self.target = deepcopy(self.critics).requires_grad_(False)
        self.value_scale = ValueScale(self.critics, self.target)
        self.ratio = updates_due(self, config)

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
        """Let the encoders see the latest observations."""
        learn_statistics(self, self.config, self.policy, self.critics, self.target)

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


@torch.no_grad()
def move_towards(target: nn.Module, source: nn.Module, fraction: float) -> None:
    """target += fraction * (source - target), parameter by parameter, at once."""
    targets: list[Tensor] = [*target.parameters()]
    sources: list[Tensor] = [*source.parameters()]
    if fraction < 1:
        torch._foreach_lerp_(targets, sources, fraction)
    else:
        torch._foreach_copy_(targets, sources)
