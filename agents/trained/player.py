"""A policy facing one world of the raw environment: its observations in, its actions out. No stepping here."""

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

Mode = Literal["greedy", "sampled", "random"]  # how a player chooses: most likely, by its policy's chances, blindly


class RandomPolicy(Policy):
    """Any action that the observation's mask allows with equal chance; unbounded numbers are standard normal."""

    counts: list[int]
    """options of each choice"""

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
    """One of the options that `mask` [N, options] allows, or of all where it allows none, by a uniform each [N]."""
    allowed = mask | ~mask.any(1, keepdim=True)
    allowed_count = allowed.sum(1)
    choice_rank = (u * allowed_count).long().minimum(allowed_count - 1)
    return (allowed.cumsum(1) <= choice_rank[:, None]).sum(1)


class EpisodeStart(NamedTuple):
    """Where an episode begins: world `world` of worlds that were reset with `seed`, drawing for `purpose`."""

    seed: int
    world: int = 0
    purpose: int = PLAY


class ChosenAction(NamedTuple):
    """An action, as the environment takes it and as the policy gave it."""

    action: Any
    policy_action: np.ndarray
    moved: float | None
    """how far this step took what the policy remembers; None where that means nothing"""


class Opinion(NamedTuple):
    """An Explanation of one world, as arrays of its own."""

    encoded: Any
    distribution: dict[str, np.ndarray]
    entropy: float
    value: float | None
    state: Tree = None
    """as tensors: for the policy alone, to dream from"""
    attention: np.ndarray | None = None


class Player:
    """Owns the carry and the draws of one episode; refers to the policy, whose weights may go on changing.

    `act` is all one needs, and `reset` where an episode begins. It draws what the Collector draws for the same world,
    so that an episode watched is the episode counted.
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
        """Begin an episode: an empty carry, and the draws of this start. The environment is reset by the caller."""
        self._start = start
        self._calls = 0
        copy_into(self._carry, self.policy.initial(1))
        self._is_first = torch.ones(1, dtype=torch.bool)  # written in place: its inference would stick to a new one

    def act(self, obs: object, greedy: bool = True) -> Any:
        """The environment's own action for its own observation, one of a single world, in its units and dtype.

        Takes the carry one step on, so it is called once per step; ValueError or TypeError where the observation does
        not fit the space the run was trained on.
        """
        return self.choose(obs, "greedy" if greedy else "sampled").action

    @torch.inference_mode()
    def predict(self, batch: Any) -> np.ndarray:
        """The greedy actions [N, ...] for N observations of the environment, as it takes them; nothing advances.

        `batch` is an array [N, ...], a dict or tuple of arrays as the space has them, or a list of N observations.
        UserError where they do not fit the space, or where the policy remembers: `act` goes through its episodes.
        """
        _, _, act = self._first_answers(batch)
        return np.asarray(self._actions.convert(act.action.numpy()), self._dtype)

    @torch.inference_mode()
    def value(self, batch: Any) -> np.ndarray | None:
        """The expected return [N] from N observations on; None where the policy estimates none: SAC, no critic."""
        obs, carry, _ = self._first_answers(batch)
        is_first = torch.ones(len(leaves(obs)[0]), dtype=torch.bool)
        expected_return = self.policy.explain(obs, carry, is_first).value
        return None if expected_return is None else expected_return.numpy().copy()

    def _first_answers(self, batch: Any) -> tuple[Obs, Tree, Act]:
        """A batch as the policy sees it, the carry before, and its greedy answer; as if an episode began with each."""
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
        """Act, and take the carry on to the next step."""
        policy_act = self._answer(obs, mode)
        self._calls += 1
        next_carry = policy_act.carry
        if mode == "random":  # the policy follows actions that are not its own: its opinions are of the real episode
            next_carry = self.policy.follow(self._obs, self._carry, self._is_first, policy_act.action)
        moved = self.policy.moved(self._carry, next_carry)
        copy_into(self._carry, next_carry)
        self._is_first.fill_(False)
        policy_action = policy_act.action.numpy()
        distance = None if moved is None else moved.item()
        return ChosenAction(self._actions.convert(policy_action)[0], policy_action[0], distance)

    @torch.inference_mode()
    def explain(self, obs: object) -> Opinion:
        """The policy's opinion of this observation; nothing advances."""
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
        """Imagine the future [H, ...] from an opinion's state under actions [H, ...]; nothing advances.

        None where it does not dream, or there is no action.
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
        """An observation with integers counted as the environment counts them."""
        if isinstance(obs, dict):
            return {name: x + self._firsts[name] if name in self._firsts else x for name, x in obs.items()}
        return obs + self._firsts[""] if self._firsts else obs

    def saliency(self, obs: object, mode: Mode) -> Saliency | None:
        """The saliency of its choice in this mode and of its value; nothing advances."""
        taken = torch.from_numpy(self.taken(self._answer(obs, mode).action.numpy())[0])
        return saliency(self.policy, self._obs, self._carry, self._is_first, taken)

    def taken(self, policy_actions: np.ndarray) -> np.ndarray:
        """[T, ...] -> [T, k]: indices of the choices made among all `action_names`, or the action's numbers."""
        action_rows = policy_actions.reshape(len(policy_actions), -1)
        if isinstance(self._actions.space, spaces.MultiDiscrete):
            return action_rows + np.cumsum([0, *self._actions.space.nvec[:-1]])
        return action_rows

    @torch.inference_mode()
    def _answer(self, obs: object, mode: Mode) -> Act:
        """The answer to this observation, with the draws of the next step."""
        self._write(0, obs)
        policy, (seed, world, purpose) = self.policy_of(mode), self._start
        noise = uniforms(Key(seed, purpose, 0, self._calls + 1), (world + 1, policy.draws))[world:]
        return policy.act(self._obs, self._carry, self._is_first, noise, mode == "greedy")

    def policy_of(self, mode: Mode) -> Policy:
        """The policy that answers in a mode."""
        return self._random if mode == "random" else self.policy

    def action_names(self, spec: Spec) -> tuple[str, ...]:
        """Names of the choices or numbers of an action, from the spec, else numbers."""
        space = self._actions.space
        if isinstance(space, spaces.MultiDiscrete):
            return tuple(f"{index}: {choice}" for index, count in enumerate(space.nvec) for choice in range(count))
        count = int(space.n) if isinstance(space, spaces.Discrete) else math.prod(space.shape or ())
        spec_names = tuple(item.name if isinstance(item, Quantity) else item for item in spec.actions)
        return spec_names if len(spec_names) == count else tuple(map(str, range(count)))


