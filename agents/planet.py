"""PlaNet (Hafner et al. 2019): Dreamer's world model, with a planner in place of actor and critic."""

from collections.abc import Mapping

from torch import Tensor

from stride.agents.base import Agent
from stride.agents.experience.nouns import Sequences
from stride.agents.model_learning import Ends, ModelLoss, ModelLosses, model_loss
from stride.agents.networks.planning_policy import PlanningPolicy
from stride.agents.off_policy import collect_and_learn, replay_size, updates_due
from stride.config.schema import PlaNetConfig
from stride.envs_fast.vec_env import VecEnv
from stride.utils.counter_rng import EXPLORE, uniforms


class PlaNet(Agent):
    """Play into a replay memory, and learn the world model from it; the policy plans each action with the model."""

    config: PlaNetConfig
    policy: PlanningPolicy

    def __init__(self, config: PlaNetConfig, envs: VecEnv, rank: int = 0) -> None:
        policy = PlanningPolicy(config, envs).to(envs.device)
        size = replay_size(config, envs, keep_terminal=True)
        super().__init__(config, envs, policy, *size, keep_terminal=True, rank=rank, storage=config.replay_storage)
        self.ends = Ends().to(envs.device)
        self.ratio = updates_due(self, config)

    def iteration(self) -> None:
        self.policy.epsilon = self.live.epsilon
        self.policy.at_random = self.progress["env_steps"] < self.config.learning_starts
        collect_and_learn(self, self.config.train_freq, self.ratio, self.config.batch_length + 1)

    def learn(self, updates: int, losses: ModelLosses | None = None) -> None:
        """Make this many updates. `losses`: what computes the loss, such as an engine; None: this class, in torch."""
        size, length = self.config.batch_size, self.config.batch_length
        self.metrics.add_all([self.update(self.memory.sequences(size, length), losses) for _ in range(updates)])

    def recall_loss(self, batch: Sequences, u: Tensor) -> ModelLoss:
        """Return the model's losses on replayed sequences; `u`: uniforms [L, B, S] for its states."""
        return model_loss(self.policy, batch, u, self.live)

    def update(self, batch: Sequences, losses: ModelLosses | None = None) -> Mapping[str, Tensor]:
        """Make one step on the model's loss; -> metrics."""
        losses = losses or self
        draw_shape = (*batch.reward.shape, self.policy.model.rssm.draws)
        u = uniforms(self.key(EXPLORE, self.progress["updates"]), draw_shape, batch.reward.device)
        recalled = losses.recall_loss(batch, u)
        gradient_norms = self.descend(losses.optimizer, recalled.loss, self.live.max_grad_norm)
        self.metrics.set(self.ends.learn(recalled.ends, batch.terminated))
        parts = {f"train/loss/{name}": value for name, value in recalled.parts.items()}
        return {**parts, **recalled.metrics, "train/grad_norm/total": gradient_norms.norm()}
