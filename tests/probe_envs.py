"""Worlds so small that the right values and actions are known by heart (after Andy Jones' probe environments).

Each isolates one thing an algorithm must get right; a wrong one fails here in seconds instead of on CartPole in hours.
"""

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from stride.agents.experience.nouns import Explanation
from stride.envs_fast.vec_env import Obs, Step
from stride.utils.counter_rng import WORLD, Key, uniforms

GAMMA = 0.9


class Probe:
    """N equal worlds; a subclass says what is seen, what is paid and when it is over."""

    length = 1  # steps to the end
    ends_by_limit = False
    time_limit: int | None = None
    reward_threshold: float | None = None
    worth: ClassVar[dict[int, float]] = {}  # V of what is seen, discounted by GAMMA
    right: ClassVar[dict[int, Any]] = {}  # the best action for what is seen
    device = torch.device("cpu")
    observation_space: gym.Space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space: gym.Space = gym.spaces.Discrete(2)

    def __init__(self, num_envs: int) -> None:
        self.num_envs = n = num_envs
        self.age = torch.zeros(n)
        self.coin = torch.zeros(n)
        self.paid = torch.zeros(n)
        self.draws, self.seed = 0, 0
        flags = torch.zeros(n, dtype=torch.bool)
        self.out = Step(
            torch.zeros(n, 1), torch.zeros(n), flags, flags.clone(), torch.zeros(n, 1), torch.zeros(n), torch.zeros(n)
        )

    def observe(self) -> Tensor:
        return torch.zeros(self.num_envs)

    def sight(self) -> Obs:
        """All that is seen: the usual one number, unless a world shows something else."""
        return self.observe()[:, None]

    def _shown(self, buffer: Tensor) -> Obs:
        """In place where it fits: what worlds show may be overwritten by the next step."""
        sight = self.sight()
        return buffer.copy_(sight) if isinstance(sight, Tensor) and sight.shape == buffer.shape else sight

    def reward(self, action: Tensor) -> Tensor:
        return torch.ones(self.num_envs)

    def reset(self, seed: int) -> Obs:
        self.seed, self.draws = seed, 0
        self.age.zero_()
        self.paid.zero_()
        self._toss()
        return self._shown(self.out.obs)

    def step(self, action: Tensor) -> Step:
        out = self.out
        out.reward.copy_(self.reward(action))
        self.paid += out.reward
        self.age += 1
        final_obs = self._shown(out.final_obs)
        ended = self.age >= self.length
        out.terminated.copy_(ended & (not self.ends_by_limit))
        out.truncated.copy_(ended & self.ends_by_limit)
        out.episode_return.copy_(self.paid)
        out.episode_length.copy_(self.age)
        self.age *= ~ended
        self.paid *= ~ended
        self._toss()
        return out._replace(obs=self._shown(out.obs), final_obs=final_obs)

    def _toss(self) -> None:
        self.draws += 1
        u = uniforms(Key(self.seed, WORLD, 0, self.draws), (self.num_envs,))
        self.coin = torch.where(self.age == 0, (u < 0.5) * 2.0 - 1, self.coin)

    def state_dict(self) -> dict:
        return {name: getattr(self, name) for name in ("age", "coin", "paid", "draws", "seed")}

    def load_state_dict(self, state: dict) -> None:
        for name, value in state.items():
            setattr(self, name, value.clone() if isinstance(value, Tensor) else value)

    def close(self) -> None:
        pass