def _only_world(tree: Tree) -> Any:
    """The only world of a tensor, or of a dict of them, as copied arrays."""
    if isinstance(tree, dict):
        return {name: _only_world(tensor) for name, tensor in tree.items()}
    return tree[0].numpy().copy()


def check_mode(mode: str) -> Mode:
    """The mode itself; UserError where there is none of that name."""
    mode_names = get_args(Mode)
    if mode not in mode_names:
        raise UserError(f"unknown policy mode {mode!r}{nearest(mode, mode_names)} (known: {', '.join(mode_names)})")
    return cast(Mode, mode)


def batch_of(space: Space[object], batch: Any) -> Obs:
    """N observations of the original `space` as the policy sees them; UserError where they are not of it."""
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
    """The N observations of a batch, whose parts may be arrays [N, ...]; UserError where it is no batch."""
    if isinstance(space, spaces.Dict) and isinstance(batch, Mapping):
        if missing := space.spaces.keys() - batch.keys():
            raise UserError(f"the batch has no {', '.join(map(repr, sorted(missing)))}")
        columns = {key: rows_of(child, batch[key]) for key, child in space.spaces.items()}
        return [dict(zip(columns, row, strict=True)) for row in _together([*columns.values()])]
    if isinstance(space, spaces.Tuple) and isinstance(batch, tuple) and len(batch) == len(space.spaces):
        return _together([rows_of(child, column) for child, column in zip(space.spaces, batch, strict=True)])
    if isinstance(batch, list | tuple) or (isinstance(batch, np.ndarray) and batch.ndim):
        return cast(Sequence[Any], batch)
    raise UserError(f"a batch is N observations, [N, ...], not a single {type(batch).__name__}")


def _together(columns: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    counts = sorted({len(column) for column in columns})
    if len(counts) > 1:
        raise UserError(f"the parts of the batch have {' and '.join(map(str, counts))} rows")
    return list(zip(*columns, strict=True))
