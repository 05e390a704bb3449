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


def _world(name: str, **parts: Any) -> type[Probe]:
    return type(name, (Probe,), parts)


def _coin(world: Probe) -> Tensor:
    return world.coin


def _match(world: Probe, action: Tensor) -> Tensor:
    return (action * 2.0 - 1) * world.coin


# one step, reward 1: V = 1; fails when the value loss is wrong
ConstantReward = _world("ConstantReward", worth={0: 1})

# one step, the reward is the observation (+-1): V(s) = s; fails when gradients do not reach the observation
SeenReward = _world("SeenReward", worth={1: 1, -1: -1}, observe=_coin, reward=lambda world, action: world.coin.clone())

# two steps, reward 0 then 1, the step is seen: V = gamma, then 1; fails when discounting is wrong
DelayedReward = _world(
    "DelayedReward",
    length=2,
    worth={0: GAMMA, 1: 1},
    observe=lambda world: world.age,
    reward=lambda world, action: world.age.clone(),
)

# one step, +1 for action 1 and -1 for action 0: act 1; fails when the policy gradient has the wrong sign
ChosenReward = _world("ChosenReward", right={0: 1}, reward=lambda world, action: action * 2.0 - 1)

# one step, +1 when the action matches the observation; fails when rows are mixed up in the batch
MatchedReward = _world("MatchedReward", right={1: 1, -1: 0}, observe=_coin, reward=_match)

# reward 1 for ever, cut by a limit every 3 steps: V = 1 / (1 - gamma); fails when truncation counts as an end
Endless = _world("Endless", length=3, ends_by_limit=True, time_limit=3, worth={0: 1 / (1 - GAMMA)})

# one step, -(a - 0.5)^2 for a real action: aim at 0.5; fails when numbers are chosen or bounded wrongly
Aimed = _world(
    "Aimed",
    right={0: 0.5},
    action_space=gym.spaces.Box(-1, 1, (1,)),
    reward=lambda world, action: -(action[:, 0] - 0.5).square(),
)

# one step, half a point for each of two choices: the last of 2 and the middle of 3
Paired = _world(
    "Paired",
    right={0: [1, 1]},
    action_space=gym.spaces.MultiDiscrete([2, 3]),
    reward=lambda world, action: (action == 1).float().mean(1),
)

# three steps; the coin that is seen at the first, and then nothing, decides which action is paid at the last: each V is
# 1 from the first step on for who remembers to act by it; fails without a memory
RememberedReward = _world(
    "RememberedReward",
    length=3,
    observe=lambda world: world.coin * (world.age == 0),
    reward=lambda world, action: _match(world, action) * (world.age == world.length - 1),
)


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
