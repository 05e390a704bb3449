"""A compiled world: its description, its kernels, and the types of their arguments.

A world says three things, each about one world at one instant (`cartpole.py` is the shortest to read):
    step(state, action, moment, parameters, tables) -> (state, reward, terminated)
    reset(episode, parameters, tables) -> state
    observe(state, parameters) -> what is seen of it
`state` and what is seen are tuples of numbers, an action is one number. A picture has too many for a tuple: worlds that
are seen so read and write arrays (grids.py). `kernels.py` makes of them two kernels,
    advance(simulation, lo, hi, actions, told)    plays actions.shape[0] steps of the worlds [lo, hi)
    restart(simulation, lo, hi, mask, obs)        begins the episode `episodes[i]` wherever mask[i]; what is seen of all
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
    "fastmath": {"nsz", "arcp"},  # "contract" would round otherwise than NumPy; "reassoc" breaks utils.simd_math
}
TILE = 512  # worlds that play all T steps before the next tile begins: their state stays in the innermost cache
NO_LIMIT = 2**31 - 1  # the time limit of a world without one
WORLDS_OWN = WORLD << 24  # last counter word of every draw here; a Key has a process's rank there, which is small
IN_EPISODE = 16  # draws of a step use the blocks from IN_EPISODE * (age + 1) on, those of a reset the blocks below
NUMBA = "numba"  # the kind of kernels that are written in Python


class Worlds(NamedTuple):
    """N worlds; column or entry i is world i's. C-contiguous, written in place."""

    state: np.ndarray  # [state_size, N], by_world [N, state_size]: float64 where Gymnasium's is, int32 where it counts
    ages: np.ndarray  # int32 [N]: steps since the episode began
    episodes: np.ndarray  # int32 [N]: the number of the running episode
    returns: np.ndarray  # float64 [N]: its raw rewards so far


class Stream(NamedTuple):
    """Which draws are whose: world i is number first_world + i in every draw of a seed."""

    first_world: int
    seed_lo: int  # the seed's lower 32 bits
    seed_hi: int


class Parameters(Protocol):
    """The numbers of a world, by name: a NamedTuple of floats and ints, one of them this."""

    @property
    def time_limit(self) -> int: ...

    def _replace(self, *, time_limit: int) -> Self: ...

    def __iter__(self) -> Iterator[float]: ...


class OnlyLimit(NamedTuple):
    """The parameters of a world in which nothing can be chosen."""

    time_limit: int = NO_LIMIT


Tables = tuple[np.ndarray, ...]  # a NamedTuple of arrays, the same for all worlds; most have none


class Simulation(NamedTuple):
    """All that a kernel plays with, but for actions and results."""

    worlds: Worlds
    stream: Stream
    parameters: Parameters
    tables: Tables


class Told(NamedTuple):
    """The results of T steps of N worlds, C-contiguous: the last three are written only where an episode ended."""

    obs: np.ndarray  # [T, N, ...]: where an episode ended, the first of the next one
    reward: np.ndarray  # float32 [T, N]
    terminated: np.ndarray  # uint8 [T, N]
    truncated: np.ndarray  # uint8 [T, N]; never together with terminated
    final_obs: np.ndarray  # [T, N, ...]
    episode_return: np.ndarray  # float32 [T, N]
    episode_length: np.ndarray  # float32 [T, N]


class Episode(NamedTuple):
    """An episode's place in the random numbers: its draws depend on nothing else."""

    number: int
    world: int
    seed_lo: int
    seed_hi: int


class Moment(NamedTuple):
    """When a step is made."""

    age: int  # steps of the episode before this one
    noise: float  # what the world's `move` has drawn for this step, where it draws ahead; rubbish elsewhere
    episode: Episode


@dataclass(frozen=True)
class Setting:
    """A world as the keyword arguments of its environment ask for it."""

    observation_space: Space[Any]  # Box float32 or uint8, Discrete, or a Dict of Discrete: obs int64 [n, entries]
    action_space: Space[Any]  # as the policy sees it: Discrete, or Box(-1, 1)
    gym_action_space: Space[Any] | None = None  # Gymnasium's own, where it is another
    parameters: Parameters = field(default_factory=OnlyLimit)
    gym_parameters: Parameters | None = None  # the same behind Gymnasium's face, where they are others
    tables: Tables = ()
    in_gym_units: bool = False  # whether actions behind Gymnasium's face come in its units, not as -1 to 1
    state_size: int | None = None  # where arguments decide it
    owners: tuple[Any, ...] = ()  # of memory to which the tables have addresses
    odds: np.ndarray | None = None  # float64 [actions, outcomes]: "prob" in Gymnasium's infos
    action_masks: np.ndarray | None = None  # int8 [observations, actions]: "action_mask" there


