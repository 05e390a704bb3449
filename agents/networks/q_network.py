"""Values of discrete actions: the network, and the policy that takes the best action or, now and then, any.

What the network learns from is the algorithms' business; `dueling`, quantiles and layer norms are arguments.
"""

from typing import NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn

from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import Act, Explanation, Tree
from stride.agents.networks.actor_critic import ACTIVATIONS
from stride.agents.networks.cnn import CNN, CNNKind
from stride.agents.networks.dense import Dense
from stride.agents.networks.encoders import FlatEncoder, images
from stride.agents.networks.heads import IMPOSSIBLE, action_mask, check_choices
from stride.agents.networks.policies import checked_options
from stride.agents.networks.threads import LayerNorm
from stride.config.schema import Config
from stride.envs_fast.vec_env import Obs, VecEnv
from stride.envs_gym.spaces import MASK
from stride.utils.user_error import UserError


class Shape(NamedTuple):
    """What a Q network is built from beside its spaces."""

    hidden_dims: tuple[int, ...]
    activation: str
    normalize_obs: bool | str = False
    cnn: CNN | None = None
    dueling: bool = False
    quantiles: int = 1
    layer_norm: bool = False


class QNetwork(nn.Module):
    """Q(s, a) for every a [..., A]; with K quantiles of the return [..., A, K]."""

    def __init__(self, space: gym.Space, actions: int, shape: Shape) -> None:
        super().__init__()
        self.actions, self.quantiles = actions, shape.quantiles
        self.encoder = FlatEncoder(space, shape.normalize_obs, shape.cnn)
        self.torso = hidden_layers(self.encoder.size, shape.hidden_dims, shape.activation, shape.layer_norm)
        width = shape.hidden_dims[-1] if shape.hidden_dims else self.encoder.size
        check_choices(actions, width * shape.quantiles)
        self.advantage = nn.Linear(width, actions * shape.quantiles)
        self.state_value = nn.Linear(width, shape.quantiles) if shape.dueling else None

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
        """Expected returns [..., A], whatever is learnt of them."""
        q: Tensor = self(obs)
        return q.mean(-1) if self.quantiles > 1 else q


class QPolicy(Policy):
    """The best action by its network, a random one with probability `epsilon`, which belongs to the algorithm."""

    draws = 2  # whether, and which

    def __init__(self, observation_space: gym.Space, action_space: gym.Space, shape: Shape, seed: int) -> None:
        super().__init__()
        if not isinstance(action_space, gym.spaces.Discrete):
            raise UserError(f"action values need one discrete action, not {action_space}; ppo and sac take others")
        self.network = QNetwork(observation_space, int(action_space.n), shape)
        self.masked = isinstance(observation_space, gym.spaces.Dict) and MASK in observation_space.spaces
        self.epsilon: float | Tensor = 0.0  # a tensor [], where a schedule moves it and a graph reads it
        initialize_evenly(self, torch.Generator().manual_seed(seed))

    def initial(self, num_envs: int) -> Tree:
        return ()

    def laid_out(self, obs: Obs) -> Obs:
        return self.network.encoder.laid_out(obs)

    def act(self, obs: Obs, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        moving = isinstance(self.epsilon, Tensor)  # so nothing is decided by it on the host
        if greedy or not (moving or self.epsilon > 0):
            return Act(best(self.network.mean(obs), self.mask(obs)))
        chosen = any_of(self.mask(obs), self.network.actions, noise[:, 1])
        if moving or self.epsilon < 1:  # else nobody asks the network
            value = best(self.network.mean(obs), self.mask(obs))
            chosen = torch.where(noise[:, 0] < self.epsilon, chosen, value)
        return Act(chosen)

    def mask(self, obs: Obs) -> Tensor | None:
        """Which actions make sense [..., A] bool, where the observation says so."""
        return action_mask(obs) if self.masked else None

    def value(self, obs: Obs) -> Tensor:
        """Of the best action that makes sense, [...]."""
        q, mask = self.network.mean(obs), self.mask(obs)
        return (q if mask is None else q.masked_fill(~mask, IMPOSSIBLE)).amax(-1)

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        q, mask = self.network.mean(obs), self.mask(obs)
        likely = torch.ones_like(q) if mask is None else mask.float()
        greedy = torch.nn.functional.one_hot(best(q, mask), q.shape[-1]).float()
        p = self.epsilon * likely / likely.sum(-1, keepdim=True) + (1 - self.epsilon) * greedy
        entropy = torch.special.entr(p).sum(-1)
        return Explanation(self.network.encoder(obs), {"probability": p, "q": q}, entropy, self.value(obs))


def best(q: Tensor, mask: Tensor | None) -> Tensor:
    """The action of the highest value among those in the mask [..., A] bool, int64 [...]."""
    return (q if mask is None else q.masked_fill(~mask, IMPOSSIBLE)).argmax(-1)


def any_of(mask: Tensor | None, actions: int, u: Tensor) -> Tensor:
    """Each action in the mask with the same chance, from one uniform [N]."""
    if mask is None:
        return (u * actions).long().clamp(max=actions - 1)
    place = (u * mask.sum(-1)).long().minimum(mask.sum(-1) - 1)
    return (mask.cumsum(-1) <= place[..., None]).sum(-1)


def build_q_policy(config: Config, envs: VecEnv, shape: Shape) -> QPolicy:
    """The policy a config names, mlp or cnn, with the rest of its shape, where the worlds lie."""
    shape = shape._replace(cnn=image_reader(config, envs))
    return QPolicy(envs.observation_space, envs.action_space, shape, config.seed).to(envs.device)


def image_reader(config: Config, envs: VecEnv) -> CNN | None:
    """What reads the images: nothing for policy mlp, which takes none unless it is told to flatten them."""
    shapes = images(envs.observation_space)
    if config.policy == "cnn":
        if not shapes:
            raise UserError(
                f"policy: cnn reads images, but the observation is {envs.observation_space}; take policy=mlp"
            )
        options = checked_options("cnn", _cnn, config.policy_kwargs)
        if options.get("features", 1) < 1:
            raise UserError(f"policy_kwargs.features must be at least 1, not {options['features']}")
        return _cnn(**options)
    if config.policy != "mlp":
        raise UserError(f"{config.algo_id} takes policy: mlp or cnn, not {config.policy}")
    flatten = checked_options("mlp", _mlp, config.policy_kwargs).get("flatten_images", False)
    if shapes and not flatten:
        raise UserError(
            f"policy: mlp does not read images, and the observation has one {list(shapes[0])}; take policy=cnn"
        )
    return None


def _cnn(cnn: CNNKind = "nature", features: int = 512) -> CNN:
    return CNN(cnn, features)


def _mlp(flatten_images: bool = False) -> None:
    """Options without a network of their own."""


def hidden_layers(size: int, hidden_dims: tuple[int, ...], activation: str, layer_norm: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in zip((size, *hidden_dims), hidden_dims, strict=False):
        normed = [Dense(fan_in, fan_out), LayerNorm(fan_out), ACTIVATIONS[activation]()]
        layers += normed if layer_norm else [Dense(fan_in, fan_out, activation)]
    return nn.Sequential(*layers)


def initialize_evenly(module: nn.Module, generator: torch.Generator) -> None:
    """Weights and biases within +-1 / sqrt(inputs), as torch itself and so the published settings do."""
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                bound = layer.weight[0].numel() ** -0.5
                for parameter in (layer.weight, layer.bias):
                    if parameter is not None:
                        parameter.uniform_(-bound, bound, generator=generator)
