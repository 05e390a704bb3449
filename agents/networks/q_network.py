"""Networks for Q(s, a) of discrete actions, and the epsilon-greedy policy on them: for DQN and PQN.

Targets and losses are in the algorithms' files. Letters in shapes: N environments, B samples, A actions, K quantiles.
"""

from typing import NamedTuple

import gymnasium as gym
import torch
from gymnasium.spaces import Dict, Discrete
from torch import Tensor, nn

from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import Act, Explanation, Tree
from stride.agents.networks.cnn import CNN
from stride.agents.networks.encoders import FlatEncoder
from stride.agents.networks.heads import IMPOSSIBLE, action_mask, check_choices
from stride.agents.networks.layers import hidden_layers, initialize_evenly
from stride.agents.networks.policies import check_reads_images, check_reads_no_images, checked_cnn, checked_options
from stride.agents.networks.popart import scale_values
from stride.config.schema import Config
from stride.envs_fast.vec_env import Obs, VecEnv
from stride.envs_gym.spaces import MASK
from stride.utils.user_error import UserError


class QNetworkShape(NamedTuple):
    """The arguments of a Q-network, without its spaces."""

    hidden_dims: tuple[int, ...]
    activation: str
    normalize_obs: bool | str = False
    cnn: CNN | None = None
    dueling: bool = False
    """separate outputs for V and the advantages (Wang et al. 2016)"""
    quantiles: int = 1
    """of the return, for each action; 1 = only the mean"""
    layer_norm: bool = False


class QNetwork(nn.Module):
    """Computes Q(s, a) of all actions, [..., A]; with K > 1 quantiles of the return, [..., A, K]."""

    def __init__(self, space: gym.Space, actions: int, shape: QNetworkShape) -> None:
        super().__init__()
        self.actions, self.quantiles = actions, shape.quantiles
        self.encoder = FlatEncoder(space, shape.normalize_obs, shape.cnn)
        self.torso = hidden_layers(self.encoder.size, shape.hidden_dims, shape.activation, shape.layer_norm)
        features_out = shape.hidden_dims[-1] if shape.hidden_dims else self.encoder.size
        check_choices(actions, features_out * shape.quantiles)
        self.advantage = nn.Linear(features_out, actions * shape.quantiles)
        self.state_value = nn.Linear(features_out, shape.quantiles) if shape.dueling else None

    def forward(self, obs: Obs) -> Tensor:
        features = self.torso(self.encoder(obs))
        q = self.advantage(features)
        if self.quantiles > 1 or self.state_value is not None:
            q = q.unflatten(-1, (self.actions, self.quantiles))
            if self.state_value is not None:  # Q = V + A - mean of A over the actions (Wang et al. 2016, eq. 9)
                q = q - q.mean(-2, keepdim=True) + self.state_value(features)[..., None, :]
            q = q if self.quantiles > 1 else q.squeeze(-1)
        return q

    def mean(self, obs: Obs) -> Tensor:
        """Return expected returns [..., A], also if the network has quantiles."""
        q: Tensor = self(obs)
        return q.mean(-1) if self.quantiles > 1 else q


