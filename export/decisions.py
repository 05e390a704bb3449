"""Prepares a trained policy for export: a module that computes its greedy action from plain torch layers.

`graph.py` traces this module. The kind of a policy is found by its method `act` (table KINDS): a subclass with an
`act` of its own is refused, because its actions could differ from those of the class it is derived from.
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
    """The greedy action for N worlds, and the numbers that it was chosen by."""

    action: Tensor
    """int64 [N] or [N, parts] for choices, float32 [N, numbers] for numbers; in the policy's units"""
    scores: dict[str, Tensor]
    """"probability" or "q" of each choice, named as in an Explanation; {} where actions are numbers"""
    state: tuple[Tensor, ...] = ()
    """the policy's memory, an input of the next step; () for a policy without memory"""


class Decider(nn.Module):
    """Base class: a policy without the parts that only learning needs. A subclass exists for each kind of policy."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.policy = policy

    def initial(self) -> list[Tensor]:
        """Return the memory of one world before an episode, tensors [1, ...]; [] for a policy without memory."""
        return []

    def forward(self, obs: Obs, state: tuple[Tensor, ...], is_first: Tensor) -> Decision:
        """Decide for observations [N, ...] as the policy sees them; `is_first`: bool [N], an episode begins."""
        raise NotImplementedError


class ActorDecider(Decider):
    """Decisions of an ActorCritic: the most likely action. The critic is left out."""

    def __init__(self, policy: ActorCritic) -> None:
        policy.critic = None
        super().__init__(policy)

    def forward(self, obs: Obs, state: tuple[Tensor, ...], is_first: Tensor) -> Decision:
        return self.chosen(self.policy.actor(self.policy.trunk(self.policy.encoder(obs))), obs)

    def chosen(self, parameters: Tree, obs: Obs, state: tuple[Tensor, ...] = ()) -> Decision:
        head, allowed = self.policy.head, self.policy.allowed(parameters, obs)
        return Decision(head.mode(allowed), choice_scores(head.distribution(allowed)), state)


class RecurrentDecider(ActorDecider):
    """Decisions of a recurrent policy. Only the actor's memory is kept: the critic's has no effect on actions."""

    def initial(self) -> list[Tensor]:
        return leaves(self.policy.memories[0].initial(1))

    def forward(self, obs: Obs, state: tuple[Tensor, ...], is_first: Tensor) -> Decision:
        features = self.policy.encoder(obs)[None]
        outputs, state = self.policy.memories[0](features, state, is_first[None])
        return self.chosen(self.policy.head(outputs[0]), obs, state)


class ValueDecider(Decider):
    """Decisions of a Q-network: the legal action with the highest value."""

    def forward(self, obs: Obs, state: tuple[Tensor, ...], is_first: Tensor) -> Decision:
        q = self.policy.network.mean(obs)
        return Decision(best(q, action_mask(obs)), {"q": q})


class TableDecider(Decider):
    """Decisions of a Q-table: the action with the highest value."""

    def forward(self, obs: Obs, state: tuple[Tensor, ...], is_first: Tensor) -> Decision:
        q = self.policy.values(obs)
        return Decision(q.argmax(-1), {"q": q})


class SquashedDecider(Decider):
    """Decisions of a squashed policy (SAC, TQC, TD3): the middle of its distribution, squashed into the bounds."""

    def forward(self, obs: Obs, state: tuple[Tensor, ...], is_first: Tensor) -> Decision:
        return Decision(self.policy.mode(obs), {})


class DreamerDecider(Decider):
    """Decisions of Dreamer: the most likely action at the most likely state of its world model."""

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
        return Decision(action, choice_scores(policy.head.distribution(p)), (*model_state, policy.actions(action)))


KINDS: dict[Callable[..., object], type[Decider]] = {
    ActorCritic.act: ActorDecider,
    RecurrentActorCritic.act: RecurrentDecider,
    QPolicy.act: ValueDecider,
    QTable.act: TableDecider,
    SquashedPolicy.act: SquashedDecider,
    DreamerPolicy.act: DreamerDecider,
}


def decider(policy: Policy) -> Decider:
    """Return the module that decides for `policy`, with its own copy of the weights.

    UserError for a policy of an unknown kind, and for one that searches at every step.
    """
    decider_type = KINDS.get(type(policy).act)
    if decider_type is None:
        explanation = (
            "plans by a search at every step" if isinstance(policy, PlanningPolicy) else "chooses in its own way"
        )
        exportable = "PPO, REINFORCE, PQN, DQN, SAC, TQC, TD3, tabular Q-learning and Dreamer can be exported"
        raise UserError(f"{type(policy).__name__} {explanation}, which cannot be exported; {exportable}")
    return decider_type(portable(policy)).eval().requires_grad_(False)


def choice_scores(distribution: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return only the outputs that describe choices: a distribution of numbers (mean, deviation) has none."""
    return {name: x for name, x in distribution.items() if name == "probability"}


def portable(policy: Policy) -> Policy:
    """Return a copy on the CPU in which torch's own layers replace Stride's faster ones (table PLAIN)."""
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
    """An Image encoder that reads its whole batch at once.

    Image itself reads large batches piece by piece, and a traced graph would contain only one piece.
    """

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
