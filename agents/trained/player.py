"""Player: a trained policy for one environment, from the environment's own observations to its own actions.

It does not step the environment; agents/trained/episode.py does. Letters in shapes: N rows, T steps, H imagined steps.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from stride.agents.experience.collector import Policy
from stride.agents.experience.nouns import Act, Dream, Tree, copy_into, leaves, tree_map
from stride.agents.networks.encoders import choice_sizes
from stride.agents.networks.heads import action_mask
from stride.agents.trained.saliency import Saliency, saliency
from stride.config.spec import Quantity, Spec
from stride.envs_fast.vec_env import Obs
from stride.envs_gym.spaces import actions, first_options, observation_space, observation_writer, zeros
from stride.utils.counter_rng import PLAY, Key, normal, uniforms
from stride.utils.user_error import UserError, nearest

Mode = Literal["greedy", "sampled", "random"]  # likeliest action, drawn from the policy, or uniformly random


class RandomPolicy(Policy):
    """All actions that the mask allows are equally likely; numbers without bounds are standard normal."""

    counts: list[int]
    """number of options of each choice"""

    def __init__(self, action_space: Space[object]) -> None:
        super().__init__()
        self.space = action_space
        if isinstance(action_space, spaces.Box):
            self.draws = math.prod(action_space.shape)
            self.bounded = torch.from_numpy(np.isfinite(action_space.low) & np.isfinite(action_space.high))
        else:
            self.counts = choice_sizes(action_space)
            self.draws = len(self.counts)

    def initial(self, num_envs: int) -> Tree:
        return ()

    def act(self, obs: Obs, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        if isinstance(self.space, spaces.Box):
            return Act(torch.where(self.bounded, 2 * noise - 1, normal(noise)))
        mask = action_mask(obs)
        if mask is None:
            mask = torch.ones(len(noise), sum(self.counts), dtype=torch.bool)
        choices = zip(mask.split(self.counts, 1), noise.T, strict=True)
        choice_columns = torch.stack([pick_allowed(options, u) for options, u in choices], 1)
        return Act(choice_columns[:, 0] if isinstance(self.space, spaces.Discrete) else choice_columns)


def pick_allowed(mask: Tensor, u: Tensor) -> Tensor:
    """Draw one of the options in `mask` [N, options] (of all if it allows none), by uniforms u [N]. -> int64 [N]"""
    allowed = mask | ~mask.any(1, keepdim=True)
    allowed_count = allowed.sum(1)
    choice_rank = (u * allowed_count).long().minimum(allowed_count - 1)
    return (allowed.cumsum(1) <= choice_rank[:, None]).sum(1)


class EpisodeStart(NamedTuple):
    """What an episode's random numbers follow from: it is environment `world` of several reset with `seed`."""

    seed: int
    world: int = 0
    purpose: int = PLAY
    """of the policy's draws, a constant of utils/counter_rng.py"""


class ChosenAction(NamedTuple):
    """An action, in the environment's units and in the policy's."""

    action: Any
    policy_action: np.ndarray
    moved: float | None
    """how much this step changed the policy's memory; None if it has no such memory"""


class Opinion(NamedTuple):
    """An Explanation (agents/experience/nouns.py) of one observation, as arrays without the dimension N."""

    encoded: Any
    distribution: dict[str, np.ndarray]
    entropy: float
    value: float | None
    state: Tree = None
    """tensors of a world model's state, from which `dream` starts"""
    attention: np.ndarray | None = None