class QPolicy(Policy):
    """Takes the action with the highest Q, or with probability `epsilon`, which the algorithm sets, a random one."""

    draws = 2  # uniforms for an action: whether it is random, and which random one

    def __init__(self, observation_space: gym.Space, action_space: gym.Space, shape: QNetworkShape, seed: int) -> None:
        super().__init__()
        if not isinstance(action_space, Discrete):
            raise UserError(f"action values need one discrete action, not {action_space}; use ppo or sac")
        self.network = QNetwork(observation_space, int(action_space.n), shape)
        self.masked = isinstance(observation_space, Dict) and MASK in observation_space.spaces
        self.epsilon: float | Tensor = 0.0  # a tensor [] if a CUDA graph reads it while a schedule changes it
        initialize_evenly(self, torch.Generator().manual_seed(seed))

    def initial(self, num_envs: int) -> Tree:
        return ()

    def laid_out(self, obs: Obs) -> Obs:
        return self.network.encoder.laid_out(obs)

    def act(self, obs: Obs, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        allowed_actions = action_mask(obs)
        on_device = isinstance(self.epsilon, Tensor)  # then the host does not read whether it is 0 or 1
        if greedy or not (on_device or self.epsilon > 0):
            return Act(best(self.network.mean(obs), allowed_actions))
        action = any_of(allowed_actions, self.network.actions, noise[:, 1])
        if on_device or self.epsilon < 1:
            action = torch.where(noise[:, 0] < self.epsilon, action, best(self.network.mean(obs), allowed_actions))
        return Act(action)

    def value(self, obs: Obs) -> Tensor:
        """Return V(s) = max over allowed actions of Q(s, a), [...]."""
        return masked(self.network.mean(obs), action_mask(obs)).amax(-1)

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        q = self.network.mean(obs)
        allowed_actions = action_mask(obs)
        random_chances = torch.ones_like(q) if allowed_actions is None else allowed_actions.float()
        greedy_chances = torch.nn.functional.one_hot(best(q, allowed_actions), q.shape[-1]).float()
        p = self.epsilon * random_chances / random_chances.sum(-1, keepdim=True) + (1 - self.epsilon) * greedy_chances
        entropy = torch.special.entr(p).sum(-1)
        return Explanation(self.network.encoder(obs), {"probability": p, "q": q}, entropy, self.value(obs))


def masked(q: Tensor, mask: Tensor | None) -> Tensor:
    """Return q [..., A] with a very low value for actions outside the mask [..., A] bool; None: all are allowed."""
    return q if mask is None else q.masked_fill(~mask, IMPOSSIBLE)


def best(q: Tensor, mask: Tensor | None) -> Tensor:
    """Return the action with the highest value in the mask [..., A] bool (None: of all). -> int64 [...]"""
    return masked(q, mask).argmax(-1)


def pick(values: Tensor, action: Tensor) -> Tensor:
    """Return the values of actions int64 [B]: [B, A] -> [B], quantiles [B, A, K] -> [B, K]."""
    if values.dim() == 2:
        return values.gather(1, action[:, None]).squeeze(1)
    return values.gather(1, action[:, None, None].expand(-1, 1, values.shape[2])).squeeze(1)


def any_of(mask: Tensor | None, actions: int, u: Tensor) -> Tensor:
    """Draw one of the actions in the mask [N, A] (None: of all), all equally likely, from uniforms u [N]."""
    if mask is None:
        return (u * actions).long().clamp(max=actions - 1)
    choice_rank = (u * mask.sum(-1)).long().minimum(mask.sum(-1) - 1)
    return (mask.cumsum(-1) <= choice_rank[..., None]).sum(-1)


def build_q_policy(config: Config, envs: VecEnv, shape: QNetworkShape) -> QPolicy:
    """Build the Q policy of a config, with policy mlp or cnn, on the device of the environments."""
    cnn = image_reader(config, envs)
    if cnn is not None and cnn.kind == "small":
        cnn = cnn._replace(layer_norm=shape.layer_norm)
    shape = shape._replace(cnn=cnn)
    policy = QPolicy(envs.observation_space, envs.action_space, shape, config.seed)
    # both outputs of a dueling network get PopArt: the mean mu in the advantages cancels, as their mean is subtracted
    scale_values(policy.network, config, "advantage", *["state_value"] * shape.dueling)
    return policy.to(envs.device)


def image_reader(config: Config, envs: VecEnv) -> CNN | None:
    """Return the network that reads images; None for policy mlp, which takes images only with flatten_images.

    UserError for another policy, or if the policy does not fit the observations.
    """
    match config.policy:
        case "cnn":
            cnn = checked_cnn(**checked_options("cnn", checked_cnn, config.policy_kwargs))
            check_reads_images(envs.observation_space, cnn)
            return cnn
        case "mlp":
            if not checked_options("mlp", _mlp, config.policy_kwargs).get("flatten_images"):
                check_reads_no_images(envs.observation_space)
            return None
    raise UserError(f"{config.algo_id} takes policy: mlp or cnn, not {config.policy}")


def _mlp(flatten_images: bool = False) -> None:
    """Declares the policy_kwargs of policy mlp; never called for a result."""
