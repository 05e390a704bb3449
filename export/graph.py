"""From a loaded run to one traced function of observations (and of a state), for any number of worlds."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from stride.agents.trained.loading import LoadedRun
from stride.envs_fast.vec_env import Obs
from stride.export.decisions import Decider, Decision, decider
from stride.export.ports import (
    ACTION,
    IS_FIRST,
    ActionDecoder,
    Face,
    ObservationEncoder,
    ObservationLeaf,
    Port,
    following,
    leaves,
    start,
)
from stride.utils.user_error import UserError

BATCH = "batch"
EXAMPLES = 2  # rows to trace with: one alone would be taken for a constant


class Reflex(nn.Module):
    """obs -> {action, probability or q}; of a policy that remembers nothing."""

    def __init__(self, observation_space: Space[Any], action_space: Space[Any], decide: Decider) -> None:
        super().__init__()
        self.reading, self.acting, self.decide = (
            ObservationEncoder(observation_space),
            ActionDecoder(action_space),
            decide,
        )

    def decision(self, obs: Obs, state_ports: tuple[Tensor, ...], is_first: Tensor) -> Decision:
        decision: Decision = self.decide(self.reading(obs), state_ports, is_first)
        return decision._replace(action=self.acting(decision.action))

    def forward(self, obs: Obs) -> dict[str, Any]:
        decision = self.decision(obs, (), torch.zeros(0, dtype=torch.bool))
        return {ACTION: decision.action, **decision.scores}


class Remembering(Reflex):
    """A policy with a state, which comes back as `state` and is empty where `is_first`."""

    def forward(  # type: ignore[override]
        self, obs: Obs, state_ports: tuple[Tensor, ...], is_first: Tensor
    ) -> dict[str, Any]:
        decision = self.decision(obs, state_ports, is_first)
        return {ACTION: decision.action, **decision.scores, "state": decision.state}


class Deployed(NamedTuple):
    """A policy from the environment's observation to the environment's action."""

    module: Reflex
    face: Face


def deployed(loaded: LoadedRun) -> Deployed:
    """The part of a run that is exported; UserError for what no file could hold."""
    if loaded.config.precision == "bf16":
        raise UserError(
            f"{loaded.run.id} was trained with precision: bf16 and plays in bf16, but exported files use float32; "
            "train with precision=32 to export"
        )
    env = loaded.make_env()
    observation_space, action_space = env.observation_space, env.action_space
    env.close()
    decide = decider(loaded.agent.policy)
    initial = decide.initial()
    module_type = Remembering if initial else Reflex
    module = module_type(observation_space, action_space, decide).eval()
    observation_leaves = tuple(leaves(observation_space))
    state_ports = tuple(Port(f"state_{index}", "float32", tuple(x.shape[1:])) for index, x in enumerate(initial))
    return Deployed(
        module, Face(observation_leaves, state_ports, outputs(module, observation_leaves, initial, state_ports))
    )


def outputs(
    module: Reflex, known: tuple[ObservationLeaf, ...], initial: list[Tensor], state_ports: tuple[Port, ...]
) -> tuple[Port, ...]:
    """By asking it once."""
    with torch.inference_mode():
        answer = module(*example(known, initial, 1))
    environment_action = answer[ACTION]
    scores = [Port(name, "float32", tuple(x.shape[1:])) for name, x in answer.items() if name in ("probability", "q")]
    action = Port(ACTION, str(environment_action.dtype).removeprefix("torch."), tuple(environment_action.shape[1:]))
    return (action, *scores, *(port._replace(name=following(port.name)) for port in state_ports))


def example(known: tuple[ObservationLeaf, ...], initial: list[Tensor], rows: int) -> tuple[Any, ...]:
    """Arguments of so many worlds: whatever is observed is as low as it gets."""
    observations = {leaf.name: torch.as_tensor(_lowest(leaf)).expand(rows, *leaf.shape).clone() for leaf in known}
    obs: Any = observations if known[0].path else observations[known[0].name]
    if not initial:
        return (obs,)
    return obs, tuple(x.repeat(rows, *[1] * (x.dim() - 1)) for x in initial), torch.ones(rows, dtype=torch.bool)


def arguments(face: Face, inputs: Mapping[str, np.ndarray]) -> tuple[Any, ...]:
    """Inputs by name as the arguments of the module, traced or not."""
    tensors = {name: torch.from_numpy(value) for name, value in inputs.items()}
    observations: Any = {leaf.name: tensors[leaf.port] for leaf in face.leaves}
    obs = observations if face.leaves[0].path else tensors[face.leaves[0].port]
    return (obs, tuple(tensors[port.name] for port in face.state), tensors[IS_FIRST]) if face.state else (obs,)


def _lowest(leaf: ObservationLeaf) -> Tensor:
    return torch.from_numpy(start(leaf.space)).to(leaf.dtype)


def traced(policy: Deployed) -> ExportedProgram:
    """As a graph of torch's own operations, with `batch` worlds."""
    initial = [torch.zeros(1, *port.shape) for port in policy.face.state]
    tensors = example(policy.face.leaves, initial, EXAMPLES)
    batch_dimension = Dim(BATCH)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about itself
        program = torch.export.export(policy.module, tensors, dynamic_shapes=rows_are(batch_dimension, tensors))
    program.graph.eliminate_dead_code()
    return program


def rows_are(batch_dimension: Any, tree: Any) -> Any:
    """A copy of the tree with `batch` for the first dimension of every tensor."""
    if isinstance(tree, Tensor):
        return {0: batch_dimension}
    if isinstance(tree, dict):
        return {key: rows_are(batch_dimension, branch) for key, branch in tree.items()}
    return tuple(rows_are(batch_dimension, branch) for branch in tree)