class Player:
    """A trained policy that plays one episode at a time: call `reset` when an episode begins, then `act` in each step.

    It owns the policy's memory (the carry) and the random draws of the episode. They equal the Collector's for the same
    environment, so that an episode watched is the episode counted. The policy is not copied: its weights may change.
    """

    def __init__(self, policy: Policy, raw_observation_space: Space[object], raw_action_space: Space[object]) -> None:
        self.policy = policy
        self._raw_space = raw_observation_space
        self._dtype = raw_action_space.dtype
        self._actions = actions(raw_action_space)
        self._random = RandomPolicy(self._actions.space)
        self._obs = zeros(observation_space(raw_observation_space), 1)
        self._write = observation_writer(raw_observation_space, self._obs)
        self._firsts = first_options(raw_observation_space)
        self._carry = policy.initial(1)
        self.reset()

    def reset(self, start: EpisodeStart = EpisodeStart(0)) -> None:  # noqa: B008  # a NamedTuple does not change
        """Begin an episode: empty the carry, and use the draws of this start. The caller resets the environment."""
        self._start = start
        self._calls = 0
        copy_into(self._carry, self.policy.initial(1))
        self._is_first = torch.ones(1, dtype=torch.bool)  # `choose` writes into it, in inference mode

    def act(self, obs: object, greedy: bool = True) -> Any:
        """Return the action for one observation of the environment, in the environment's units and dtype.

        Call it once per step, because it advances the carry. ValueError or TypeError if the observation does not fit
        the space that the run was trained on.
        """
        return self.choose(obs, "greedy" if greedy else "sampled").action

    @torch.inference_mode()
    def predict(self, batch: Any) -> np.ndarray:
        """Return greedy actions [N, ...] for N observations, in the environment's units; the episode does not advance.

        `batch` is an array [N, ...], a dict or tuple of arrays like the space, or a list of N observations. UserError
        if they do not fit the space, or if the policy has a memory; then use `act` for each step.
        """
        _, _, act = self._first_answers(batch)
        return np.asarray(self._actions.convert(act.action.numpy()), self._dtype)

    @torch.inference_mode()
    def value(self, batch: Any) -> np.ndarray | None:
        """Return the expected return [N] from N observations on; None if the policy estimates none (SAC, no critic)."""
        obs, carry, _ = self._first_answers(batch)
        is_first = torch.ones(len(leaves(obs)[0]), dtype=torch.bool)
        expected_return = self.policy.explain(obs, carry, is_first).value
        return None if expected_return is None else expected_return.numpy().copy()

    def _first_answers(self, batch: Any) -> tuple[Obs, Tree, Act]:
        """Return (batch as the policy reads it, empty carry, greedy Act), as if each observation began an episode."""
        obs = batch_of(self._raw_space, batch)
        row_count = len(leaves(obs)[0])
        empty_carry = self.policy.initial(row_count)
        noise = uniforms(Key(0, PLAY, 0, 1), (row_count, self.policy.draws))
        greedy_act = self.policy.act(obs, empty_carry, torch.ones(row_count, dtype=torch.bool), noise, greedy=True)
        if any(not torch.equal(*pair) for pair in zip(leaves(empty_carry), leaves(greedy_act.carry), strict=True)):
            raise UserError("this policy has a memory, so it cannot act on a batch; call act(obs) step by step")
        return obs, empty_carry, greedy_act

    @torch.inference_mode()
    def choose(self, obs: object, mode: Mode) -> ChosenAction:
        """Choose an action, and advance the carry to the next step."""
        policy_act = self._answer(obs, mode)
        self._calls += 1
        next_carry = policy_act.carry
        if mode == "random":  # the carry follows the actions really taken, so that opinions are about this episode
            next_carry = self.policy.follow(self._obs, self._carry, self._is_first, policy_act.action)
        change = self.policy.moved(self._carry, next_carry)
        copy_into(self._carry, next_carry)
        self._is_first.fill_(False)
        policy_action = policy_act.action.numpy()
        distance = None if change is None else change.item()
        return ChosenAction(self._actions.convert(policy_action)[0], policy_action[0], distance)

    @torch.inference_mode()
    def explain(self, obs: object) -> Opinion:
        """Return the policy's opinion of this observation; the episode does not advance."""
        self._write(0, obs)
        explanation = self.policy.explain(self._obs, self._carry, self._is_first)
        state_value = explanation.value
        model_state = explanation.state
        return Opinion(
            encoded=_only_world(explanation.encoded),
            distribution=_only_world(explanation.distribution),
            entropy=explanation.entropy.item(),
            value=None if state_value is None else state_value.item(),
            state=None if model_state is None else tree_map(lambda x: x[0].clone(), model_state),
            attention=None if explanation.attention is None else _only_world(explanation.attention),
        )

    @torch.inference_mode()
    def dream(self, state: Tree, policy_actions: np.ndarray) -> Dream | None:
        """Let the world model imagine H steps from an opinion's state with these actions [H, ...], in policy units.

        Returns tensors [H, ...]; None without a world model, or if there are no actions. The episode does not advance.
        """
        if state is None or not len(policy_actions):
            return None
        actions = torch.from_numpy(policy_actions)[None]
        dream = self.policy.dream(tree_map(lambda x: x[None], state), actions)
        if dream is None:
            return None
        dream_value = None if dream.value is None else dream.value[0]
        return Dream(self._raw(tree_map(lambda x: x[0], dream.obs)), dream.reward[0], dream.goes_on[0], dream_value)

    def _raw(self, obs: Obs) -> Obs:
        """Add the first value of each discrete space, so that integers are as the environment counts them."""
        if isinstance(obs, dict):
            return {name: x + self._firsts[name] if name in self._firsts else x for name, x in obs.items()}
        return obs + self._firsts[""] if self._firsts else obs

    def saliency(self, obs: object, mode: Mode) -> Saliency | None:
        """Return the saliency of the choice in this mode, and of V; the episode does not advance."""
        taken = torch.from_numpy(self.taken(self._answer(obs, mode).action.numpy())[0])
        return saliency(self.policy, self._obs, self._carry, self._is_first, taken)

    def taken(self, policy_actions: np.ndarray) -> np.ndarray:
        """[T, ...] -> [T, k]: indices of the k choices in `action_names`, or the action's k numbers."""
        action_rows = policy_actions.reshape(len(policy_actions), -1)
        if isinstance(self._actions.space, spaces.MultiDiscrete):
            return action_rows + np.cumsum([0, *self._actions.space.nvec[:-1]])
        return action_rows

    @torch.inference_mode()
    def _answer(self, obs: object, mode: Mode) -> Act:
        """Return the policy's answer to this observation, with the random draws of the next step."""
        self._write(0, obs)
        policy, (seed, world, purpose) = self.policy_of(mode), self._start
        noise = uniforms(Key(seed, purpose, 0, self._calls + 1), (world + 1, policy.draws))[world:]
        return policy.act(self._obs, self._carry, self._is_first, noise, mode == "greedy")

    def policy_of(self, mode: Mode) -> Policy:
        """Return the policy that acts in this mode."""
        return self._random if mode == "random" else self.policy

    def action_names(self, spec: Spec) -> tuple[str, ...]:
        """Return names of an action's options or numbers: from the spec if it has them, else "0", "1", .."""
        space = self._actions.space
        if isinstance(space, spaces.MultiDiscrete):
            return tuple(f"{index}: {choice}" for index, count in enumerate(space.nvec) for choice in range(count))
        count = int(space.n) if isinstance(space, spaces.Discrete) else math.prod(space.shape or ())
        spec_names = tuple(item.name if isinstance(item, Quantity) else item for item in spec.actions)
        return spec_names if len(spec_names) == count else tuple(map(str, range(count)))


