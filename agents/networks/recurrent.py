"""Policies with a memory: hidden layers, then an LSTM or GRU cell in the place of the last one.

The carry is one state per cell, [N, H] tensors; it is reset where an episode begins, here and nowhere else.
Acting and evaluating run the same cell over the same rows, so their numbers agree.
"""

from typing import Any

import torch
from torch import Tensor, nn

from stride.agents.experience.nouns import Act, Explanation, Final, Rollout, Tree, known_uncut, leaves, tree_map
from stride.agents.networks.actor_critic import ACTIVATIONS, ActorCritic, Judgement, Plan, mlp
from stride.agents.returns import next_values
from stride.envs_fast.vec_env import Obs

State = tuple[Tensor, ...]


class LSTM(nn.LSTMCell):
    """(output, cell)"""

    tensors = 2

    def advance(self, x: Tensor, state: State) -> State:
        return torch.lstm_cell(x, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)


class GRU(nn.GRUCell):
    """(output,)"""

    tensors = 1

    def advance(self, x: Tensor, state: State) -> State:
        return (torch.gru_cell(x, state[0], self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh),)


class Recurrence(nn.Module):
    """A torso that remembers: all hidden_dims but the last are layers, the last is the cell."""

    def __init__(self, cell: type[LSTM] | type[GRU], size: int, hidden_dims: tuple[int, ...], activation: str) -> None:
        super().__init__()
        *before, hidden = hidden_dims
        self.layers = mlp(size, tuple(before), ACTIVATIONS[activation])
        self.cell = cell(before[-1] if before else size, hidden)

    def initial(self, num_envs: int) -> State:
        return tuple(self.cell.weight_hh.new_zeros(num_envs, self.cell.hidden_size) for _ in range(self.cell.tensors))

    def forward(self, x: Tensor, state: State, is_first: Tensor) -> tuple[Tensor, State]:
        """x [T, N, size], state before the first row [N, H], is_first [T, N] -> outputs [T, N, H], state afterwards."""
        outputs = []
        for x_t, first in zip(self.layers(x).unbind(), is_first[..., None].unbind(), strict=True):
            state = self.cell.advance(x_t, tuple(part.masked_fill(first, 0) for part in state))
            outputs.append(state[0])
        return torch.stack(outputs), state


class RecurrentActorCritic(ActorCritic):
    """pi and V of all that was seen in the episode; actor and critic remember separately unless they share the trunk.

    `value` and `evaluate` take whole sequences [T, N, ...] and the carry [N, ...] before their first row.
    """

    cut = "worlds"
    cell: type[LSTM] | type[GRU]

    def torso(self, plan: Plan) -> nn.Module:
        return Recurrence(self.cell, self.encoder.size, plan.hidden_dims, plan.activation)

    @property
    def memories(self) -> list[Any]:
        """The actor's first, the critic's last; one where it serves both."""
        if isinstance(self.trunk, Recurrence):
            return [self.trunk]
        return [self.actor[0], *([] if self.critic is None else [self.critic[0]])]

    def initial(self, num_envs: int) -> Tree:
        return tuple(memory.initial(num_envs) for memory in self.memories)

    def act(self, obs: Obs, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        """The critic remembers along, so that its state is at hand wherever a rollout is cut."""
        outputs, carry = self._remember(tree_map(lambda x: x[None], obs), carry, is_first[None])
        parameters = self.allowed(self.head(outputs[0][0]), obs)
        return Act(self.head.mode(parameters) if greedy else self.head.sample(parameters, noise), carry=carry)

    def value(self, obs: Obs, carry: Tree, is_first: Tensor) -> Tensor:
        if self.critic is None:
            return torch.zeros_like(is_first, dtype=torch.float32)
        output, _ = self.memories[-1](self.encoder(obs), carry[-1], is_first)
        return self.critic[1](output).squeeze(-1)

    def evaluate(self, obs: Obs, carry: Tree, is_first: Tensor, action: Tensor) -> Judgement:
        outputs, _ = self._remember(obs, carry, is_first)
        parameters = self.allowed(self.head(outputs[0]), obs)
        none = self.critic is None
        value = self.value(obs, carry, is_first) if none else self.critic[1](outputs[-1]).squeeze(-1)  # type: ignore
        return Judgement(self.head.log_prob(parameters, action), self.head.entropy(parameters), value)

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        """Of single instants [N, ...], each with the carry before it."""
        one, first = tree_map(lambda x: x[None], obs), is_first[None]
        outputs, _ = self._remember(one, carry, first)
        parameters = self.allowed(self.head(outputs[0][0]), obs)
        value = None if self.critic is None else self.value(one, carry, first)[0]
        return Explanation(self.encoder(obs), self.head.distribution(parameters), self.head.entropy(parameters), value)

    def next_values(self, rollout: Rollout, v_t: Tensor, is_first: Tensor) -> Tensor:
        """Every final observation is valued with the state its own episode had come to."""
        slots = leaves(rollout.final.obs)[0].shape[:2]
        v_next = self._value_of(rollout.next, is_first)
        final = tree_map(lambda x: x.flatten(0, 1), rollout.final)
        none = is_first.new_zeros(slots.numel())
        v_final = None if known_uncut(rollout) else self._value_of(final, none).view(slots)
        return next_values(v_t, v_next, v_final, rollout.row.truncated, rollout.row.slot)

    def _value_of(self, instant: Final, is_first: Tensor) -> Tensor:
        """V of single instants, each with a carry of its own: sequences of one row."""
        return self.value(tree_map(lambda x: x[None], instant.obs), instant.carry, is_first[None])[0]

    def _remember(self, obs: Obs, carry: Tree, is_first: Tensor) -> tuple[list[Tensor], Tree]:
        features = self.encoder(obs)
        answers = [memory(features, state, is_first) for memory, state in zip(self.memories, carry, strict=True)]
        return [output for output, _ in answers], tuple(state for _, state in answers)


class LSTMActorCritic(RecurrentActorCritic):
    """Hochreiter and Schmidhuber 1997."""

    cell = LSTM


class GRUActorCritic(RecurrentActorCritic):
    """Cho et al. 2014."""

    cell = GRU
