"""Policies with a memory: hidden layers, and in place of the last one a cell: LSTM, GRU, minGRU or transformer.

The carry has one state for each cell, a tuple of tensors [N, ...]. Only the cell resets it, where an episode begins.
Acting and evaluating run the same cell over the same rows, so their numbers agree. T steps, N environments, H width.
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from stride.agents.experience.nouns import Act, Explanation, Final, Rollout, Tree, known_uncut, leaves, tree_map
from stride.agents.networks.actor_critic import ActorCritic, Plan, mlp
from stride.agents.networks.layers import ACTIVATIONS
from stride.agents.networks.mingru import MinGRU
from stride.agents.networks.transformer import Attention, Transformer
from stride.agents.returns import next_values
from stride.envs_fast.vec_env import Obs

CellState = tuple[Tensor, ...]


class Stepped(nn.RNNCellBase):
    """A cell that reads a sequence step by step. Its state: `tensors` tensors [N, H], the first is the output."""

    tensors: int

    def advance(self, x: Tensor, state: CellState) -> CellState:
        """Return the state after one step with input x [N, size]."""
        raise NotImplementedError

    def initial(self, num_envs: int) -> CellState:
        return tuple(self.weight_hh.new_zeros(num_envs, self.hidden_size) for _ in range(self.tensors))

    def run(self, x: Tensor, state: CellState, is_first: Tensor) -> tuple[Tensor, CellState]:
        outputs = []
        for x_t, begins in zip(x.unbind(), is_first[..., None].unbind(), strict=True):
            state = self.advance(x_t, tuple(tensor.masked_fill(begins, 0) for tensor in state))
            outputs.append(state[0])
        return torch.stack(outputs), state


class LSTM(Stepped, nn.LSTMCell):
    """The state is (output, cell)."""

    tensors = 2

    def advance(self, x: Tensor, state: CellState) -> CellState:
        return torch.lstm_cell(x, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)


class GRU(Stepped, nn.GRUCell):
    """The state is (output,)."""

    tensors = 1

    def advance(self, x: Tensor, state: CellState) -> CellState:
        return (torch.gru_cell(x, state[0], self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh),)


Cell = LSTM | GRU | MinGRU | Transformer
MakeCell = Callable[[int, int], Cell]  # arguments: input size, output size


class Recurrence(nn.Module):
    """Hidden layers and a cell: all hidden_dims but the last are layers, the last is the width of the cell."""

    def __init__(self, make_cell: MakeCell, size: int, hidden_dims: tuple[int, ...], activation: str) -> None:
        super().__init__()
        *layer_sizes, hidden_size = hidden_dims
        self.layers = mlp(size, tuple(layer_sizes), ACTIVATIONS[activation])
        self.cell = make_cell(layer_sizes[-1] if layer_sizes else size, hidden_size)

    def initial(self, num_envs: int) -> CellState:
        return self.cell.initial(num_envs)

    def forward(self, x: Tensor, state: CellState, is_first: Tensor, **more: Any) -> tuple[Tensor, CellState]:
        """x [T, N, size], state before the first row, is_first [T, N] -> outputs [T, N, H], state after the last."""
        return self.cell.run(self.layers(x), state, is_first, **more)


class RecurrentActorCritic(ActorCritic):
    """pi and V that depend on all observations of the episode so far; actor and critic have separate memories.

    If they share the trunk, one memory serves both. `value` and `evaluate` take complete sequences [T, N, ...] and the
    carry [N, ...] before their first row.
    """

    cut = "worlds"
    cell: MakeCell

    def torso(self, plan: Plan) -> nn.Module:
        return Recurrence(self.cell, self.encoder.size, plan.hidden_dims, plan.activation)

    @property
    def memories(self) -> list[Any]:
        """The Recurrence modules: [actor's, critic's] or [shared]; the carry has a state of each, in this order."""
        if isinstance(self.trunk, Recurrence):
            return [self.trunk]
        return [self.actor[0]] if self.critic is None else [self.actor[0], self.critic[0]]

    def initial(self, num_envs: int) -> Tree:
        return tuple(memory.initial(num_envs) for memory in self.memories)

    def act(self, obs: Obs, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        """Return actions and the next carry; the critic's memory advances, too, for V after the rollout's last step."""
        outputs, carry = self._remember(_as_sequence(obs), carry, is_first[None])
        parameters = self.allowed(self.head(outputs[0][0]), obs)
        return Act(self.head.mode(parameters) if greedy else self.head.sample(parameters, noise), carry=carry)

    def value(self, obs: Obs, carry: Tree, is_first: Tensor) -> Tensor:
        if self.critic is None:
            return torch.zeros_like(is_first, dtype=torch.float32)
        output, _ = self.memories[-1](self.encoder(obs), carry[-1], is_first)
        return self.critic[1](output).squeeze(-1)

    def parameters_and_value(self, obs: Obs, carry: Tree, is_first: Tensor) -> tuple[Tree, Tensor]:
        outputs, _ = self._remember(obs, carry, is_first)
        critic = self.critic
        state_value = self.value(obs, carry, is_first) if critic is None else critic[1](outputs[-1]).squeeze(-1)
        return self.allowed(self.head(outputs[0]), obs), state_value

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        """Explain single observations [N, ...], each with the carry before it."""
        outputs, _ = self._remember(_as_sequence(obs), carry, is_first[None])
        parameters = self.allowed(self.head(outputs[0][0]), obs)
        value = None if self.critic is None else self._value_of(Final(obs, carry), is_first)
        return Explanation(self.encoder(obs), self.head.distribution(parameters), self.head.entropy(parameters), value)

    def moved(self, before: Tree, after: Tree) -> Tensor | None:
        changes = [(new - old).square().sum(1) for old, new in zip(before[0], after[0], strict=True)]
        return torch.stack(changes).sum(0).sqrt()

    def next_values(self, rollout: Rollout, v_t: Tensor, is_first: Tensor) -> Tensor:
        """As in ActorCritic; V of a final observation uses the carry that its own episode had."""
        v_final = None
        if not known_uncut(rollout):
            slot_shape = leaves(rollout.final.obs)[0].shape[:2]
            flat_final = tree_map(lambda x: x.flatten(0, 1), rollout.final)
            v_final = self._value_of(flat_final, is_first.new_zeros(slot_shape.numel())).view(slot_shape)
        v_next = self._value_of(rollout.next, is_first)
        return next_values(v_t, v_next, v_final, rollout.row.truncated, rollout.row.slot)

    def _value_of(self, instant: Final, is_first: Tensor) -> Tensor:
        """Return V [N] of single observations, each with its own carry."""
        return self.value(_as_sequence(instant.obs), instant.carry, is_first[None])[0]

    def _remember(self, obs: Obs, carry: Tree, is_first: Tensor) -> tuple[list[Tensor], Tree]:
        """Run every memory over a sequence; -> ([outputs [T, N, H] of each], (state of each after the last row))."""
        features = self.encoder(obs)
        results = [memory(features, state, is_first) for memory, state in zip(self.memories, carry, strict=True)]
        return [output for output, _ in results], tuple(state for _, state in results)


def _as_sequence(obs: Obs) -> Obs:
    return tree_map(lambda x: x[None], obs)  # instants [N, ...] -> sequences of one row [1, N, ...]


class LSTMActorCritic(RecurrentActorCritic):
    """Policy `lstm` (Hochreiter and Schmidhuber 1997)."""

    cell = LSTM


class GRUActorCritic(RecurrentActorCritic):
    """Policy `gru` (Cho et al. 2014)."""

    cell = GRU


class MinGRUActorCritic(RecurrentActorCritic):
    """Policy `mingru` (Feng et al. 2024)."""

    def __init__(self, plan: Plan, log_std_init: float = 0.0, **sizes: int) -> None:
        self.cell = partial(MinGRU, **sizes)
        super().__init__(plan, log_std_init)


class TransformerActorCritic(RecurrentActorCritic):
    """Policy `transformer` (GTrXL, Parisotto et al. 2020)."""

    def __init__(self, plan: Plan, log_std_init: float = 0.0, **sizes: int) -> None:
        self.cell = partial(Transformer, attention=Attention(**sizes))
        super().__init__(plan, log_std_init)

    def explain(self, obs: Obs, carry: Tree, is_first: Tensor) -> Explanation:
        explanation = super().explain(obs, carry, is_first)
        weights: list[Tensor] = []  # attention of each layer [N, heads, 1, window + 1], oldest step first
        self.memories[0](explanation.encoded[None], carry[0], is_first[None], weights_out=weights)
        return explanation._replace(attention=torch.stack(weights).mean((0, 2))[:, 0].flip(-1))

    def moved(self, before: Tree, after: Tree) -> Tensor | None:
        return None  # its memory is the last steps themselves, so a distance means nothing

    @property
    def carry_bytes(self) -> int:
        """The bytes of one environment's keys and values, float32."""
        return sum(8 * prod(memory.cell.cache_shape) for memory in self.memories)
