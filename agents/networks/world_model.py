"""World models: observations become a state; from states and actions alone they predict observations, rewards, ends.

RSSM is the recurrent state-space model of PlaNet and Dreamer (Hafner et al. 2019, 2023). Its state has two parts:

    deter  h_t = cell(h_t-1, z_t-1, a_t-1)            D numbers, deterministic, by a gated cell
    stoch  z_t ~ q(z | h_t, o_t), the posterior       S categorical variables of C classes, if o_t is observed
           z_t ~ p(z | h_t), the prior                the same in imagination, without an observation

With `stoch: 0` there is no z: DeterministicModel. Random numbers are uniforms from the caller. Letters in shapes:
T steps, B sequences or environments, D = deter, S = stoch, C = classes, A numbers of an encoded action.
"""

from typing import NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stride.agents.networks.heads import sample_categorical
from stride.agents.networks.normed import BlockLinear, RMSNorm, dense
from stride.agents.networks.senses import Senses
from stride.agents.networks.two_hot import TwoHot


class ModelSizes(NamedTuple):
    """The sizes of a world model, and of its actor and critic."""

    deter: int = 128
    stoch: int = 8
    classes: int = 8
    width: int = 64
    depth: int = 16
    bins: int = 63
    blocks: int = 1
    """of the gated cell: 1 = DenseCell, more = BlockCell"""
    senses: int = 1
    """hidden layers of the encoder and the decoder of vectors"""
    prior: int = 1
    """hidden layers of the prior"""
    behaviour: int = 2
    """hidden layers of actor and critic"""


WITHHELD_SHARE = 0.5  # of the observations, which a deterministic model does not see while it learns
PUBLISHED = {"bins": 255, "stoch": 32, "blocks": 8, "senses": 3, "prior": 2, "behaviour": 3}
SIZES = {
    "small": ModelSizes(),
    "1m": ModelSizes(deter=512, classes=4, width=64, depth=4, **PUBLISHED),
    "12m": ModelSizes(deter=2048, classes=16, width=256, depth=16, **PUBLISHED),
}


class State(NamedTuple):
    """The state of the model at one step."""

    deter: Tensor
    """[..., D], the paper's h"""
    stoch: Tensor
    """[..., S * C], the paper's z: S one-hot vectors; with straight-through gradients while learning"""

    @property
    def features(self) -> Tensor:
        """Both parts, joined, [..., D + S * C]: the input of all heads."""
        return torch.cat(self, -1)

    def forgotten(self, is_first: Tensor) -> "State":
        """Return the state with zeros where an episode begins; is_first [...] bool."""
        goes_on = (~is_first).to(self.deter.dtype)[..., None]
        return State(self.deter * goes_on, self.stoch * goes_on)


class Guess(NamedTuple):
    """The distribution of stoch: a prior or a posterior."""

    log_probs: Tensor
    """[..., S, C]"""

    def sample(self, u: Tensor, table: Tensor) -> Tensor:
        """Draw one-hot [..., S * C] from uniforms [..., S]; straight-through: gradients are those of probabilities."""
        return self._one_hot(sample_categorical(self.log_probs.detach(), u[..., None]), table)

    def mode(self, table: Tensor) -> Tensor:
        """Return the likeliest classes, one-hot; gradients as in `sample`, so that saliency can be computed."""
        return self._one_hot(self.log_probs.argmax(-1), table)

    def _one_hot(self, index: Tensor, table: Tensor) -> Tensor:
        one_hot = F.embedding(index, table)
        if self.log_probs.requires_grad:
            probabilities = self.log_probs.exp()
            one_hot = one_hot + (probabilities - probabilities.detach())
        return one_hot.flatten(-2)


def divergence(p: Guess, q: Guess) -> Tensor:
    """Return KL(p || q) in nats, the sum over all S variables, [...]."""
    return (p.log_probs.exp() * (p.log_probs - q.log_probs)).sum((-2, -1))


