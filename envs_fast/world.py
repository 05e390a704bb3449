"""Defines what a compiled environment (a "world") is: its description, its kernels, and the types of their arguments.

The file of an environment defines three functions, each for one world at one instant (`cartpole.py` is the shortest):
    step(state, action, moment, parameters, tables) -> (state, reward, terminated)
    reset(episode, parameters, tables) -> state
    observe(state, parameters) -> observation
`state` and observation are tuples of numbers, an action is one number. A picture has too many numbers for a tuple:
environments with picture observations read and write arrays instead (grids.py).
`kernels.py` builds two Numba kernels from the three functions:
    advance(simulation, lo, hi, actions, results)  plays actions.shape[0] steps of the worlds [lo, hi)
    restart(simulation, lo, hi, mask, obs)         begins episode number `episodes[i]` in each world i of [lo, hi) with
                                                   mask[i], then writes the observations of all of [lo, hi) to `obs`
"""

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self

import numba
import numpy as np
from gymnasium import Space

from stride.utils.counter_rng import WORLD, philox
from stride.utils.kernel_cache import njit

KERNEL: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"nsz", "arcp"},  # "contract" would round differently from NumPy; "reassoc" breaks utils.simd_math
}
TILE = 512  # number of worlds that play all T steps before the next tile begins: their state stays in the L1 cache
NO_LIMIT = 2**31 - 1  # the time limit, in steps, of a world without one
# The last counter word of every random number of a world. A counter_rng.Key has the rank of its process there, which is
# small: so draws of worlds and draws by a Key never share a counter.
WORLDS_OWN = WORLD << 24
# Random blocks (4 words of 32 bits each) for one step. A reset uses blocks 0 to 15, the step after `age` others uses
# the blocks from IN_EPISODE * (age + 1) on.
IN_EPISODE = 16
NUMBA = "numba"  # key of World.kernels for kernels that are written in Python


class Worlds(NamedTuple):
    """The state of N worlds; column or entry i belongs to world i. Arrays are C-contiguous and written in place."""

    state: np.ndarray  # [state_size, N], or [N, state_size] if World.by_world; float64 for physics, int32 for counts
    ages: np.ndarray  # int32 [N]: steps since the episode began
    episodes: np.ndarray  # int32 [N]: the number of the running episode, from 0
    returns: np.ndarray  # float64 [N]: the sum of the raw rewards of the running episode so far


class Stream(NamedTuple):
    """Which random numbers the worlds use: world i draws as number first_world + i of this seed."""

    first_world: int
    seed_lo: int  # lower 32 bits of the seed
    seed_hi: int  # upper 32 bits


class Parameters(Protocol):
    """The numbers that configure a world: each world has its own NamedTuple of floats and ints, with `time_limit`."""

    @property
    def time_limit(self) -> int: ...

    def _replace(self, *, time_limit: int) -> Self: ...

    def __iter__(self) -> Iterator[float]: ...


class OnlyLimit(NamedTuple):
    """The parameters of a world that has no arguments: only the time limit in steps."""

    time_limit: int = NO_LIMIT


Tables = tuple[np.ndarray, ...]  # a NamedTuple of arrays that all N worlds read; empty for most environments


class Simulation(NamedTuple):
    """Everything that a kernel needs except actions and results."""

    worlds: Worlds
    stream: Stream
    parameters: Parameters
    tables: Tables


class StepResults(NamedTuple):
    """The results of T steps of N worlds, C-contiguous. The last three are written only where an episode ended."""

    obs: np.ndarray  # [T, N, ...]: where an episode ended, the first observation of the next episode
    reward: np.ndarray  # float32 [T, N]
    terminated: np.ndarray  # uint8 [T, N]
    truncated: np.ndarray  # uint8 [T, N]; never together with terminated
    final_obs: np.ndarray  # [T, N, ...]: the last observation of the episode that ended
    episode_return: np.ndarray  # float32 [T, N]: its sum of rewards
    episode_length: np.ndarray  # float32 [T, N]: its steps


class Episode(NamedTuple):
    """Identifies an episode for random numbers: its draws depend on these four numbers and nothing else."""

    number: int  # counts the episodes of a world, from 0
    world: int  # Stream.first_world + index of the world
    seed_lo: int
    seed_hi: int


class Moment(NamedTuple):
    """When a step happens, and its random number if there is one."""

    age: int  # steps of the episode before this one
    noise: float  # what the world's `move` drew for this step (tiles.draw_each); undefined in worlds without a `move`
    episode: Episode


@dataclass(frozen=True)
class Setting:
    """What a world's keyword arguments decide: `World.setting(**kwargs)` returns it."""

    observation_space: Space[Any]  # Box float32 or uint8, Discrete, or a Dict of Discrete: obs int64 [n, entries]
    action_space: Space[Any]  # as the policy sees it: Discrete, or Box(-1, 1)
    gym_action_space: Space[Any] | None = None  # Gymnasium's own action space if it differs
    parameters: Parameters = field(default_factory=OnlyLimit)
    gym_parameters: Parameters | None = (
        None  # parameters for use as a Gymnasium environment (gym_face.py) if they differ
    )
    tables: Tables = ()
    in_gym_units: bool = False  # whether gym_face.py passes actions in Gymnasium's units instead of -1 to 1
    state_size: int | None = None  # only if the arguments decide it; else World.state_size counts
    owners: tuple[
        Any, ...
    ] = ()  # objects that own memory whose addresses are in `tables`; kept so that it is not freed
    odds: np.ndarray | None = None  # float64 [actions, outcomes]: "prob" in Gymnasium's infos
    action_masks: np.ndarray | None = None  # int8 [observations, actions]: "action_mask" in Gymnasium's infos


