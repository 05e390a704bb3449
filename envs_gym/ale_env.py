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
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode
from torch import Tensor

from stride.envs_fast.vec_env import CPU, Obs, Step, legal_actions
from stride.envs_gym.blame import Blame
from stride.envs_gym.spaces import step_buffers
from stride.utils.counter_rng import WORLD, Key, integers
from stride.utils.user_error import UserError

RESEED = 2000  # steps: what the seeds cost is then an eighth of the emulation at most
SEEDS = 2**31
SLOW = 5.0  # seconds of replaying from which on it is told
SAME = -1  # the seed that leaves a generator as it is
IDLE = 0  # the action of a world whose answers count for nobody
logger = logging.getLogger("stride")


class Screen(NamedTuple):
    """What is seen of a game, and how actions reach it: the part of a config that every world shares."""

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


class Told(NamedTuple):
    """What a step of all worlds told, [N]."""

    reward: np.ndarray
    lost: np.ndarray  # terminated
    cut: np.ndarray  # truncated
    died: np.ndarray  # a life was lost, the game goes on


class AleEnv:
    """N worlds of one game. `life_loss`: losing a life ends an episode for learning, and no return is told of it."""

    device = CPU
    wrong = None  # `step` refuses an action itself
    resume: str = "exact"
    reward_threshold: float | None = None

    def __init__(
        self, env_id: str, num_envs: int, screen: Screen, life_loss: bool = False, clip: bool = False, threads: int = 0
    ) -> None:
        """`threads`: 0 = one for each processor, at most one for each world; no result depends on it."""
        self.env_id, self.num_envs, self.screen = env_id, num_envs, screen
        self._life_loss, self._clip = life_loss, clip
        with Blame(env_id, doing="__init__"):
            self._envs = _vector_env(screen, num_envs, threads)
        self._channels = 1 if screen.grayscale else 3  # of one screen
        self.observation_space: Space[Any] = spaces.Box(0, 255, (screen.stack * self._channels, *screen.size), np.uint8)
        self._actions = int(self._envs.single_action_space.n)
        self.action_space: Space[Any] = spaces.Discrete(self._actions)
        self.time_limit: int | None = -(-screen.limit // screen.skip)
        self._step = step_buffers(self.observation_space, num_envs)
        told = (leaf.numpy() for leaf in self._step if isinstance(leaf, Tensor))
        (self._obs, self._reward, self._lost, self._cut, self._final, self._told_return, self._told_length) = told
        self._returns, self._lengths = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        self._lives = np.zeros(num_envs, np.int32)
        self._seed = -1  # before the first reset
        self._seedings = np.zeros(num_envs, np.int64)  # how often each world was seeded since
        self._log = [bytearray() for _ in range(num_envs)]  # actions since a world was last seeded
        self._broken: list[int] = []  # worlds that did not come back as they were saved

    def reset(self, seed: int) -> Obs:
        """Seed and start every world; world i begins the same whatever the number of worlds."""
        self._seed, self._broken = seed, []
        self._seedings.fill(0)
        self._returns.fill(0.0)
        self._lengths.fill(0)
        self._begin(range(self.num_envs), fresh=range(self.num_envs))
        return self._step.obs

    def step(self, action: Tensor) -> Step:
        """Advance every world; who ended begins anew. The buffers are overwritten by the next step."""
        raw = self._checked(action)
        broken, self._broken = self._broken, []
        saved = self._obs[broken]
        for world, taken in enumerate(raw.tolist()):
            self._log[world].append(taken)
        reward, lost, cut, died = self._advance(raw)
        reward[broken] = 0
        died[broken], lost[broken], cut[broken] = False, False, True
        self._returns += reward
        self._lengths += 1
        self._lengths[broken] -= 1  # this step is none of the episode's
        self._reward[:] = reward.clip(-1, 1) if self._clip else reward
        self._lost[:], self._cut[:] = lost | died, cut
        self._told_return[:], self._told_length[:] = self._returns, np.where(died, 0, self._lengths)
        ended = np.flatnonzero(lost | cut).tolist()
        if ended:
            self._final[ended] = self._obs[ended]
            self._final[broken] = saved
            self._returns[ended], self._lengths[ended] = 0.0, 0
            self._begin(ended, fresh=broken)
        return self._step

    def _advance(self, raw: np.ndarray) -> Told:
        """Play an action in every world; where a life was lost the stack of screens begins anew."""
        with Blame(self.env_id):
            obs, reward, lost, cut, info = self._envs.step(raw)
        self._obs[:, : -self._channels] = self._obs[:, self._channels :]
        self._obs[:, -self._channels :] = self._screens(obs)
        died = np.zeros(self.num_envs, bool)
        if self._life_loss:
            died = (info["lives"] < self._lives) & (info["lives"] > 0) & ~lost & ~cut
            self._final[died] = self._obs[died]
            self._repeat(np.flatnonzero(died), self._obs[:, -self._channels :])
        self._lives[:] = info["lives"]
        return Told(reward, lost, cut, died)

    def _begin(self, worlds: Sequence[int], fresh: Sequence[int]) -> None:
        """Begin episodes in these worlds; those that are due, or among `fresh`, by a new seed."""
        chosen = np.array(worlds)
        seeds = np.full(len(chosen), SAME)
        for place, world in enumerate(chosen.tolist()):
            if world in fresh or len(self._log[world]) >= RESEED:
                seeds[place] = self._seed_of(world)
                self._seedings[world] += 1
                self._log[world].clear()
        self._restart(chosen, seeds)

    def _seed_of(self, world: int) -> int:
        """The next seed of a world, of a table in which it is the same for any number of worlds."""
        key = Key(self._seed, WORLD, iteration=int(self._seedings[world]))
        return integers(key, world + 1, SEEDS)[world]

    def _restart(self, chosen: np.ndarray, seeds: np.ndarray) -> None:
        """The first observations of these worlds, in the buffer; the others stay where they are."""
        mask = np.zeros(self.num_envs, bool)
        mask[chosen] = True
        order = np.argsort(chosen)  # seeds go by number of the world
        with Blame(self.env_id, doing="reset"):
            obs, info = self._envs.reset(seed=seeds[order], options={"reset_mask": mask})
        self._repeat(chosen, self._screens(obs))
        self._lives[chosen] = info["lives"][chosen]

    def _screens(self, obs: np.ndarray) -> np.ndarray:
        """[N, 1, H, W] or [N, 1, H, W, 3] as ale-py gives them, channels first."""
        return obs if self.screen.grayscale else obs[:, 0].transpose(0, 3, 1, 2)

    def _repeat(self, worlds: np.ndarray, screens: np.ndarray) -> None:
        """Stacks of nothing but an episode's first screen."""
        self._obs[worlds] = np.tile(screens[worlds], (1, self.screen.stack, 1, 1))

    def _checked(self, action: Tensor) -> np.ndarray:
        if action.shape != (self.num_envs,) or action.dtype != torch.int64:
            given = f"{action.dtype}{list(action.shape)}"
            raise ValueError(f"{self.env_id} takes actions torch.int64[{self.num_envs}], got {given}")
        raw = action.cpu().numpy()
        if raw.min() < 0 or raw.max() >= self._actions:
            raise ValueError(
                f"{self.env_id}: {raw.tolist()} holds an action there is not; {legal_actions(self.action_space)}"
            )
        return raw

    def state_dict(self) -> dict[str, Any]:
        """Seeds and actions from which another process plays every world up to here, and what it has to come to."""
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

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the state was taken; a world that does not come back to the bit ends as truncated."""
        saved, mine = (state["env_id"], state["num_envs"]), (self.env_id, self.num_envs)
        if saved != mine or "seedings" not in state:
            raise UserError(f"the checkpoint holds {saved[1]} worlds of {saved[0]}, not {mine[1]} of {mine[0]} by ale")
        began = time.monotonic()
        self._seed = state["seed"]
        self._seedings[:] = np.array(state["seedings"]) - 1
        seeds = np.array([self._seed_of(world) for world in range(self.num_envs)])
        self._seedings += 1
        self._log = [bytearray(log.tolist()) for log in state["actions"]]
        self._replay(seeds)
        seen = state["obs"].numpy()
        same = (self._obs == seen).reshape(self.num_envs, -1).all(1)
        same &= (self._returns == state["returns"]) & (self._lengths == state["lengths"])
        self._broken = sorted({*np.flatnonzero(~same).tolist(), *state["broken"]})
        self._obs[:] = seen
        self._returns[:], self._lengths[:] = state["returns"], state["lengths"]
        steps, seconds = sum(map(len, self._log)), time.monotonic() - began
        if seconds > SLOW:
            logger.info(
                "%s: %s steps of the running episodes played again in %.0f s", self.env_id, f"{steps:,}", seconds
            )
        if self._broken:
            count = f"{len(self._broken)} of {self.num_envs}"
            logger.warning("%s cannot be restored exactly: %s worlds begin a new episode", self.env_id, count)

    def _replay(self, seeds: np.ndarray) -> None:
        """Play the logs again, so that all end together: a world waits for its turn, and is seeded when it comes."""
        longest = max(map(len, self._log))
        waits = np.array([longest - len(log) for log in self._log])
        self._restart(np.arange(self.num_envs), np.where(waits == 0, seeds, SAME))
        self._returns.fill(0.0)
        self._lengths.fill(0)
        for moment in range(longest):
            self._seed_due(waits == moment, seeds, moment)
            turns = zip(self._log, waits.tolist(), strict=True)
            raw = [log[moment - wait] if wait <= moment else IDLE for log, wait in turns]
            reward, lost, cut, _ = self._advance(np.array(raw))
            playing = waits <= moment
            self._returns += np.where(playing, reward, 0)
            self._lengths += playing
            ended = np.flatnonzero((lost | cut) & playing)
            if len(ended):
                self._returns[ended], self._lengths[ended] = 0.0, 0
                self._restart(ended, np.full(len(ended), SAME))
        self._seed_due(waits == longest, seeds, longest)

    def _seed_due(self, due: np.ndarray, seeds: np.ndarray, moment: int) -> None:
        """At the first moment every world was."""
        worlds = np.flatnonzero(due)
        if moment and len(worlds):
            self._restart(worlds, seeds[worlds])

    def close(self) -> None:
        """Stop ale-py's threads."""
        self._envs = None


def _vector_env(screen: Screen, num_envs: int, threads: int) -> Any:
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
