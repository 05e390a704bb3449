"""Steps N Atari games by ale-py's own threads, behind the VecEnv contract; a resume is exact to the bit.

The state of ale-py's vector environment cannot be saved. But a world depends only on its seed and on the actions since,
sticky actions included, so a checkpoint has both, and loading plays the actions again. A new seed costs as much as 200
steps, because ALE loads the game again. Therefore a world gets a new seed only when an episode begins RESEED_STEPS or
more after its last seed; other episodes go on with the emulator's random generator.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import Space
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from torch import Tensor

from stride.envs_fast.vec_env import CPU, Obs, Step, legal_actions
from stride.envs_gym.answers import State
from stride.envs_gym.blame import Blame
from stride.envs_gym.snapshot import check_saved, warn_of_cuts
from stride.envs_gym.spaces import check_action, step_buffers, step_tensors
from stride.utils.counter_rng import WORLD, Key, integers
from stride.utils.user_error import UserError

RESEED_STEPS = 2000  # steps between two seeds of a world: seeding then takes at most 1/8 of the emulation's time
SEEDS = 2**31
SLOW_SECONDS = 5.0  # a replay of at least this time is logged
KEEP_GENERATOR = -1  # ale-py's seed for "do not seed": the generator goes on
IDLE_ACTION = 0  # the action of a world that waits for the start of its replay
logger = logging.getLogger("stride")


class GameScreen(NamedTuple):
    """The settings that all worlds share: how a game is shown, and how actions are applied."""

    game: str  # name of the ROM, such as ms_pacman
    skip: int  # frames in each step
    sticky: float  # probability that a frame repeats the action before
    full_actions: bool
    limit: int  # frames of an episode at most
    grayscale: bool
    size: tuple[int, int]  # height and width in pixels
    stack: int  # screens in an observation
    max_pool: bool  # whether a screen is the brighter of the step's last two frames
    noop_max: int  # an episode begins after 0 to noop_max - 1 frames without action


class GameStep(NamedTuple):
    """The results of a step of all worlds, arrays [N]."""

    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    died: np.ndarray  # a life was lost, the game goes on


class AleEnv:
    """N worlds of one game.

    `life_loss`: a lost life counts as terminated for learning, but reports no return. `clip`: rewards for learning are
    clipped to [-1, 1].
    """

    device = CPU
    wrong = None  # no flag for illegal actions: `step` raises
    resume: str = "exact"
    reward_threshold: float | None = None

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        screen: GameScreen,
        life_loss: bool = False,
        clip: bool = False,
        threads: int = 0,
    ) -> None:
        """`threads`: 0 = one for each processor, at most one for each world; results do not depend on it."""
        self.env_id = env_id
        self.num_envs = num_envs
        self.screen = screen
        self._life_loss = life_loss
        self._clip = clip
        with Blame(env_id, doing="__init__"):
            self._envs = _vector_env(screen, num_envs, threads)
        self._channels = 1 if screen.grayscale else 3  # channels of one screen
        self.observation_space: Space = Box(0, 255, (screen.stack * self._channels, *screen.size), np.uint8)
        self._actions = int(self._envs.single_action_space.n)
        self.action_space: Space = Discrete(self._actions)
        self.time_limit: int | None = -(-screen.limit // screen.skip)
        self._step = step_buffers(self.observation_space, num_envs)
        self._views: Any = Step._make(tensor.numpy() for tensor in step_tensors(self._step))
        self._obs: Any = self._views.obs
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self._lives = np.zeros(num_envs, np.int32)
        self._seed = -1  # the seed of `reset`; -1 before the first one
        self._seedings = np.zeros(num_envs, np.int64)  # how often each world was seeded since `reset`
        self._log = [bytearray() for _ in range(num_envs)]  # each world's actions since it was last seeded
        self._broken: list[int] = []  # worlds that loading did not restore exactly: the next step truncates them

    def reset(self, seed: int) -> Obs:
        """Seed and start every world; world i gets the same seed for any number of worlds."""
        self._seed = seed
        self._broken = []
        self._seedings.fill(0)
        self._returns.fill(0.0)
        self._lengths.fill(0)
        self._begin(range(self.num_envs), fresh=range(self.num_envs))
        return self._step.obs

    def step(self, action: Tensor) -> Step:
        """Advance every world and restart ended episodes. The next step overwrites the returned buffers."""
        raw_actions = self._checked(action)
        broken = self._broken
        self._broken = []
        saved = self._obs[broken]
        for log, world_action in zip(self._log, raw_actions.tolist(), strict=True):
            log.append(world_action)
        reward, terminated, truncated, life_lost = self._advance(raw_actions)
        reward[broken] = 0
        life_lost[broken] = False
        terminated[broken] = False
        truncated[broken] = True
        self._returns += reward
        self._lengths += 1
        self._lengths[broken] -= 1  # this step is not part of the broken episodes
        self._views.reward[:] = reward.clip(-1, 1) if self._clip else reward
        self._views.terminated[:] = terminated | life_lost
        self._views.truncated[:] = truncated
        self._views.episode_return[:] = self._returns
        self._views.episode_length[:] = np.where(life_lost, 0, self._lengths)
        finished = np.flatnonzero(terminated | truncated).tolist()
        if finished:
            self._views.final_obs[finished] = self._obs[finished]
            self._views.final_obs[broken] = saved
            self._returns[finished] = 0.0
            self._lengths[finished] = 0
            self._begin(finished, fresh=broken)
        return self._step

    def _advance(self, raw_actions: np.ndarray) -> GameStep:
        """Do one action in every world and write the observations; a lost life fills the stack with the new screen."""
        with Blame(self.env_id):
            observation, reward, terminated, truncated, info = self._envs.step(raw_actions)
        self._obs[:, : -self._channels] = self._obs[:, self._channels :]
        self._obs[:, -self._channels :] = self._screens(observation)
        life_lost = np.zeros(self.num_envs, bool)
        if self._life_loss:
            life_lost = (info["lives"] < self._lives) & (info["lives"] > 0) & ~terminated & ~truncated
            self._views.final_obs[life_lost] = self._obs[life_lost]
            self._repeat(np.flatnonzero(life_lost), self._obs[:, -self._channels :])
        self._lives[:] = info["lives"]
        return GameStep(reward, terminated, truncated, life_lost)

    def _begin(self, worlds: Sequence[int], fresh: Sequence[int]) -> None:
        """Begin episodes in these worlds; with a new seed where one is due, or where the world is in `fresh`."""
        world_seeds = []
        for world in worlds:
            if world in fresh or len(self._log[world]) >= RESEED_STEPS:
                world_seeds.append(self._seed_of(world))
                self._seedings[world] += 1
                self._log[world].clear()
            else:
                world_seeds.append(KEEP_GENERATOR)
        self._restart(np.array(worlds), np.array(world_seeds))

    def _seed_of(self, world: int) -> int:
        """Return the next seed of a world, which is the same for any number of worlds."""
        draw_key = Key(self._seed, WORLD, iteration=int(self._seedings[world]))
        return integers(draw_key, world + 1, SEEDS)[world]

    def _restart(self, worlds: np.ndarray, world_seeds: np.ndarray) -> None:
        """Reset these worlds (in ascending order) with these seeds and write their first observations."""
        reset_mask = np.zeros(self.num_envs, bool)
        reset_mask[worlds] = True
        with Blame(self.env_id, doing="reset"):
            observation, info = self._envs.reset(seed=world_seeds, options={"reset_mask": reset_mask})
        self._repeat(worlds, self._screens(observation))
        self._lives[worlds] = info["lives"][worlds]

    def _screens(self, observation: np.ndarray) -> np.ndarray:
        """Return ale-py's screens, [N, 1, H, W] or [N, 1, H, W, 3], with channels first: [N, 1 or 3, H, W]."""
        return observation if self.screen.grayscale else observation[:, 0].transpose(0, 3, 1, 2)

    def _repeat(self, worlds: np.ndarray, screens: np.ndarray) -> None:
        """Fill the stacks of these worlds with one screen each, as at the start of an episode."""
        self._obs[worlds] = np.tile(screens[worlds], (1, self.screen.stack, 1, 1))

    def _checked(self, action: Tensor) -> np.ndarray:
        """Return the action as an array; ValueError for another shape or type, or an illegal choice."""
        check_action(self.env_id, action, (self.num_envs,), torch.int64)
        raw_actions = action.cpu().numpy()
        if raw_actions.min() < 0 or raw_actions.max() >= self._actions:
            problem = f"{raw_actions.tolist()} has an invalid action; {legal_actions(self.action_space)}"
            raise ValueError(f"{self.env_id}: {problem}")
        return raw_actions

    def state_dict(self) -> State:
        """Return seeds and actions that lead every world to its present state, and that state for comparison."""
        if self._seed < 0:
            raise RuntimeError(f"{self.env_id} has no state before its first reset")
        return {
            "env_id": self.env_id,
            "num_envs": self.num_envs,
            "seed": self._seed,
            "seedings": self._seedings.tolist(),
            "actions": [torch.tensor(list(log), dtype=torch.uint8) for log in self._log],
            "obs": torch.from_numpy(self._obs.copy()),
            "returns": self._returns.tolist(),
            "lengths": self._lengths.tolist(),
            "broken": list(self._broken),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue where the state was taken; an episode that is not restored bit for bit ends as truncated."""
        check_saved(state, self.env_id, self.num_envs)
        if "seedings" not in state:
            raise UserError(f"the checkpoint's environments of {self.env_id} are of another backend, not of ale")
        start_time = time.monotonic()
        self._seed = state["seed"]
        self._seedings[:] = np.array(state["seedings"]) - 1
        world_seeds = np.array([self._seed_of(world) for world in range(self.num_envs)])
        self._seedings += 1
        self._log = [bytearray(log.tolist()) for log in state["actions"]]
        self._replay(world_seeds)
        observation = state["obs"].numpy()
        same = (self._obs == observation).reshape(self.num_envs, -1).all(1)
        same &= (self._returns == state["returns"]) & (self._lengths == state["lengths"])
        self._broken = sorted({*np.flatnonzero(~same).tolist(), *state["broken"]})
        self._obs[:] = observation
        self._returns[:] = state["returns"]
        self._lengths[:] = state["lengths"]
        seconds = time.monotonic() - start_time
        if seconds > SLOW_SECONDS:
            steps = f"{sum(map(len, self._log)):,}"
            logger.info("%s: %s steps of the running episodes replayed in %.0f s", self.env_id, steps, seconds)
        warn_of_cuts(self.env_id, len(self._broken), self.num_envs)

    def _replay(self, world_seeds: np.ndarray) -> None:
        """Play the logs of all worlds again, so that all end at the same step.

        The world with the longest log begins at moment 0. A world with a shorter log first waits (IDLE_ACTION), and is
        seeded when its replay begins.
        """
        longest = max(map(len, self._log))
        waits = np.array([longest - len(log) for log in self._log])  # steps that each world waits
        self._restart(np.arange(self.num_envs), np.where(waits == 0, world_seeds, KEEP_GENERATOR))
        self._returns.fill(0.0)
        self._lengths.fill(0)
        for moment in range(longest):
            self._seed_due(waits == moment, world_seeds, moment)
            raw_actions = []
            for log, wait in zip(self._log, waits.tolist(), strict=True):
                raw_actions.append(log[moment - wait] if wait <= moment else IDLE_ACTION)
            reward, terminated, truncated, _ = self._advance(np.array(raw_actions))
            playing = waits <= moment
            self._returns += np.where(playing, reward, 0)
            self._lengths += playing
            finished = np.flatnonzero((terminated | truncated) & playing)
            if len(finished):
                self._returns[finished] = 0.0
                self._lengths[finished] = 0
                self._restart(finished, np.full(len(finished), KEEP_GENERATOR))
        self._seed_due(waits == longest, world_seeds, longest)

    def _seed_due(self, due: np.ndarray, world_seeds: np.ndarray, moment: int) -> None:
        """Seed the worlds whose replay begins at this moment; at moment 0 `_replay` has reset all worlds already."""
        worlds = np.flatnonzero(due)
        if moment and len(worlds):
            self._restart(worlds, world_seeds[worlds])

    def close(self) -> None:
        """Stop ale-py's threads."""
        self._envs = None


def _vector_env(screen: GameScreen, num_envs: int, threads: int) -> Any:
    """Make ale-py's vector environment with these settings."""
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv(
        screen.game,
        num_envs,
        num_threads=threads,
        max_num_frames_per_episode=screen.limit,
        repeat_action_probability=screen.sticky,
        full_action_space=screen.full_actions,
        autoreset_mode=AutoresetMode.NEXT_STEP,  # `step` resets worlds before that, some with a new seed
        img_height=screen.size[0],
        img_width=screen.size[1],
        grayscale=screen.grayscale,
        stack_num=1,  # `_advance` stacks: ale-py's stacks begin black, and are not restarted when a life is lost
        frameskip=screen.skip,
        maxpool=screen.max_pool,
        noop_max=screen.noop_max,
        reward_clipping=False,
        use_fire_reset=False,
    )