def _only_world(tree: Tree) -> Any:
    """Return row 0 of a tensor [1, ...], or of each tensor in a dict, as copied arrays."""
    if isinstance(tree, dict):
        return {name: _only_world(tensor) for name, tensor in tree.items()}
    return tree[0].numpy().copy()


def check_mode(mode: str) -> Mode:
    """Return the mode itself; UserError, with the nearest name, if it does not exist."""
    mode_names = get_args(Mode)
    if mode not in mode_names:
        raise UserError(f"unknown policy mode {mode!r}{nearest(mode, mode_names)} (known: {', '.join(mode_names)})")
    return cast(Mode, mode)


def batch_of(space: Space[object], batch: Any) -> Obs:
    """Convert N observations of the environment's `space` to the policy's; UserError if they do not fit the space."""
    batch_rows = rows_of(space, batch)
    obs = zeros(observation_space(space), len(batch_rows))
    write = observation_writer(space, obs)
    try:
        for row_index, observation in enumerate(batch_rows):
            write(row_index, observation)
    except (ValueError, TypeError) as error:
        raise UserError(f"{error}; a batch is N observations, [N, ...]; for a single one, give obs[None]") from error
    return obs


def rows_of(space: Space[object], batch: Any) -> Sequence[Any]:
    """Split a batch, whose parts may be arrays [N, ...], into N observations; UserError if it is not a batch."""
    if isinstance(space, spaces.Dict) and isinstance(batch, Mapping):
        if missing := space.spaces.keys() - batch.keys():
            raise UserError(f"the batch has no {', '.join(map(repr, sorted(missing)))}")
        columns = {key: rows_of(child, batch[key]) for key, child in space.spaces.items()}
        return [dict(zip(columns, row, strict=True)) for row in _zip_rows([*columns.values()])]
    if isinstance(space, spaces.Tuple) and isinstance(batch, tuple) and len(batch) == len(space.spaces):
        return _zip_rows([rows_of(child, column) for child, column in zip(space.spaces, batch, strict=True)])
    if isinstance(batch, list | tuple) or (isinstance(batch, np.ndarray) and batch.ndim):
        return cast(Sequence[Any], batch)
    raise UserError(f"a batch is N observations, [N, ...], not a single {type(batch).__name__}")


def _zip_rows(columns: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return the rows of columns; UserError if their lengths differ."""
    counts = sorted({len(column) for column in columns})
    if len(counts) > 1:
        raise UserError(f"the parts of the batch have {' and '.join(map(str, counts))} rows")
    return list(zip(*columns, strict=True))
