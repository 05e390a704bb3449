"""The policy of on-policy algorithms: an actor and, if needed, a critic, separate or with shared layers (the trunk).

`ActorCritic` has no memory, and is the base class of policies with one and of users' own. Its public methods are those
that on-policy algorithms call. observation -> encoder -> trunk -> actor layers -> head, and -> critic layers -> V.
Letters in shapes: T steps, N environments, S slots for final observations.
"""

from copy import deepcopy
from typing import NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn

from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import Act, Explanation, Rollout, Tree, known_uncut, leaves
from stride.agents.networks.cnn import CNN, Block
from stride.agents.networks.encoders import FlatEncoder, parts_of
from stride.agents.networks.heads import Gaussian, action_mask, head_for
from stride.agents.networks.layers import ACTIVATIONS, initialize_evenly
from stride.agents.networks.residual import torso
from stride.agents.returns import next_values
from stride.config.network import NetworkShape
from stride.envs_fast.vec_env import Obs
from stride.envs_gym.spaces import MASK
from stride.utils.user_error import UserError


class Plan(NamedTuple):
    """The arguments that every policy has; options of one kind of policy are its own further arguments."""

    observation_space: gym.Space
    action_space: gym.Space
    hidden_dims: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    share_trunk: bool = False
    critic: bool = True
    normalize_obs: bool | str = False
    seed: int = 0
    cnn: CNN | None = None
    """the network that reads images; None: images are flattened like other numbers"""
    shapes: tuple[NetworkShape, NetworkShape] | None = None
    """of (actor, critic), if the config has a block `actor` or `critic`; None: both as above"""


class Judgement(NamedTuple):
    """What the present weights say about an action that was taken before; tensors [B] or [T, B]."""

    log_prob: Tensor
    """log pi(a|s)"""
    entropy: Tensor
    """of pi at s, in nats"""
    value: Tensor
    """V(s)"""