def balanced(posterior: Guess, prior: Guess, free_nats: float) -> tuple[Tensor, Tensor]:
    """Return the KL terms (L_dyn, L_rep), both [...]; below `free_nats` they are constant, without gradient.

    L_dyn = KL(sg(posterior) || prior) moves the prior, L_rep = KL(posterior || sg(prior)) the posterior (sg: detached).
    """
    to_posterior = divergence(Guess(posterior.log_probs.detach()), prior)
    to_prior = divergence(posterior, Guess(prior.log_probs.detach()))
    return to_posterior.clamp(min=free_nats), to_prior.clamp(min=free_nats)


def gated(deter: Tensor, reset: Tensor, candidate: Tensor, update: Tensor) -> Tensor:
    """A GRU step (1 - u) deter + u tanh(r candidate), u = sigmoid(update - 1): at first it mostly keeps its state."""
    return torch.lerp(deter, (reset.sigmoid() * candidate).tanh(), (update - 1).sigmoid())


class DenseCell(nn.Module):
    """A GRU with RMS norms over all of deter (Hafner et al. 2023, first version)."""

    from_stoch: nn.Linear  # only if there is a stoch

    def __init__(self, actions: int, stoch: int, deter: int, width: int) -> None:
        super().__init__()
        if stoch:
            self.from_stoch = nn.Linear(stoch, width, bias=False)
        self.from_action = nn.Linear(actions, width, bias=False)
        self.input_norm = RMSNorm(width)
        self.gates = nn.Linear(width + deter, 3 * deter, bias=False)
        self.gates_norm = RMSNorm(3 * deter)

    def prepare(self, action: Tensor) -> Tensor:
        """Compute the part that depends only on encoded actions [..., A], for all steps at once. -> [..., width]"""
        prepared: Tensor = self.from_action(action)
        return prepared

    def forward(self, state: State, prepared: Tensor) -> Tensor:
        """Return the next deter [..., D]; `prepared`: from `prepare`."""
        known = self.from_stoch(state.stoch) + prepared if state.stoch.shape[-1] else prepared
        x = F.silu(self.input_norm(known))
        gate_values = self.gates_norm(self.gates(torch.cat((x, state.deter), -1)))
        return gated(state.deter, *gate_values.chunk(3, -1))


class BlockCell(nn.Module):
    """A block-diagonal GRU: each block computes its part of deter from itself and features of deter, stoch, action."""

    def __init__(self, actions: int, stoch: int, deter: int, width: int, blocks: int) -> None:
        super().__init__()
        self.blocks = blocks
        self.from_deter = dense(deter, width)
        if stoch:
            self.from_stoch = dense(stoch, width)
        self.prepare = dense(actions, width)
        inputs = 3 if stoch else 2
        self.hidden = BlockLinear(deter + inputs * width * blocks, deter, blocks)
        self.hidden_norm = RMSNorm(deter)
        self.gates = BlockLinear(deter, 3 * deter, blocks)

    def forward(self, state: State, prepared: Tensor) -> Tensor:
        """Return the next deter [..., D]; `prepared`: self.prepare(encoded actions)."""
        block_shape = (self.blocks, -1)
        guessed = (self.from_stoch(state.stoch),) if state.stoch.shape[-1] else ()
        x = torch.cat((self.from_deter(state.deter), *guessed, prepared), -1)
        deter_blocks = state.deter.unflatten(-1, block_shape)
        block_inputs = torch.cat((deter_blocks, x[..., None, :].expand(*deter_blocks.shape[:-1], -1)), -1)
        hidden = F.silu(self.hidden_norm(self.hidden(block_inputs).flatten(-2)))
        gate_values = self.gates(hidden.unflatten(-1, block_shape)).chunk(3, -1)
        return gated(state.deter, *(gate.flatten(-2) for gate in gate_values))


