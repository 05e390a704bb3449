"""Wrappers for Atari games of ale-py: the screen as a network sees it, lost lives, and clipped rewards.

Their results equal those of the backend `ale` bit for bit.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Env, RewardWrapper, Wrapper
from gymnasium.spaces import Box

from stride.envs_gym.wrappers.base import ResetAnswer, StepAnswer, check_observation, env_name, layers, require
from stride.envs_gym.wrappers.frames import FrameSkip, TimeLimit
from stride.envs_gym.wrappers.images import SQUARE, ChannelFirst, checked_size

ENTRY = "ale_py.env:AtariEnv"  # the entry point of ale-py's games
RANDOM_RANGE = 1 << 32  # raw draws of the Mersenne Twister are below this number


def silence() -> None:
    """Let ale-py print only errors; otherwise it prints its version and licence with the first game."""
    from ale_py import ALEInterface, LoggerMode

    ALEInterface.setLoggerMode(LoggerMode.Error)


def game_of(env: Env, wrapper: str) -> Any:
    """Return ale-py's own environment inside the wrappers; UserError for another one. `wrapper`: for the message."""
    env_spec = env.unwrapped.spec
    fitting = env_spec is not None and env_spec.entry_point == ENTRY
    require(fitting, f"{wrapper} needs a game of ale-py, not {env_name(env)}")
    return env.unwrapped


class AtariScreen(FrameSkip, ChannelFirst):
    """Repeats each action for the game's `frameskip` frames and observes the brighter of the last two.

    `stack` screens become channels, newest last; an episode starts with its first screen repeated. `size: null` keeps
    210 x 160. Before an episode, the game runs up to `noop_max` - 1 frames without actions: for games without sticky
    actions, which would otherwise always start the same. The results equal those of ale_py's AtariVectorEnv; FIRE is
    not pressed automatically.
    """

    def __init__(
        self,
        env: Env,
        grayscale: bool = True,
        size: int | Sequence[int] | None = SQUARE,
        stack: int = 4,
        max_pool: bool = True,
        noop_max: int = 0,
    ) -> None:
        game = game_of(env, "AtariScreen")
        require(isinstance(stack, int) and stack >= 1, f"AtariScreen: stack must be at least 1, not {stack}")
        require(isinstance(noop_max, int) and noop_max >= 0, f"AtariScreen: noop_max must be 0 or more, not {noop_max}")
        require(isinstance(game._frameskip, int), "AtariScreen needs a fixed frameskip")
        require(game._obs_type in ("rgb", "grayscale"), f"AtariScreen needs a screen, not obs_type {game._obs_type}")
        super().__init__(env, game._frameskip)
        # `step` repeats the action itself, so the game must advance by single frames
        game._frameskip, game._obs_type = 1, "grayscale" if grayscale else "rgb"
        for layer in layers(env):
            if isinstance(layer, TimeLimit):  # its limit is in the policy's steps, but it now counts frames
                layer._max_episode_steps *= self.skip
        self.grayscale, self.stack, self.max_pool, self.noop_max = grayscale, stack, max_pool, noop_max
        full_size = game.ale.getScreenDims()
        self.size = full_size if size is None else checked_size("AtariScreen", size)
        shape = ((1 if grayscale else 3) * stack, *self.size)
        check_observation("AtariScreen", shape, np.dtype(np.uint8))
        self.observation_space = Box(0, 255, shape, np.uint8)
        self._game = game
        self._shrink = _resizer(self.size) if self.size != full_size else None
        self._last: list[np.ndarray] = []  # [the step's last frame, the frame before it]
        self._screens = np.zeros(shape, np.uint8)  # the stack of screens, which is the observation

    def reset(self, **kwargs: Any) -> ResetAnswer:
        frame, info = self.env.reset(**kwargs)
        seed: int | None = kwargs.get("seed")
        idle = 0
        if seed is not None:
            # AtariEnv would hash the seed first, ale-py's vector environment does not
            self._game.ale.setInt("random_seed", seed & 0x7FFFFFFF)
            self._game.load_game()
            self._game.ale.reset_game()
            idle = first_draw(seed & 0x7FFFFFFF, self.noop_max) if self.noop_max else 0
        elif self.noop_max:
            idle = int(self._game.np_random.integers(self.noop_max))
        for _ in range(idle):
            self._game.ale.act(0)
            if self._game.ale.game_over():
                self._game.ale.reset_game()
        frame = self._game._get_obs()
        self._last = [frame, np.zeros_like(frame)]
        self._show()
        return self.again(), {**info, "lives": self._game.ale.lives()}

    def step(self, action: object) -> StepAnswer:
        total_reward = 0.0
        for remaining in reversed(range(self.skip)):
            frame, reward, terminated, truncated, info = self.env.step(action)
            total_reward += float(reward)
            if terminated or truncated:
                break  # the last frame of an episode is not observed, as in ALE's vector environment
            if remaining < 2:
                self._last[remaining] = frame
        return self._show(), total_reward, terminated, truncated, info

    def again(self) -> np.ndarray:
        """Return the newest screen repeated, as at the start of an episode."""
        self._screens = np.concatenate([self._screens[-len(self._screens) // self.stack :]] * self.stack)
        return self._screens

    def _show(self) -> np.ndarray:
        """Add the newest screen to the stack and return the stack."""
        if self.max_pool:
            self._last[0] = np.maximum(*self._last)
        picture = self._last[0] if self._shrink is None else self._shrink(self._last[0])
        picture = picture[None] if self.grayscale else picture.transpose(2, 0, 1)
        self._screens = np.concatenate((self._screens[len(picture) :], picture))
        return self._screens


class LifeLoss(Wrapper):
    """A lost life counts as an end for learning only: the game is not reset, and the return is of the full game."""

    # gym_env.py reads `lost` after each step and reports such an end as envs_fast/vec_env.py describes; a single world
    # that is played or watched ignores it

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._game = game_of(env, "LifeLoss")
        self._lives = 0
        self.lost = False

    def reset(self, **kwargs: Any) -> ResetAnswer:
        reset_result = self.env.reset(**kwargs)
        self._lives = self._game.ale.lives()
        self.lost = False
        return reset_result

    def step(self, action: object) -> StepAnswer:
        observation, reward, terminated, truncated, info = self.env.step(action)
        lives = self._game.ale.lives()
        self.lost = 0 < lives < self._lives and not (terminated or truncated)
        self._lives = lives
        return observation, reward, terminated, truncated, info


class ClipReward(RewardWrapper):
    """Clips the rewards for learning to [-1, 1]; reported returns stay unclipped."""

    def reward(self, reward: Any) -> float:
        return min(max(float(reward), -1.0), 1.0)


def first_draw(seed: int, below: int) -> int:
    """Return the number in [0, below) that ale-py's vector environment draws first from a seed.

    It is std::uniform_int_distribution of libstdc++ with std::mt19937(seed). NumPy has the same generator, but its own
    functions draw other numbers from it.
    """
    generator: Any = np.random.MT19937()
    generator._legacy_seeding(seed)
    while True:
        product = int(generator.random_raw()) * below
        # other products are rejected, or some numbers would be more likely than others
        if product % RANDOM_RANGE >= RANDOM_RANGE % below:
            return product // RANDOM_RANGE


def _resizer(size: tuple[int, int]) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that shrinks an image by OpenCV's area averages, as ALE does."""
    import cv2

    def shrink(image: np.ndarray) -> np.ndarray:
        return np.asarray(cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA))

    return shrink