class ActorCritic(Policy):
    """pi(a|s) and V(s) from flat features. Without a critic V is 0 everywhere and costs nothing."""

    membership: Tensor
    cut = "rows"
    """how its rows are cut into minibatches, a key of CUTS"""

    def __init__(self, plan: Plan, log_std_init: float = 0.0) -> None:
        super().__init__()
        self.encoder = FlatEncoder(plan.observation_space, plan.normalize_obs, plan.cnn)
        self.trunk = self.torso(plan) if plan.share_trunk else nn.Identity()
        actor, width = self._layers(plan, "actor")
        self.head = head_for(plan.action_space, width, log_std_init)
        self.actor = nn.Sequential(actor, self.head)
        self.critic: nn.Sequential | None = None
        if plan.critic:
            critic, width = self._layers(plan, "critic")
            self.critic = nn.Sequential(critic, nn.Linear(width, 1))
        self.draws = self.head.draws
        self.masked = self._has_mask(plan.observation_space)
        parameter_groups = self._groups()
        self.parts = list(parameter_groups)  # such as ["actor", "critic"]: parts whose gradient norms are logged
        # [parts + 1, parameters]: 1 where a parameter belongs to a part; the last row is all of them
        belonging = [[float(id(p) in group) for p in self.parameters()] for group in parameter_groups.values()]
        self.register_buffer("membership", torch.tensor([*belonging, [1.0] * len(belonging[0])]), persistent=False)
        generator = torch.Generator().manual_seed(plan.seed)
        initialize(self, generator)
        for network, shape in zip((self.actor, self.critic), plan.shapes or (), strict=False):
            if network is not None and shape.init == "uniform":
                initialize_evenly(network[0], generator)

    def torso(self, plan: Plan) -> nn.Module:
        """Make layers from `encoder.size` features to `hidden_dims[-1]`, for the trunk or for actor and critic."""
        return mlp(self.encoder.size, plan.hidden_dims, ACTIVATIONS[plan.activation])

    def _layers(self, plan: Plan, part: str) -> tuple[nn.Module, int]:
        """Return the layers between trunk and last layer of `part`, "actor" or "critic", and their output width."""
        if plan.shapes is None:
            width = plan.hidden_dims[-1] if plan.hidden_dims else self.encoder.size
            return nn.Identity() if plan.share_trunk else self.torso(plan), width
        if type(self).torso is not ActorCritic.torso:
            kind = type(self).__name__
            raise UserError(f"actor and critic are blocks for policy mlp and cnn; {kind} has its own layers")
        shape = plan.shapes[part == "critic"]
        parts_of(plan.observation_space, shape.obs, part)  # raises UserError for a part that does not exist
        columns = self.encoder.columns(shape.obs or tuple(self.encoder.keys))
        layers = torso(len(columns), shape)
        width = shape.hidden_dims[-1] if shape.hidden_dims else len(columns)
        return (nn.Sequential(Columns(columns), layers) if shape.obs else layers), width

    def initial(self, num_envs: int) -> Tree:
        return ()

    def laid_out(self, obs: Obs) -> Obs:
        return self.encoder.laid_out(obs)

    def act(self, obs: Obs, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        """Return the actions only: values and log-probabilities of a whole rollout are cheaper in one pass later."""
        parameters = self.allowed(self.actor(self.trunk(self.encoder(obs))), obs)
        return Act(self.head.mode(parameters) if greedy else self.head.sample(parameters, noise))

    def value(self, obs: Obs, carry: Tree, is_first: Tensor) -> Tensor:
        """Return V of observations [..., *shape] -> [...]."""
        if self.critic is None:
            return torch.zeros_like(is_first, dtype=torch.float32)
        return self.critic(self.trunk(self.encoder(obs))).squeeze(-1)

    def evaluate(self, obs: Obs, carry: Tree, is_first: Tensor, action: Tensor) -> Judgement:
        """Return log pi(action|s), entropy and V(s), with gradients; this is what losses are made of."""
        parameters, value = self.parameters_and_value(obs, carry, is_first)
        return Judgement(self.head.log_prob(parameters, action), self.head.entropy(parameters), value)

    def parameters_and_value(self, obs: Obs, carry: Tree, is_first: Tensor) -> tuple[Tree, Tensor]:
        """Return the head's parameters, restricted by the mask, and V, in one pass."""
        features = self.trunk(self.encoder(obs))
        parameters = self.allowed(self.actor(features), obs)
        state_value = self.value(obs, carry, is_first) if self.critic is None else self.critic(features).squeeze(-1)
        return parameters, state_value

    def allowed(self, parameters: Tree, obs: Obs) -> Tree:
        """Restrict the head's parameters to the actions that the observation's mask allows, if it has a mask."""
        mask = action_mask(obs)
        return parameters if mask is None else self.head.restrict(parameters, mask)  # type: ignore[operator]

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        encoded = self.encoder(obs)
        features = self.trunk(encoded)
        parameters = self.allowed(self.actor(features), obs)
        state_value = None if self.critic is None else self.critic(features).squeeze(-1)
        return Explanation(encoded, self.head.distribution(parameters), self.head.entropy(parameters), state_value)

    def next_values(self, rollout: Rollout, v_t: Tensor, is_first: Tensor) -> Tensor:
        """Return V of what each action led to, [T, N]; `v_t` [T, N]: V of the rows, `is_first` [N]: of rollout.next."""
        slot_shape = leaves(rollout.final.obs)[0].shape[:2]
        v_next = self.value(*rollout.next, is_first)
        v_final = None if known_uncut(rollout) else self.value(*rollout.final, is_first.new_zeros(slot_shape))
        return next_values(v_t, v_next, v_final, rollout.row.truncated, rollout.row.slot)

    def gradient_norms(self, norms: Tensor) -> dict[str, Tensor]:
        """Return gradient norms of actor, critic, trunk and all, from those of single parameters, in their order."""
        totals = (self.membership @ norms.square()).sqrt()
        return {f"train/grad_norm/{part}": norm for part, norm in zip((*self.parts, "total"), totals, strict=True)}

    def _groups(self) -> dict[str, set[int]]:
        """Return the ids of the parameters of actor, critic and trunk; parts without parameters are left out.

        The network that reads images serves actor and critic, so it belongs to the trunk.
        """
        modules = {"actor": self.actor, "critic": self.critic, "trunk": nn.ModuleList([self.encoder, self.trunk])}
        groups = {name: {id(p) for p in module.parameters()} for name, module in modules.items() if module is not None}
        return {name: ids for name, ids in groups.items() if ids}

    def _has_mask(self, space: gym.Space) -> bool:
        """Return whether observations have an action mask; UserError if it does not fit the actions."""
        if not isinstance(space, gym.spaces.Dict) or MASK not in space.spaces:
            return False
        if isinstance(self.head, Gaussian):
            raise UserError(f"the observation has an {MASK}, but only discrete actions can be masked")
        mask_shape = space[MASK].shape or ()
        option_count = self.head.linear.out_features
        if mask_shape != (option_count,):
            raise UserError(f"{MASK} has the shape {list(mask_shape)}, but the actions need {[option_count]}")
        return True


class Columns(nn.Module):
    """Select numbers of a vector [..., size] by their indices: the parts of an observation that a network reads."""

    columns: Tensor

    def __init__(self, columns: list[int]) -> None:
        super().__init__()
        self.register_buffer("columns", torch.tensor(columns), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x.index_select(-1, self.columns)


class Lagging(nn.Module):
    """With `lag: 1`: a copy of the policy as it was one iteration ago, with the observation statistics of that time.

    The copy plays every rollout, so that playing need not wait for learning, and no bit of the results depends on
    timing. The present policy judges the same raw observations with its present statistics.
    """

    def __init__(self, policy: ActorCritic) -> None:
        super().__init__()
        self.policy = deepcopy(policy).requires_grad_(False)

    @torch.no_grad()
    def log_prob(self, rollout: Rollout) -> Tensor:
        """Return the log-probabilities [T, N] of the actions that the copy chose."""
        row = rollout.row
        return self.policy.evaluate(row.obs, rollout.start, row.is_first, row.action).log_prob

    @torch.no_grad()
    def follow(self, policy: ActorCritic) -> None:
        """Copy the weights and statistics of `policy`; every tensor keeps its address, because CUDA graphs read it."""
        for old_tensor, new_tensor in zip(_tensors(self.policy), _tensors(policy), strict=True):
            old_tensor.copy_(new_tensor)


def _tensors(policy: ActorCritic) -> list[Tensor]:
    return [*policy.parameters(), *policy.buffers()]


def mlp(size: int, hidden_dims: tuple[int, ...], activation: type[nn.Module]) -> nn.Sequential:
    """Make linear layers of these widths on `size` inputs, each followed by the activation."""
    modules: list[nn.Module] = []
    for fan_in, fan_out in zip((size, *hidden_dims), hidden_dims, strict=False):
        modules += [nn.Linear(fan_in, fan_out), activation()]
    return nn.Sequential(*modules)


def initialize(policy: ActorCritic, generator: torch.Generator) -> None:
    """Draw first weights: orthogonal, biases 0; gain sqrt(2) in hidden layers, 1 in cells and for V, 0.01 for actions.

    Residual blocks of images begin as the identity; else the sum of their outputs would saturate the next layers.
    """
    head_modules = {id(module) for module in policy.head.modules()}
    for module in policy.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            weight_gain = 0.01 if id(module) in head_modules else 2**0.5
            if policy.critic is not None and module is policy.critic[1]:
                weight_gain = 1.0
            nn.init.orthogonal_(module.weight, weight_gain, generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.RNNCellBase):
            for weight, bias in ((module.weight_ih, module.bias_ih), (module.weight_hh, module.bias_hh)):
                nn.init.orthogonal_(weight, 1.0, generator)
                nn.init.zeros_(bias)
    for module in policy.modules():
        if isinstance(module, Block):
            nn.init.zeros_(module.second.weight)