class Kernel(Protocol):
    """A function that Numba compiles; `bind` calls its machine code."""

    py_func: Callable[..., None]
    signatures: list[Any]
    stats: Any

    def compile(self, signature: tuple[Any, ...]) -> Callable[..., Any]: ...


class Kernels(NamedTuple):
    """Both kernels of a world, of one kind."""

    advance: Kernel
    restart: Kernel


class Scene(NamedTuple):
    """How a world is drawn of which more is drawn than is seen."""

    draw: Callable[[np.ndarray, np.ndarray, Any], np.ndarray]
    """(a column of the state, what is seen of it, its parameters) -> uint8 [height, width, 3]"""
    play: Callable[[np.ndarray, int, Any], None]
    """(a column of the state, an action, its parameters): one step in place. Kernels keep no state in which an episode
    ended: it is played once more."""


@dataclass(frozen=True)
class World:
    """One environment id: everything that is needed to run it, whatever its kernels run on."""

    env_id: str
    setting: Callable[..., Setting]  # its keyword arguments, with their defaults, are those of the environment
    kernels: Mapping[str, Kernels]  # by kind
    state_size: int
    gym_state: Callable[[np.ndarray], dict[str, Any]] | None = None
    """A column of the state -> attributes of Gymnasium's environment; None: Gymnasium has no such environment."""
    recall: Callable[[np.ndarray], np.ndarray] = np.asarray  # an observation -> a column of the state that looks so
    time_limit: int | None = None
    reward_threshold: float | None = None
    state_dtype: type[np.generic] = np.float64
    by_world: bool = False
    """Whether the kernels of the CPU want the numbers of a world side by side in memory (grids.py)."""
    picture: Callable[[np.ndarray], np.ndarray] | None = None
    """An observation -> uint8 [height, width, 3], of a world that draws itself."""
    scene: Scene | None = None
    heavy: bool = False  # a step takes so long that threads share out a single one
    pose: Callable[[Any, np.ndarray], None] | None = None
    """Puts Gymnasium's environment into the state of a column, where attributes would not."""
    compile_seconds: int = 5  # roughly, for the line that explains the wait
    default_kwargs: dict[str, Any] = field(default_factory=dict)  # that come with the id

    @property
    def draws_itself(self) -> bool:
        """Whether it is drawn without Gymnasium's environment."""
        return self.picture is not None or self.scene is not None


def plain_gym_state(column: np.ndarray) -> dict[str, Any]:
    """The attributes with which many of Gymnasium's environments draw a state."""
    return {"state": column.copy()}


WORLDS: dict[str, World] = {}  # by id; envs_fast/registry.py has a row for each
BODIES: dict[str, World] = {}  # by id, those of envs_fast/bodies
COMPILED: Mapping[str, World] = ChainMap(WORLDS, BODIES)


def fast_id(env_id: str) -> str:
    """The id by which Gymnasium makes a compiled world, whoever has the plain one: it knows one slash in an id."""
    return f"fast/{env_id.replace('/', '-')}"


def bind(kernel: Kernel, *arguments: object) -> Callable[..., Any]:
    """The machine code for arguments of these types. It does not ask theirs at each call: 0.5 us instead of 0.7, or of
    3 with named tuples. Whoever calls it answers for types, contiguity and shapes.
    """
    return kernel.compile(tuple(numba.typeof(argument) for argument in arguments))


@njit(inline="always")
def draw(block: int, episode: Episode) -> tuple[np.uint32, np.uint32, np.uint32, np.uint32]:
    """Four random words that depend on nothing but the block and the episode."""
    return philox(block, episode.number, episode.world, WORLDS_OWN, episode.seed_lo, episode.seed_hi)


@njit(inline="always")
def draw_now(moment: Moment) -> tuple[np.uint32, np.uint32, np.uint32, np.uint32]:
    """The first four random words of a step; docs/tutorials/first_world.md makes a world that draws so."""
    return draw(IN_EPISODE * (moment.age + 1), moment.episode)


@njit(inline="always")
def between(word: np.uint32, low: float, high: float) -> float:
    """A float64 uniform in [low, high) from all 32 bits of a word."""
    return low + (high - low) * (np.float64(word) * 2.0**-32)
