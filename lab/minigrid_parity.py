"""Compares our compiled MiniGrid tasks with the package's, step for step, and the distributions of their layouts.

    pip install minigrid && python -m lab.minigrid_parity [ID ...]     from random states, 100,000 steps of each task
    python -m lab.minigrid_parity --record                             a few into tests/envs_fast/minigrid.npz

The package's environment is set to our states (also to that of each new episode) and plays our actions; views, rewards
and ends must be equal. Layouts are compared by how often each object is in each cell, and by distances of objects.
"""

import zlib
from collections import Counter
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch

from lab.minigrid_states import random_actions, random_states
from stride.commands.usage import parser_of
from stride.envs_fast.minigrid import rules
from stride.envs_fast.minigrid.rules import CELLS, COLOUR, KIND, STATE
from stride.envs_fast.registry import WORLDS, make
from stride.envs_gym.wrappers.minigrid import one_hot
from stride.utils import entry
from stride.utils.places import PROJECT
from stride.utils.user_error import UserError, nearest

SEED, STEPS = 7, 50  # steps from each state
FILE = PROJECT / "tests" / "envs_fast" / "minigrid.npz"
IDS = [env_id for env_id in WORLDS if env_id.startswith("MiniGrid-")]
SHOWN = (  # tasks of which --record stores some steps for the tests
    "MiniGrid-Empty-Random-5x5-v0", "MiniGrid-DoorKey-5x5-v0", "MiniGrid-Unlock-v0", "MiniGrid-KeyCorridorS3R2-v0",
    "MiniGrid-FourRooms-v0", "MiniGrid-LavaGapS5-v0", "MiniGrid-MultiRoom-N2-S4-v0",
)  # fmt: skip
RECORDED, LAYOUTS = 16, 2000  # states that are recorded, and layouts of the package, for each task
PAIRS = ((rules.AGENT, rules.GOAL), (rules.AGENT, rules.KEY), (rules.KEY, rules.DOOR), (rules.BALL, rules.KEY))
# rarer features of layouts are not compared; their frequencies may differ by so many standard deviations
MIN_COUNT, MAX_DEVIATIONS = 10, 6.5


class Answers(NamedTuple):
    """The results of T steps from N states."""

    reward: np.ndarray  # float32 [T, N]
    terminated: np.ndarray  # bool [T, N]
    truncated: np.ndarray  # bool [T, N], where it is not terminated
    obs: np.ndarray  # uint16 [T, N]: checksum of the view; after an episode's end, of the next one's first
    final_obs: np.ndarray  # uint16 [T, N]: checksum of the last view of an episode that ended, else 0


class Played(NamedTuple):
    """The states from which the steps start, and the actions."""

    states: np.ndarray  # int32 [state_size, N]
    ages: np.ndarray  # int32 [N], steps of the episode so far
    actions: np.ndarray  # int8 [T, N]


