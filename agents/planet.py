"""PlaNet: Dreamer's world model with a planner in the place of actor and critic (Hafner et al. 2019)."""

from collections.abc import Mapping

from torch import Tensor
from torch.optim import Optimizer

from stride.agents.base import Agent, build_optimizer
from stride.agents.experience.nouns import Sequences
from stride.agents.model_learning import Ends, ModelLoss, ModelLosses, collect_and_learn, model_loss, updates_owed
from stride.agents.networks.planning_policy import PlanningPolicy
from stride.agents.off_policy import replay_room
from stride.config.schema import PlaNetConfig
from stride.envs_fast.vec_env import VecEnv
from stride.utils.counter_rng import EXPLORE, uniforms


class PlaNet(Agent):
    """Steps into a replay memory, and a loss for the model: what to do follows from it when it is asked for."""

    config: PlaNetConfig
    policy: PlanningPolicy

    def __init__(self, config: PlaNetConfig, envs: VecEnv, rank: int = 0) -> None:
        policy = PlanningPolicy(config, envs).to(envs.device)
        room = replay_room(config, envs, keep_terminal=True)
        super().__init__(config, envs, policy, *room, keep_terminal=True, rank=rank, storage=config.replay_storage)
        self.ends, self.ratio = Ends().to(envs.device), updates_owed(self, config)

    def configure_optimizers(self) -> Optimizer:
        return build_optimizer(self.config, list(self.policy.parameters()), self.live.policy_lr)

    def iteration(self) -> None:
        self.policy.epsilon = self.live.epsilon
        collect_and_learn(self, self.policy, self.config, self.ratio)

    def learn(self, updates: int, losses: ModelLosses | None = None) -> None:
        """Make updates by this loss; an engine passes its own, by default it is this class's, in torch."""
        size, length = self.config.batch_size, self.config.batch_length
        self.metrics.add_all([self.update(self.memory.sequences(size, length), losses) for _ in range(updates)])

    def recall_loss(self, batch: Sequences, u: Tensor) -> ModelLoss:
        """The model's losses on what is remembered."""
        return model_loss(self.policy, batch, u, self.config)

    def update(self, batch: Sequences, losses: ModelLosses | None = None) -> Mapping[str, Tensor]:
        losses = losses or self
        shape = (*batch.reward.shape, self.policy.sizes.stoch)
        u = uniforms(self.key(EXPLORE, self.progress["updates"]), shape, batch.reward.device)
        told = losses.recall_loss(batch, u)
        norms = self.descend(losses.optimizer, told.loss, self.live.max_grad_norm)
        self.metrics.set(self.ends.learn(told.ends, batch.terminated))
        parts = {f"train/loss/{name}": value for name, value in told.parts.items()}
        return {**parts, **told.metrics, "train/grad_norm/total": norms.norm()}