class Spaces:
    """No more of worlds than building a policy looks at."""

    device = torch.device("cpu")

    def __init__(self, observation_space: gym.Space, action_space: gym.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space


class ConstantReward(Probe):
    """One step, reward 1: V = 1. Fails when the value loss is wrong."""

    worth: ClassVar = {0: 1}


class SeenReward(Probe):
    """One step, the reward is the observation (+-1): V(s) = s. Fails when gradients do not reach the observation."""

    worth: ClassVar = {1: 1, -1: -1}

    def observe(self) -> Tensor:
        return self.coin

    def reward(self, action: Tensor) -> Tensor:
        return self.coin.clone()


class DelayedReward(Probe):
    """Two steps, reward 0 then 1, the step is seen: V = gamma, then 1. Fails when discounting is wrong."""

    length = 2
    worth: ClassVar = {0: GAMMA, 1: 1}

    def observe(self) -> Tensor:
        return self.age

    def reward(self, action: Tensor) -> Tensor:
        return self.age.clone()


class ChosenReward(Probe):
    """One step, +1 for action 1 and -1 for action 0: act 1. Fails when the policy gradient has the wrong sign."""

    right: ClassVar = {0: 1}

    def reward(self, action: Tensor) -> Tensor:
        return action * 2.0 - 1


class MatchedReward(Probe):
    """One step, +1 when the action matches the observation: fails when rows are mixed up in the batch."""

    right: ClassVar = {1: 1, -1: 0}

    def observe(self) -> Tensor:
        return self.coin

    def reward(self, action: Tensor) -> Tensor:
        return (action * 2.0 - 1) * self.coin


class Endless(Probe):
    """Reward 1 for ever, cut by a limit every 3 steps: V = 1 / (1 - gamma). Fails when truncation counts as an end."""

    length, ends_by_limit, time_limit = 3, True, 3
    worth: ClassVar = {0: 1 / (1 - GAMMA)}


class Aimed(Probe):
    """One step, -(a - 0.5)^2 for a real action: aim at 0.5. Fails when numbers are chosen or bounded wrongly."""

    right: ClassVar = {0: 0.5}
    action_space = gym.spaces.Box(-1, 1, (1,))

    def reward(self, action: Tensor) -> Tensor:
        return -(action[:, 0] - 0.5).square()


class Paired(Probe):
    """One step, half a point for each of two choices: the last of 2 and the middle of 3."""

    right: ClassVar = {0: [1, 1]}
    action_space = gym.spaces.MultiDiscrete([2, 3])

    def reward(self, action: Tensor) -> Tensor:
        return (action == 1).float().mean(1)


class RememberedReward(Probe):
    """Three steps; what is seen at the first decides which action is paid at the last: fails without a memory.

    Seen are the coin and then nothing, so with the probability 1/2 each V is 1 from the first step on only for who
    remembers to act by the coin.
    """

    length = 3

    def observe(self) -> Tensor:
        return self.coin * (self.age == 0)

    def reward(self, action: Tensor) -> Tensor:
        return (action * 2.0 - 1) * self.coin * (self.age == self.length - 1)


class PixelCatch(gym.Env[np.ndarray, int]):
    """A dot falls down a board of 8 x 8, drawn as 16 x 16 bytes; below moves a paddle of one place: +1 if it is there.

    Seen is where everything is, and it takes 7 steps: +1 for who is under the dot in time, at random about -0.75.
    Fails when what matters in a picture, 4 pixels of 256, is not told from the rest.
    """

    side, scale = 8, 2
    metadata: ClassVar = {"render_modes": []}

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (1, *[self.side * self.scale] * 2), np.uint8)
        self.action_space = gym.spaces.Discrete(3)  # left, stay, right

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.height, self.column, self.paddle = 0, int(self.np_random.integers(self.side)), self.side // 2
        return self.picture(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.height += 1
        self.paddle = min(max(self.paddle + int(action) - 1, 0), self.side - 1)
        ended = self.height == self.side - 1
        return self.picture(), ended * (2.0 * (self.paddle == self.column) - 1), ended, False, {}

    def picture(self) -> np.ndarray:
        board = np.zeros((self.side, self.side), np.uint8)
        board[self.height, self.column] = board[-1, self.paddle] = 255
        return board.repeat(self.scale, 0).repeat(self.scale, 1)[None]


gym.register("PixelCatch-v0", PixelCatch)


def _first(*seen: float) -> tuple[Tensor, Tensor]:
    return torch.tensor(seen, dtype=torch.float32)[:, None], torch.ones(len(seen), dtype=torch.bool)


def opinions(policy: Any, *seen: float) -> Explanation:
    """How a policy judges the first observation of an episode, for each of these."""
    obs, is_first = _first(*seen)
    with torch.no_grad():
        return policy.explain(obs, policy.initial(len(seen)), is_first)


def choices(policy: Any, *seen: float) -> list:
    """Its greedy actions there."""
    obs, is_first = _first(*seen)
    with torch.no_grad():
        act = policy.act(obs, policy.initial(len(seen)), is_first, torch.zeros(len(seen), policy.draws), True)
    action = act.action.view(len(seen), -1)
    return (action[:, 0] if action.shape[1] == 1 else action).tolist()


def drawn(space: gym.Space, *lead: int) -> Obs:
    """Observations [*lead, ...] of a space at random, as the worlds give them."""
    space.seed(1)
    if isinstance(space, gym.spaces.Dict):
        return {name: drawn(leaf, *lead) for name, leaf in space.items()}
    samples = np.stack([space.sample() for _ in range(int(np.prod(lead)))])
    return torch.from_numpy(samples).view(*lead, *space.shape)