def main(argv: list[str]) -> int:
    """Exit code 1: a step or a layout differs."""
    parser = parser_of(__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="all, unless some are named")
    parser.add_argument("--steps", type=int, default=100_000, metavar="N", help="steps of each task")
    parser.add_argument("--record", action="store_true", help="write what the tests compare with")
    arguments = parser.parse_args(argv)
    for env_id in arguments.ids:
        if env_id not in IDS:
            raise UserError(f"no compiled MiniGrid {env_id!r}{nearest(env_id, IDS)}")
    faults, recorded = 0, dict[str, np.ndarray]()
    for env_id in arguments.ids or (SHOWN if arguments.record else IDS):
        number = RECORDED if arguments.record else max(1, arguments.steps // STEPS)
        played, theirs, mine = compare(env_id, number)
        different = int(differences(mine, theirs).sum())
        ends = f"{int(theirs.terminated.sum())} terminated, {int(theirs.truncated.sum())} cut"
        their_features = features(*package_layouts(env_id, LAYOUTS))
        deviations, labels = farthest(features(*our_layouts(env_id, 10 * LAYOUTS)), their_features)
        faults += different + (deviations > MAX_DEVIATIONS)
        steps = f"{different} of {theirs.reward.size} steps differ; {ends}, rewards {theirs.reward.sum():.1f}"
        print(f"{env_id}: {steps}; {labels} things in layouts, {deviations:.1f} deviations at most", flush=True)
        common = {label: count for label, count in their_features.items() if count >= MIN_COUNT}
        tables = {"labels": np.array([*common]), "counts": np.array([*common.values()], np.int16)}
        tables |= {**played._asdict(), **theirs._asdict()}
        recorded |= {f"{env_id} {key}": table for key, table in tables.items()}
    if arguments.record and not faults:
        np.savez_compressed(FILE, allow_pickle=False, **recorded)
    return 1 if faults else 0


def compare(env_id: str, number: int) -> tuple[Played, Answers, Answers]:
    """Play random actions from random states; return them with the package's results and ours."""
    rng = np.random.default_rng(1)
    env, limit = make(env_id, number, seed=SEED), WORLDS[env_id].time_limit
    assert limit is not None  # every task has one
    played = Played(
        random_states(env_id, number, rng),
        rng.integers(0, limit, number, np.int32),
        random_actions((STEPS, number), rng).astype(np.int8),
    )
    mine, states = our_answers(env, played)
    return played, package_answers(env_id, played, mine, states), mine


def our_answers(env: Any, played: Played) -> tuple[Answers, np.ndarray]:
    """Return our results, and the state after each step, int32 [T, state_size, N]."""
    env.state[:], env.ages[:] = played.states, played.ages
    answers, states = empty_answers(played.actions.shape), []
    for t, action in enumerate(torch.from_numpy(played.actions.astype(np.int64))):
        step = env.step(action)
        ended = (step.terminated | step.truncated).numpy()
        answers.reward[t], answers.terminated[t], answers.truncated[t] = step.reward, step.terminated, step.truncated
        answers.obs[t] = [checksum(view) for view in step.obs.numpy()]
        answers.final_obs[t, ended] = [checksum(view) for view in step.final_obs.numpy()[ended]]
        states.append(env.state.copy())
    return answers, np.stack(states)


def package_answers(env_id: str, played: Played, mine: Answers, states: np.ndarray) -> Answers:
    """Return the package's results; when one of our episodes ends, the package gets the layout of our next one."""
    world = package_world(env_id)
    answers = empty_answers(played.actions.shape)
    ended = mine.terminated | mine.truncated
    for i in range(played.actions.shape[1]):
        put_into(world, env_id, played.states[:, i], int(played.ages[i]))
        for t, action in enumerate(played.actions[:, i]):
            obs, reward, terminated, truncated, _ = world.step(int(action))
            answers.reward[t, i], answers.terminated[t, i] = reward, terminated
            answers.truncated[t, i] = truncated and not terminated
            if ended[t, i]:
                answers.final_obs[t, i] = checksum(planes(obs))
                put_into(world, env_id, states[t, :, i], 0)
                obs = world.gen_obs()
            answers.obs[t, i] = checksum(planes(obs))
    return answers


def differences(mine: Answers, theirs: Answers) -> np.ndarray:
    """Return bool [T, N]: whether any result differs."""
    return np.any([one != other for one, other in zip(mine, theirs, strict=True)], axis=0)


def empty_answers(shape: tuple[int, ...]) -> Answers:
    return Answers(*(np.zeros(shape, kind) for kind in (np.float32, bool, bool, np.uint16, np.uint16)))


def checksum(view: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(view).tobytes()) & 0xFFFF


def planes(obs: Any) -> np.ndarray:
    """Convert an observation of the package to ours: one-hot planes of the view, then of the direction."""
    view = one_hot(obs["image"]).transpose(2, 0, 1)
    direction = np.zeros((rules.DIRECTIONS, rules.SIDE, rules.SIDE), np.uint8)
    direction[obs["direction"]] = 1
    return np.concatenate((view, direction)) * np.uint8(rules.LIT)


def package_world(env_id: str) -> Any:
    """Return the package's environment without wrappers; UserError if it is not installed."""
    try:
        import minigrid  # noqa: F401  # registers it
    except ImportError:
        raise UserError("the package is compared with: pip install minigrid") from None
    world = gymnasium.make(env_id, disable_env_checker=True).unwrapped
    world.reset(seed=SEED)
    return world


def put_into(world: Any, env_id: str, column: np.ndarray, age: int) -> None:
    """Set the package's environment to one of our states, int32 [state_size], and the age of the episode."""
    from minigrid.core.world_object import WorldObj

    def thing(cell: int) -> Any:
        return WorldObj.decode(cell & KIND, cell // COLOUR & rules.HUE, cell // STATE)

    cells = [int(cell) for cell in column[CELLS : CELLS + world.width * world.height]]
    world.grid.grid = [thing(cell) for cell in cells]
    world.agent_pos, world.agent_dir = (int(column[rules.X]), int(column[rules.Y])), int(column[rules.FACING])
    carried = int(column[rules.CARRIED])
    world.carrying, world.step_count = thing(carried) if carried else None, age
    if "Unlock" in env_id:
        world.door = world.grid.grid[int(column[rules.THE_DOOR]) - CELLS]
    if "KeyCorridor" in env_id:
        balls = [thing for thing in [*world.grid.grid, world.carrying] if thing and thing.type == "ball"]
        (world.obj,) = balls


def package_layouts(env_id: str, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return layouts of the package: cells [number, height, width] in our code, agents [number, 3] (x, y, facing)."""
    world = package_world(env_id)
    cells, agents = [], []
    for _ in range(number):
        world.reset()
        kind, colour, state = world.grid.encode().astype(np.int32).transpose(2, 1, 0)
        cells.append(kind + COLOUR * colour + STATE * state)
        agents.append([*world.agent_pos, world.agent_dir])
    return np.stack(cells), np.array(agents)


def our_layouts(env_id: str, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return our layouts, with the shapes of `package_layouts`."""
    numbers: Any = WORLDS[env_id].setting().parameters  # rules.Parameters
    state = make(env_id, number, seed=SEED).state
    cells = state[CELLS : CELLS + numbers.width * numbers.height].T.reshape(number, numbers.height, numbers.width)
    return cells, state[[rules.X, rules.Y, rules.FACING]].T


def features(cells: np.ndarray, agents: np.ndarray) -> Counter[str]:
    """Count features of layouts: objects in each cell, distances of objects, numbers of doors.

    For example {"layouts": 2000, "cell 812": 31, "agent x 3": 400, "10 8 2": 95, "doors 1": 2000}.
    """
    counts: Counter[str] = Counter(layouts=len(cells))
    places = np.arange(cells[0].size) + cells.reshape(len(cells), -1) * cells[0].size
    counts.update({f"cell {label}": int(n) for label, n in zip(*np.unique(places, return_counts=True), strict=True)})
    for name, column in zip(("x", "y", "facing"), agents.T.tolist(), strict=True):
        counts.update(f"agent {name} {value}" for value in column)
    for first, second in PAIRS:
        one, other = where(first, cells, agents), where(second, cells, agents)
        apart = np.abs(one - other)[(one.min(axis=1) >= 0) & (other.min(axis=1) >= 0)]
        counts.update(f"{first} {second} {way}" for way in apart.tolist())
    counts.update(f"doors {n}" for n in (cells & KIND == rules.DOOR).sum(axis=(1, 2)).tolist())
    return counts


def where(kind: int, cells: np.ndarray, agents: np.ndarray) -> np.ndarray:
    """Return the position (x, y) of the first object of a kind, [number, 2]; -1 if there is none."""
    if kind == rules.AGENT:
        return agents[:, :2]
    is_kind = (cells & KIND == kind).reshape(len(cells), -1)
    first, width = is_kind.argmax(axis=1), cells.shape[2]
    positions = np.stack((first % width, first // width), axis=1)
    return np.where(is_kind.any(axis=1)[:, None], positions, -1)


def farthest(mine: Counter[str], theirs: Counter[str]) -> tuple[float, int]:
    """Return the largest difference of a feature, in standard deviations, and the number of compared features."""
    here, there = mine["layouts"], theirs["layouts"]
    largest, compared = 0.0, 0
    for label in mine.keys() | theirs.keys():
        share = (mine[label] + theirs[label]) / (here + there)
        if share * there < MIN_COUNT or share == 1.0:
            continue
        deviation = (share * (1 - share) * (1 / here + 1 / there)) ** 0.5
        difference = abs(mine[label] / here - theirs[label] / there)
        largest, compared = max(largest, difference / deviation), compared + 1
    return largest, compared


if __name__ == "__main__":
    entry.run(main)
