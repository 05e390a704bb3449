"""Turns a loaded run into one traced graph: from observations (and a memory) to actions, for any number of worlds.

onnx_file.py and torch_file.py write this graph into a file.
"""

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
EXAMPLE_ROWS = 2  # worlds to trace with: torch.export would take a batch of 1 for a constant


class StatelessModule(nn.Module):
    """The exported module of a policy without memory: obs -> {"action", and "probability" or "q"}."""

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


class StatefulModule(StatelessModule):
    """The exported module of a policy with a memory: it also returns `state`, which is an input of the next step.

    `state` is cleared for each world with `is_first`.
    """

    def forward(  # type: ignore[override]
        self, obs: Obs, state_ports: tuple[Tensor, ...], is_first: Tensor
    ) -> dict[str, Any]:
        decision = self.decision(obs, state_ports, is_first)
        return {ACTION: decision.action, **decision.scores, "state": decision.state}


class Deployed(NamedTuple):
    """A policy as a module from the environment's observation to the environment's action, and its ports."""

    module: StatelessModule
    face: Face


def deployed(loaded: LoadedRun) -> Deployed:
    """Return the part of a run that is exported; UserError for a run that cannot be exported."""
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
    module_type = StatefulModule if initial else StatelessModule
    module = module_type(observation_space, action_space, decide).eval()
    observation_leaves = tuple(leaves(observation_space))
    state_ports = tuple(Port(f"state_{index}", "float32", tuple(x.shape[1:])) for index, x in enumerate(initial))
    return Deployed(
        module, Face(observation_leaves, state_ports, outputs(module, observation_leaves, initial, state_ports))
    )


def outputs(
    module: StatelessModule,
    observation_leaves: tuple[ObservationLeaf, ...],
    initial: list[Tensor],
    state_ports: tuple[Port, ...],
) -> tuple[Port, ...]:
    """Return the module's output ports, found by calling it once."""
    with torch.inference_mode():
        answer = module(*example(observation_leaves, initial, 1))
    environment_action = answer[ACTION]
    scores = [Port(name, "float32", tuple(x.shape[1:])) for name, x in answer.items() if name in ("probability", "q")]
    action = Port(ACTION, str(environment_action.dtype).removeprefix("torch."), tuple(environment_action.shape[1:]))
    return (action, *scores, *(port._replace(name=following(port.name)) for port in state_ports))


def example(observation_leaves: tuple[ObservationLeaf, ...], initial: list[Tensor], rows: int) -> tuple[Any, ...]:
    """Return arguments of the module for `rows` worlds; every observation has its lowest value, else 0."""
    observations = {
        leaf.name: torch.as_tensor(_lowest(leaf)).expand(rows, *leaf.shape).clone() for leaf in observation_leaves
    }
    obs: Any = observations if observation_leaves[0].path else observations[observation_leaves[0].name]
    if not initial:
        return (obs,)
    return obs, tuple(x.repeat(rows, *[1] * (x.dim() - 1)) for x in initial), torch.ones(rows, dtype=torch.bool)


def arguments(face: Face, inputs: Mapping[str, np.ndarray]) -> tuple[Any, ...]:
    """Return the inputs, given by port name, as arguments of the module (or of its traced graph)."""
    tensors = {name: torch.from_numpy(value) for name, value in inputs.items()}
    observations: Any = {leaf.name: tensors[leaf.port] for leaf in face.leaves}
    obs = observations if face.leaves[0].path else tensors[face.leaves[0].port]
    return (obs, tuple(tensors[port.name] for port in face.state), tensors[IS_FIRST]) if face.state else (obs,)


def _lowest(leaf: ObservationLeaf) -> Tensor:
    return torch.from_numpy(start(leaf.space)).to(leaf.dtype)


def traced(policy: Deployed) -> ExportedProgram:
    """Return the policy as a graph of torch's own operations for `batch` worlds."""
    initial = [torch.zeros(1, *port.shape) for port in policy.face.state]
    tensors = example(policy.face.leaves, initial, EXAMPLE_ROWS)
    batch_dimension = Dim(BATCH)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own code
        program = torch.export.export(policy.module, tensors, dynamic_shapes=rows_are(batch_dimension, tensors))
    program.graph.eliminate_dead_code()
    return program


def rows_are(batch_dimension: Any, tree: Any) -> Any:
    """Return a copy of the tree in which {0: batch_dimension} replaces every tensor: its first dimension may vary."""
    if isinstance(tree, Tensor):
        return {0: batch_dimension}
    if isinstance(tree, dict):
        return {key: rows_are(batch_dimension, branch) for key, branch in tree.items()}
    return tuple(rows_are(batch_dimension, branch) for branch in tree)
