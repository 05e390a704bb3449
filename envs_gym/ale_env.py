"""N Atari games stepped by ale-py's own threads, behind the VecEnv contract, with a resume to the bit.

ale-py's vector environment gives no state away; but what a world does is a function of its seed and of the actions
since, sticky actions included. So those are kept, and played again where a run goes on. A seed costs as much as 200
steps (ALE loads the game anew), so a world is given its next one with the first episode that begins RESEED steps or
more behind the last; episodes between go on with the emulator's generator.
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

RESEED = 2000  # steps: what the seeds cost is then an eighth of the emulation at most
SEEDS = 2**31
SLOW = 5.0  # seconds of replaying from which on it is logged
SAME = -1  # the seed that leaves a generator as it is
IDLE = 0  # the action of a world that waits for its replay
logger = logging.getLogger("stride")


class GameScreen(NamedTuple):
    """How a game is shown, and how actions reach it: the part of a config that every world shares."""

    game: str  # of the ROM: ms_pacman
    skip: int
    sticky: float  # probability that a frame repeats the last action
    full_actions: bool
    limit: int  # frames
    grayscale: bool
    size: tuple[int, int]
    stack: int
    max_pool: bool
    noop_max: int


class GameStep(NamedTuple):
    """The results of a step of all worlds, [N]."""

    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    died: np.ndarray  # a life was lost, the game goes on


class AleEnv:
    """N worlds of one game. `life_loss`: losing a life ends an episode for learning, but no return is reported."""

    device = CPU
    wrong = None  # `step` refuses an action itself
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
        """`threads`: 0 = one for each processor, at most one for each world; no result depends on it."""
        self.env_id = env_id
        self.num_envs = num_envs
        self.screen = screen
        self._life_loss = life_loss
        self._clip = clip
        with Blame(env_id, doing="__init__"):
            self._envs = _vector_env(screen, num_envs, threads)
        self._channels = 1 if screen.grayscale else 3  # of one screen
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
        self._seed = -1  # before the first reset
        self._seedings = np.zeros(num_envs, np.int64)  # how often each world was seeded since
        self._log = [bytearray() for _ in range(num_envs)]  # actions since a world was last seeded
        self._broken: list[int] = []  # worlds that did not come back as they were saved

    def reset(self, seed: int) -> Obs:
        """Seed and start every world; world i begins the same whatever the number of worlds."""
        self._seed = seed
        self._broken = []
        self._seedings.fill(0)
        self._returns.fill(0.0)
        self._lengths.fill(0)
        self._begin(range(self.num_envs), fresh=range(self.num_envs))
        return self._step.obs

    def step(self, action: Tensor) -> Step:
        """Advance every world; ended episodes begin anew. The buffers are overwritten by the next step."""
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
        self._lengths[broken] -= 1  # this step is none of the episode's
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
        """Play an action in every world; where a life was lost the stack of screens begins anew."""
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
        """Begin episodes in these worlds, by a new seed where one is due or the world is among `fresh`."""
        world_seeds = []
        for world in worlds:
            if world in fresh or len(self._log[world]) >= RESEED:
                world_seeds.append(self._seed_of(world))
                self._seedings[world] += 1
                self._log[world].clear()
            else:
                world_seeds.append(SAME)
        self._restart(np.array(worlds), np.array(world_seeds))

    def _seed_of(self, world: int) -> int:
        """The next seed of a world, of a table in which it is the same for any number of worlds."""
        draw_key = Key(self._seed, WORLD, iteration=int(self._seedings[world]))
        return integers(draw_key, world + 1, SEEDS)[world]

    def _restart(self, worlds: np.ndarray, world_seeds: np.ndarray) -> None:
        """Reset these worlds, in ascending order, and write their first observations; the others stay as they are."""
        reset_mask = np.zeros(self.num_envs, bool)
        reset_mask[worlds] = True
        with Blame(self.env_id, doing="reset"):
            observation, info = self._envs.reset(seed=world_seeds, options={"reset_mask": reset_mask})
        self._repeat(worlds, self._screens(observation))
        self._lives[worlds] = info["lives"][worlds]

    def _screens(self, observation: np.ndarray) -> np.ndarray:
        """[N, 1, H, W] or [N, 1, H, W, 3] as ale-py gives them, channels first."""
        return observation if self.screen.grayscale else observation[:, 0].transpose(0, 3, 1, 2)

    def _repeat(self, worlds: np.ndarray, screens: np.ndarray) -> None:
        """Fill the stacks of these worlds with one screen, an episode's first."""
        self._obs[worlds] = np.tile(screens[worlds], (1, self.screen.stack, 1, 1))

    def _checked(self, action: Tensor) -> np.ndarray:
        check_action(self.env_id, action, (self.num_envs,), torch.int64)
        raw_actions = action.cpu().numpy()
        if raw_actions.min() < 0 or raw_actions.max() >= self._actions:
            problem = f"{raw_actions.tolist()} has an invalid action; {legal_actions(self.action_space)}"
            raise ValueError(f"{self.env_id}: {problem}")
        return raw_actions

    def state_dict(self) -> State:
        """Seeds and actions by which another process plays every world up to here, and the state it must arrive at."""
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
        """Continue where the state was taken; a world that does not come back to the bit ends as truncated."""
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
        if seconds > SLOW:
            steps = f"{sum(map(len, self._log)):,}"
            logger.info("%s: %s steps of the running episodes replayed in %.0f s", self.env_id, steps, seconds)
        warn_of_cuts(self.env_id, len(self._broken), self.num_envs)

    def _replay(self, world_seeds: np.ndarray) -> None:
        """Play the logs again, so that all end together: a world waits for its turn, and is seeded when it comes."""
        longest = max(map(len, self._log))
        waits = np.array([longest - len(log) for log in self._log])
        self._restart(np.arange(self.num_envs), np.where(waits == 0, world_seeds, SAME))
        self._returns.fill(0.0)
        self._lengths.fill(0)
        for moment in range(longest):
            self._seed_due(waits == moment, world_seeds, moment)
            raw_actions = []
            for log, wait in zip(self._log, waits.tolist(), strict=True):
                raw_actions.append(log[moment - wait] if wait <= moment else IDLE)
            reward, terminated, truncated, _ = self._advance(np.array(raw_actions))
            playing = waits <= moment
            self._returns += np.where(playing, reward, 0)
            self._lengths += playing
            finished = np.flatnonzero((terminated | truncated) & playing)
            if len(finished):
                self._returns[finished] = 0.0
                self._lengths[finished] = 0
                self._restart(finished, np.full(len(finished), SAME))
        self._seed_due(waits == longest, world_seeds, longest)

    def _seed_due(self, due: np.ndarray, world_seeds: np.ndarray, moment: int) -> None:
        """Seed the worlds whose replay begins now; at moment 0 all worlds were reset before."""
        worlds = np.flatnonzero(due)
        if moment and len(worlds):
            self._restart(worlds, world_seeds[worlds])

    def close(self) -> None:
        """Stop ale-py's threads."""
        self._envs = None


def _vector_env(screen: GameScreen, num_envs: int, threads: int) -> Any:
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv(
        screen.game,
        num_envs,
        num_threads=threads,
        max_num_frames_per_episode=screen.limit,
        repeat_action_probability=screen.sticky,
        full_action_space=screen.full_actions,
        autoreset_mode=AutoresetMode.NEXT_STEP,  # we begin episodes before that step comes, some with a seed of our own
        img_height=screen.size[0],
        img_width=screen.size[1],
        grayscale=screen.grayscale,
        stack_num=1,  # we stack: its stacks begin black, and go on when a life is lost
        frameskip=screen.skip,
        maxpool=screen.max_pool,
        noop_max=screen.noop_max,
        reward_clipping=False,
        use_fire_reset=False,
    )