class Kernel(Protocol):
    """The parts of a Numba dispatcher that Stride uses; `bind` returns its machine code as a function."""

    py_func: Callable[..., None]
    signatures: list[Any]
    stats: Any

    def compile(self, signature: tuple[Any, ...]) -> Callable[..., Any]: ...


class Kernels(NamedTuple):
    """The two kernels of a world (see the top of this file)."""

    advance: Kernel
    restart: Kernel


class Scene(NamedTuple):
    """Draws a world whose picture shows more than its observation, such as all of a MiniGrid map."""

    draw: Callable[[np.ndarray, np.ndarray, Any], np.ndarray]
    """(a column of the state, its observation, the parameters) -> uint8 [height, width, 3]"""
    play: Callable[[np.ndarray, int, Any], None]
    """(a column of the state, an action, the parameters): plays one step in place. Kernels do not keep the state in
    which an episode ended, so that to draw it the last step is played again."""


@dataclass(frozen=True)
class World:
    """Describes one environment id: everything that is needed to run it, on the CPU or on a GPU."""

    env_id: str
    setting: Callable[..., Setting]  # its keyword arguments, with their defaults, are those of the environment
    kernels: Mapping[str, Kernels]  # {NUMBA: ...}
    state_size: int  # how many numbers the state of one world has
    gym_state: Callable[[np.ndarray], dict[str, Any]] | None = None
    """A column of the state -> attributes of Gymnasium's environment; None: Gymnasium has no such environment."""
    recall: Callable[[np.ndarray], np.ndarray] = (
        np.asarray
    )  # an observation -> a column of the state that looks like it
    time_limit: int | None = None  # steps
    reward_threshold: float | None = None  # the mean return that counts as solved
    state_dtype: type[np.generic] = np.float64
    by_world: bool = False
    """Whether the CPU kernels need the numbers of a world side by side in memory: state [N, state_size] (grids.py)."""
    picture: Callable[[np.ndarray], np.ndarray] | None = None
    """An observation -> uint8 [height, width, 3], for a world that is drawn from its observation alone."""
    scene: Scene | None = None  # for a world that is drawn from its state, too
    heavy: bool = False  # whether a step takes so long (MuJoCo) that it pays to divide a single step among threads
    pose: Callable[[Any, np.ndarray], None] | None = None
    """(Gymnasium's environment, a column of the state): sets its state if `gym_state`'s attributes are not enough."""
    compile_seconds: int = 5  # about how long Numba compiles, for the log line that explains the wait
    default_kwargs: dict[str, Any] = field(default_factory=dict)  # arguments that belong to this id

    @property
    def draws_itself(self) -> bool:
        """Whether Stride draws this world itself, without Gymnasium's environment."""
        return self.picture is not None or self.scene is not None


def plain_gym_state(column: np.ndarray) -> dict[str, Any]:
    """Return the attributes that set the state of many Gymnasium environments: `env.state`, a copy of the column."""
    return {"state": column.copy()}


WORLDS: dict[str, World] = {}  # all by id except MuJoCo's; filled by envs_fast/registry.py
BODIES: dict[str, World] = {}  # MuJoCo's tasks by id; filled by envs_fast/bodies/registry.py
COMPILED: Mapping[str, World] = ChainMap(WORLDS, BODIES)  # both


def fast_id(env_id: str) -> str:
    """Return the Gymnasium id of a compiled world: `fast/` and its id, with "-" for slashes: one is allowed."""
    return f"fast/{env_id.replace('/', '-')}"


def bind(kernel: Kernel, *arguments: object) -> Callable[..., Any]:
    """Compile (or load) a kernel for the types of `arguments` and return its machine code as a function.

    The function does not check the types of its arguments: a call takes 0.5 us instead of 0.7, or of 3 with named
    tuples. The caller must pass the same types, contiguity and numbers of dimensions each time.
    """
    return kernel.compile(tuple(numba.typeof(argument) for argument in arguments))


@njit(inline="always")
def draw(block: int, episode: Episode) -> tuple[np.uint32, np.uint32, np.uint32, np.uint32]:
    """Return four random words of 32 bits that depend on nothing but the block number and the episode."""
    return philox(block, episode.number, episode.world, WORLDS_OWN, episode.seed_lo, episode.seed_hi)


@njit(inline="always")
def draw_now(moment: Moment) -> tuple[np.uint32, np.uint32, np.uint32, np.uint32]:
    """Return the first four random words of a step; docs/tutorials/first_world.md makes a world that uses them."""
    return draw(IN_EPISODE * (moment.age + 1), moment.episode)


@njit(inline="always")
def between(word: np.uint32, low: float, high: float) -> float:
    """Return a uniform float64 in [low, high) made from all 32 bits of a random word."""
    return low + (high - low) * (np.float64(word) * 2.0**-32)
