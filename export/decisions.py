"""How each kind of policy takes its greedy action, from plain layers that any exporter knows.

A kind is known by its `act`: a policy that chooses in a way of its own is refused, whatever it descends from.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import Tree, leaves
from stride.agents.networks.actor_critic import ActorCritic
from stride.agents.networks.cnn import Image
from stride.agents.networks.dreamer_policy import Carry, DreamerPolicy
from stride.agents.networks.heads import action_mask
from stride.agents.networks.layers import ACTIVATIONS, Dense, LayerNorm
from stride.agents.networks.planning_policy import PlanningPolicy
from stride.agents.networks.q_network import QPolicy, best
from stride.agents.networks.q_table import QTable
from stride.agents.networks.recurrent import RecurrentActorCritic
from stride.agents.networks.squashed import SquashedPolicy
from stride.envs_fast.vec_env import Obs
from stride.utils.user_error import UserError


class Decision(NamedTuple):
    """The greedy action as the policy gives it, and what it was chosen by."""

    action: Tensor
    scores: dict[str, Tensor]
    """probability or q of each choice, as an Explanation calls them; nothing where actions are numbers"""
    state: tuple[Tensor, ...] = ()
    """handed back at the next step"""


class Decider(nn.Module):
    """A policy without all that only learning needs."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.policy = policy

    def initial(self) -> list[Tensor]:
        """The state of one world before an episode."""
        return []

    def forward(self, obs: Obs, state: tuple[Tensor, ...], is_first: Tensor) -> Decision:
        raise NotImplementedError


class OfActor(Decider):
    """The most likely action; no critic."""

    def __init__(self, policy: ActorCritic) -> None:
        policy.critic = None
        super().__init__(policy)

    def forward(self, obs: Obs, state: tuple[Tensor, ...], is_first: Tensor) -> Decision:
        return self.chosen(self.policy.actor(self.policy.trunk(self.policy.encoder(obs))), obs)

    def chosen(self, parameters: Tree, obs: Obs, state: tuple[Tensor, ...] = ()) -> Decision:
        head, allowed = self.policy.head, self.policy.allowed(parameters, obs)
        return Decision(head.mode(allowed), of_choices(head.distribution(allowed)), state)


class OfRecurrent(OfActor):
    """Decisions of a recurrent policy, with the actor's memory alone: the critic's decides nothing."""

    def initial(self) -> list[Tensor]:
        return leaves(self.policy.memories[0].initial(1))

    def forward(self, obs: Obs, state: tuple[Tensor, ...], is_first: Tensor) -> Decision:
        features = self.policy.encoder(obs)[None]
        outputs, state = self.policy.memories[0](features, state, is_first[None])
        return self.chosen(self.policy.head(outputs[0]), obs, state)


class OfValues(Decider):
    """The action of the highest value."""

    def forward(self, obs: Obs, state: tuple[Tensor, ...], is_first: Tensor) -> Decision:
        q = self.policy.network.mean(obs)
        return Decision(best(q, action_mask(obs)), {"q": q})


class OfTable(Decider):
    """Decisions of a table of values."""

    def forward(self, obs: Obs, state: tuple[Tensor, ...], is_first: Tensor) -> Decision:
        q = self.policy.values(obs)
        return Decision(q.argmax(-1), {"q": q})


class OfSquashed(Decider):
    """The middle of the distribution, squashed."""

    def forward(self, obs: Obs, state: tuple[Tensor, ...], is_first: Tensor) -> Decision:
        return Decision(self.policy.mode(obs), {})


class OfDreamer(Decider):
    """The most likely action at the likeliest state of the world model."""

    def __init__(self, policy: DreamerPolicy) -> None:
        policy.critic = policy.model.reward = policy.model.goes_on = nn.Sequential()
        super().__init__(policy)

    def initial(self) -> list[Tensor]:
        return leaves(self.policy.initial(1))

    def forward(self, obs: Obs, state: tuple[Tensor, ...], is_first: Tensor) -> Decision:
        policy = self.policy
        model_state = policy.recognise(obs, Carry(*state), is_first, None)
        p = policy.choices(model_state.features)
        action = policy.head.mode(p)
        return Decision(action, of_choices(policy.head.distribution(p)), (*model_state, policy.actions(action)))


KINDS: dict[Callable[..., object], type[Decider]] = {
    ActorCritic.act: OfActor,
    RecurrentActorCritic.act: OfRecurrent,
    QPolicy.act: OfValues,
    QTable.act: OfTable,
    SquashedPolicy.act: OfSquashed,
    DreamerPolicy.act: OfDreamer,
}


def decider(policy: Policy) -> Decider:
    """The greedy choice of a policy, with weights of its own; UserError where it is of no known kind."""
    decider_type = KINDS.get(type(policy).act)
    if decider_type is None:
        explanation = (
            "plans by a search at every step" if isinstance(policy, PlanningPolicy) else "chooses in its own way"
        )
        exportable = "PPO, REINFORCE, PQN, DQN, SAC, TQC, TD3, tabular Q-learning and Dreamer can be exported"
        raise UserError(f"{type(policy).__name__} {explanation}, which cannot be exported; {exportable}")
    return decider_type(portable(policy)).eval().requires_grad_(False)


def of_choices(distribution: dict[str, Tensor]) -> dict[str, Tensor]:
    """The outputs that describe choices; mean and deviation of numbers have none."""
    return {name: x for name, x in distribution.items() if name == "probability"}


def portable(policy: Policy) -> Policy:
    """A copy whose layers are torch's own where ours are faster, or others while learning."""
    portable_policy = deepcopy(policy).cpu()
    for parent_module in list(portable_policy.modules()):
        for name, child_module in parent_module.named_children():
            if type(child_module) in PLAIN:
                setattr(parent_module, name, PLAIN[type(child_module)](child_module))
    return portable_policy


def _plain_dense(layer: Any) -> nn.Module:
    linear = nn.Linear(layer.in_features, layer.out_features)
    linear.weight, linear.bias = layer.weight, layer.bias
    return nn.Sequential(linear, ACTIVATIONS[layer.activation]()) if layer.activation else linear


def _plain_norm(layer: Any) -> nn.Module:
    layer_norm = nn.LayerNorm(layer.normalized_shape, layer.eps)
    layer_norm.weight, layer_norm.bias = layer.weight, layer.bias
    return layer_norm


class WholeImage(nn.Module):
    """An Image that does not read its batch in pieces, of which a graph would hold one."""

    def __init__(self, image: Any) -> None:
        super().__init__()
        self.stored, self.by_cell, self.highest = image.stored, image.by_cell, image.highest
        self.convolutions, self.join = image.convolutions, image.join

    def forward(self, x: Tensor) -> Tensor:
        planes = x.reshape(-1, *self.stored)
        if self.by_cell:
            planes = planes.movedim(-1, 1)
        features: Tensor = self.join(self.convolutions(planes.to(torch.float32) / self.highest))
        return features


PLAIN: dict[type[nn.Module], Callable[[Any], nn.Module]] = {
    Dense: _plain_dense,
    LayerNorm: _plain_norm,
    Image: WholeImage,
}