class RSSM(nn.Module):
    """The cell, the prior and the posterior. What does not need the step before is computed for all steps at once."""

    table: Tensor

    def __init__(self, actions: int, tokens: int, sizes: ModelSizes, unimix: float) -> None:
        super().__init__()
        self.sizes, self.unimix = sizes, unimix
        deter_size, layer_width, stoch_size = sizes.deter, sizes.width, sizes.stoch * sizes.classes
        cell_sizes = (actions, stoch_size, deter_size, layer_width)
        self.cell = DenseCell(*cell_sizes) if sizes.blocks == 1 else BlockCell(*cell_sizes, sizes.blocks)
        self.from_deter = nn.Linear(deter_size, layer_width, bias=False)
        self.from_tokens = nn.Linear(tokens, layer_width, bias=False)
        self.posterior_norm = RMSNorm(layer_width)
        if not stoch_size:
            return  # no prior and no posterior
        self.posterior = nn.Linear(layer_width, stoch_size)
        self.prior = nn.Sequential(dense(deter_size, layer_width, sizes.prior), nn.Linear(layer_width, stoch_size))
        self.register_buffer("table", torch.eye(sizes.classes), persistent=False)

    def initial(self, count: int) -> State:
        """Return `count` empty states, as before the first observation."""
        sizes, example = self.sizes, self.from_deter.weight
        return State(example.new_zeros(count, sizes.deter), example.new_zeros(count, sizes.stoch * sizes.classes))

    @property
    def draws(self) -> int:
        """Number of uniforms that one step of `observe` needs."""
        return self.sizes.stoch

    def observe(self, tokens: Tensor, action: Tensor, is_first: Tensor, u: Tensor) -> tuple[State, Guess | None]:
        """Return states [T, B, ..] and posteriors of a sequence of observations, from an empty state.

        `tokens` [T, B, ..]: encoded observations. `action` [T, B, A], encoded, led to the observation of its row; where
        `is_first` [T, B], it and everything before it is ignored. `u`: uniforms [T, B, S].
        """
        prepared, tokens = self.ahead(tokens, action, is_first)
        model_state = self.initial(tokens.shape[1])
        states, log_probs = [], []
        for t in range(len(tokens)):
            next_deter = self.cell(model_state.forgotten(is_first[t]), prepared[t])
            posterior = self._posterior(next_deter, tokens[t])
            model_state = State(next_deter, posterior.sample(u[t], self.table))
            states.append(model_state)
            log_probs.append(posterior.log_probs)
        return State(*(torch.stack(column) for column in zip(*states, strict=True))), Guess(torch.stack(log_probs))

    def ahead(self, tokens: Tensor, action: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
        """Compute what does not depend on the step before: (prepared actions, projected tokens)."""
        return self.cell.prepare(action * (~is_first).to(action.dtype)[..., None]), self.from_tokens(tokens)

    def recognise(self, before: State, action: Tensor, is_first: Tensor, tokens: Tensor, u: Tensor | None) -> State:
        """Make one step of `observe` from the state before it; u None: the likeliest state."""
        prepared, tokens = self.ahead(tokens, action, is_first)
        next_deter = self.cell(before.forgotten(is_first), prepared)
        return self._state(next_deter, self._posterior(next_deter, tokens), u)

    def imagine(self, state: State, action: Tensor, u: Tensor | None) -> State:
        """Make one step without an observation, by the prior and uniforms u [..., S]; None: the likeliest state."""
        next_deter = self.cell(state, self.cell.prepare(action))
        return self._state(next_deter, self.foresee(next_deter), u)

    def _state(self, deter: Tensor, guess: Guess, u: Tensor | None) -> State:
        """Return deter with a drawn stoch, or with the likeliest one if u is None."""
        return State(deter, guess.mode(self.table) if u is None else guess.sample(u, self.table))

    def foresee(self, deter: Tensor) -> Guess:
        """Return the prior of stoch, given deter [..., D]."""
        return self._guess(self.prior(deter))

    def _posterior(self, deter: Tensor, tokens: Tensor) -> Guess:
        """Return the posterior of stoch, given deter and projected tokens."""
        return self._guess(self.posterior(F.silu(self.posterior_norm(self.from_deter(deter) + tokens))))

    def _guess(self, logits: Tensor) -> Guess:
        """Turn logits [..., S * C] into log-probabilities, mixed with a share `unimix` of uniform ones: none is 0."""
        probabilities = logits.unflatten(-1, (self.sizes.stoch, self.sizes.classes)).softmax(-1)
        return Guess(torch.log(probabilities * (1 - self.unimix) + self.unimix / self.sizes.classes))


class DeterministicModel(RSSM):
    """`stoch: 0`: the state is deter only, without randomness (as the deterministic model of Hafner et al. 2019).

        predicted_t = cell(state_t-1, action_t-1)               in imagination this is the state
        state_t = gated(predicted_t, f(predicted_t, tokens_t))  a second gated step if there is an observation

    In the RSSM a KL divergence teaches the prior what the posterior saw; deterministic states have none. Instead, while
    the model learns, each observation is withheld with probability WITHHELD_SHARE. Then state_t is predicted_t, and
    observation, reward and end must be decoded from the prediction, over several steps if several are withheld.
    The first observation of an episode is never withheld, as nothing predicts it. Acting withholds none.
    """

    def __init__(self, actions: int, tokens: int, sizes: ModelSizes, unimix: float) -> None:
        super().__init__(actions, tokens, sizes, unimix)
        # with a bias; else an observation of zeros gives a first state of zeros, from which no weight could learn
        self.gates = nn.Linear(sizes.width, 3 * sizes.deter)
        self.gates_norm = RMSNorm(3 * sizes.deter)

    @property
    def draws(self) -> int:
        """One uniform for each step: whether the observation is withheld."""
        return 1

    def observe(self, tokens: Tensor, action: Tensor, is_first: Tensor, u: Tensor) -> tuple[State, None]:
        """Return states of observations, some of which are withheld by uniforms u [T, B, 1]; no posterior."""
        prepared, tokens = self.ahead(tokens, action, is_first)
        is_seen = ((u[..., 0] >= WITHHELD_SHARE) | is_first)[..., None]
        model_state = self.initial(tokens.shape[1])
        states = []
        for t in range(len(tokens)):
            predicted = self.cell(model_state.forgotten(is_first[t]), prepared[t])
            next_deter = torch.where(is_seen[t], self._corrected(predicted, tokens[t]), predicted)
            model_state = model_state._replace(deter=next_deter)
            states.append(model_state)
        return State(*(torch.stack(column) for column in zip(*states, strict=True))), None

    def recognise(self, before: State, action: Tensor, is_first: Tensor, tokens: Tensor, u: Tensor | None) -> State:
        """Make one step with an observation; `u` is not used."""
        prepared, tokens = self.ahead(tokens, action, is_first)
        return before._replace(deter=self._corrected(self.cell(before.forgotten(is_first), prepared), tokens))

    def imagine(self, state: State, action: Tensor, u: Tensor | None) -> State:
        """Make one step without an observation; `u` is not used."""
        return state._replace(deter=self.cell(state, self.cell.prepare(action)))

    def _corrected(self, predicted: Tensor, tokens: Tensor) -> Tensor:
        """Return deter [..., D] corrected by the observation, given projected tokens."""
        x = F.silu(self.posterior_norm(self.from_deter(predicted) + tokens))
        return gated(predicted, *self.gates_norm(self.gates(x)).chunk(3, -1))


class WorldModel(nn.Module):
    """A complete world model: encoder and decoder, RSSM, heads for the reward and for "the episode goes on"."""

    def __init__(self, space: gym.Space, actions: int, sizes: ModelSizes, unimix: float) -> None:
        super().__init__()
        layer_width = sizes.width
        self.features = sizes.deter + sizes.stoch * sizes.classes
        self.senses = Senses(space, self.features, layer_width, sizes.senses, sizes.depth)
        dynamics = RSSM if sizes.stoch else DeterministicModel
        self.rssm = dynamics(actions, self.senses.size, sizes, unimix)
        self.two_hot = TwoHot(sizes.bins)
        self.reward = nn.Sequential(dense(self.features, layer_width), nn.Linear(layer_width, sizes.bins))
        self.goes_on = nn.Sequential(dense(self.features, layer_width), nn.Linear(layer_width, 1))

    def expect(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the expected reward on arrival at states with features [..., F], and P(the episode goes on); [...]."""
        return self.two_hot.mean(self.reward(features)), self.goes_on(features).squeeze(-1).sigmoid()
