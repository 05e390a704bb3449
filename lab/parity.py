"""Compares our compiled MinAtar games with the package's, step for step.

    pip install minatar && python -m lab.parity     from random states of every game, 100,000 steps
    python -m lab.parity --record                   a few steps of each into tests/envs_fast/minatar.npz

The package's game is set to our states and plays our actions; its random generator is replaced by one that returns the
numbers that our kernels draw. Observations, rewards and ends must be equal, also those of the next episode.
"""

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch

from lab.minatar_states import GAMES, random_states
from stride.commands.usage import parser_of
from stride.envs_fast.minatar import asterix, breakout, freeway, lists, seaquest, space_invaders
from stride.envs_fast.minatar.game import BEFORE, LIT, SIDE
from stride.envs_fast.registry import make
from stride.envs_fast.world import IN_EPISODE, Episode, draw
from stride.utils import entry
from stride.utils.places import PROJECT

SEED, STEPS = 7, 50  # steps from each state
FILE = PROJECT / "tests" / "envs_fast" / "minatar.npz"
RECORDED = 60  # states of each game that --record stores
VARIED: tuple[dict[str, Any], ...] = ({}, {"sticky_action_prob": 0.5, "difficulty_ramping": False})
MODULES = {"SpaceInvaders": "space_invaders"}  # game -> module of the package; others: in small letters


class Answers(NamedTuple):
    """The results of T steps from N states."""

    reward: np.ndarray  # [T, N]
    terminated: np.ndarray  # bool [T, N]
    obs: np.ndarray  # uint32 [T, N]: checksum of the planes; after the end of an episode, of the next one's first
    final_obs: np.ndarray  # uint32 [T, N]: checksum of the last planes of an episode that ended, else 0


class OurRandomWords:
    """Replaces the package's random generator: it computes its numbers from our random words (32 bits each)."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self._chosen = np.zeros(8, int)

    def rand(self, size: int | None = None) -> Any:
        if size is not None:  # directions of Freeway's cars; their speeds were drawn before
            return np.where(self._chosen < freeway.LONGEST_REST, 0.75, 0.25)
        return self.words.pop(0) * 2.0**-32

    def randint(self, low: int, high: int | None = None, size: int | None = None) -> Any:
        if size is not None:
            self._chosen = np.array(self.words, np.int64)[:size] * (2 * freeway.LONGEST_REST) >> 32
            return self._chosen % freeway.LONGEST_REST + 1
        first, end = (0, low) if high is None else (low, high)
        return first + (self.words.pop(0) * (end - first) >> 32)


def main(argv: list[str]) -> int:
    """Exit code 1: a step differs."""
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=100_000, metavar="N", help="steps of each game")
    parser.add_argument("--record", action="store_true", help="write what the tests compare with")
    arguments = parser.parse_args(argv)
    different, recorded = 0, dict[str, np.ndarray]()
    for name in GAMES:
        number = RECORDED if arguments.record else max(1, arguments.steps // STEPS)
        for kwargs in VARIED[: 1 if arguments.record else None]:
            states, actions, found, answers = compare(name, number, kwargs)
            different += found
            steps = answers.reward.size
            ends, total = int(answers.terminated.sum()), int(answers.reward.sum())
            counts = f"{found} of {steps} steps differ; {ends} episodes ended, rewards {total}"
            print(f"{name} {kwargs or ''}: {counts}", flush=True)
        tables = {"states": states, "actions": actions, **answers._asdict()}
        recorded |= {f"{name} {key}": table for key, table in tables.items()}
    if arguments.record and not different:
        np.savez_compressed(FILE, allow_pickle=False, **recorded)
    return 1 if different else 0


def compare(name: str, number: int, kwargs: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, int, Answers]:
    """Play random actions from random states.

    Return the states [state_size, N], actions [T, N], the number of steps that differ, and the package's results.
    """
    env_id, rng = f"MinAtar/{name}-v1", np.random.default_rng(1)
    env = make(env_id, number, seed=SEED, **kwargs)
    states = random_states(env_id, number, rng)
    actions = rng.integers(0, int(env.action_space.n), (STEPS, number))
    env.state[:] = states
    ours = env.advance(torch.from_numpy(actions)).arrays
    ended = ours.terminated.astype(bool)
    mine = Answers(ours.reward, ended, sums(ours.obs), np.where(ended, sums(ours.final_obs), 0))
    theirs = answers_of(name, states, actions, kwargs)
    differs = np.zeros((STEPS, number), bool)
    for one, other in zip(mine, theirs, strict=True):
        differs |= one != other
    return states, actions.astype(np.int8), int(differs.sum()), theirs


def sums(obs: np.ndarray) -> np.ndarray:
    """Return the checksums [T, N] of observations [T, N, ...]."""
    shape = obs.shape[:2]
    rows = obs.reshape(shape[0] * shape[1], -1)
    return np.array([zlib.crc32(row.tobytes()) for row in rows], np.uint32).reshape(shape)


def answers_of(name: str, states: np.ndarray, actions: np.ndarray, kwargs: dict[str, Any]) -> Answers:
    """Return the package's results of these actions [T, N] from these states."""
    package = import_module("minatar")
    module = MODULES.get(name, name.lower())
    environment: Any = package.Environment(module, **kwargs)
    environment.random = environment.env.random = generator = OurRandomWords()
    actions_of_game = environment.minimal_action_set()
    steps, number = actions.shape
    answers = Answers(*(np.zeros((steps, number), kind) for kind in (np.float32, bool, np.uint32, np.uint32)))
    for world in range(number):
        number_of_episode, age = 0, 0
        put_into(name, environment, [int(value) for value in states[:, world]])
        for t in range(steps):
            episode = Episode(number_of_episode, world, SEED, 0)
            generator.words = words_of(name, environment.env, IN_EPISODE * (age + 1), episode)
            answers.reward[t, world], is_over = environment.act(actions_of_game[actions[t, world]])
            age += 1
            if is_over:
                answers.terminated[t, world] = True
                answers.final_obs[t, world] = sum_of(environment.state())
                number_of_episode, age = number_of_episode + 1, 0
                generator.words = words(0, 2, episode._replace(number=number_of_episode))
                environment.reset()
                environment.last_action = 0  # the package does not reset it
            answers.obs[t, world] = sum_of(environment.state())
    return answers


def sum_of(state: np.ndarray) -> int:
    """Return the checksum of our observation for a state of the package, bool [10, 10, planes]."""
    return zlib.crc32(np.ascontiguousarray(state.transpose(2, 0, 1).astype(np.uint8) * LIT).tobytes())


def words(block: int, blocks: int, episode: Episode) -> list[int]:
    """Return the random words of so many blocks, from number `block` on."""
    return [int(word) for k in range(blocks) for word in draw(block + k, episode)]


def words_of(name: str, game: Any, block: int, episode: Episode) -> list[int]:
    """Return the random words of a step in the order in which the package needs them."""
    drawn = words(block, 3, episode)
    if name == "Freeway":
        return drawn[:1] + drawn[4:]
    if name == "Seaquest":
        return drawn[:1] + (drawn[1:4] if game.e_spawn_timer == 0 else []) + drawn[4:]
    return drawn


def put_into(name: str, environment: Any, state: list[int]) -> None:
    """Set the package's game to one of our states."""
    environment.last_action = state[BEFORE]
    environment.env.terminal = False
    PUT[name](environment.env, state)


def _breakout(game: Any, state: list[int]) -> None:
    b = breakout
    game.pos, game.ball_x, game.ball_y = state[b.POSITION], state[b.BALL_X], state[b.BALL_Y]
    game.ball_dir, game.last_x, game.last_y = state[b.DIRECTION], state[b.LAST_X], state[b.LAST_Y]
    game.strike, game.brick_map = bool(state[b.IN_WALL]), np.zeros((SIDE, SIDE))
    game.brick_map[b.TOP : b.BOTTOM + 1] = np.reshape([state[b.WALL] >> k & 1 for k in range(30)], (3, SIDE))


def _asterix(game: Any, state: list[int]) -> None:
    a = asterix
    game.player_x, game.player_y = state[a.PLAYER_X], state[a.PLAYER_Y]
    game.spawn_speed, game.spawn_timer = state[a.SPAWN_SPEED], state[a.SPAWN_TIMER]
    game.move_speed, game.move_timer = state[a.MOVE_SPEED], state[a.MOVE_TIMER]
    game.ramp_timer, game.ramp_index = state[a.RAMP_TIMER], state[a.RAMPS]
    game.entities = [
        None if comes == a.EMPTY else [comes & a.PLACE, k + 1, bool(comes & a.RIGHTWARDS), bool(comes & a.IS_GOLD)]
        for k, comes in enumerate(state[a.SLOTS :])
    ]


def _freeway(game: Any, state: list[int]) -> None:
    f = freeway
    game.pos, game.move_timer, game.terminate_timer = state[f.POSITION], state[f.MOVE_TIMER], state[f.TIME_LEFT]
    game.cars = []
    for lane, car in enumerate(range(f.CARS, f.ROWS, f.NUMBERS), 1):
        game.cars.append([state[car + f.COLUMN], lane, state[car + f.TIMER], state[car + f.REST]])


def _space_invaders(game: Any, state: list[int]) -> None:
    s = space_invaders
    game.pos, game.alien_dir, game.enemy_move_interval = state[s.POSITION], state[s.DIRECTION], state[s.INTERVAL]
    game.alien_move_timer, game.alien_shot_timer = state[s.MOVE_TIMER], state[s.ALIEN_TIMER]
    game.shot_timer, game.ramp_index = state[s.SHOT_TIMER], s.SLOWEST - state[s.INTERVAL]
    for first, attribute in ((s.ALIENS, "alien_map"), (s.BULLETS, "f_bullet_map"), (s.ALIEN_BULLETS, "e_bullet_map")):
        rows = state[first : first + SIDE]
        setattr(game, attribute, np.array([[float(row >> x & 1) for x in range(SIDE)] for row in rows]))


def _seaquest(game: Any, state: list[int]) -> None:
    q, right = seaquest, lists.GOING_RIGHT
    game.sub_x, game.sub_y = state[lists.HERE] & lists.COLUMN, state[lists.HERE] // lists.ROW
    game.sub_or, game.oxygen, game.diver_count = bool(state[lists.FACING]), state[q.OXYGEN], state[lists.ABOARD]
    game.e_spawn_speed, game.e_spawn_timer = state[q.SPAWN_SPEED], state[q.SPAWN_TIMER]
    game.d_spawn_timer, game.move_speed, game.ramp_index = state[q.DIVER_TIMER], state[lists.MOVE_SPEED], state[q.RAMPS]
    game.shot_timer, game.surface = state[q.SHOT_TIMER], bool(state[q.SURFACED])

    def items(first: int, timers: int) -> list[list[Any]]:
        result = []
        for item in state[first + 1 : first + 1 + state[first]]:
            position = [item & lists.COLUMN, (item & lists.PLACE) // lists.ROW, bool(item & right)]
            result.append([*position, *(item // lists.MOVE & lists.TIMER, item // lists.SHOT)[:timers]])
        return result

    game.f_bullets, game.e_bullets = items(lists.BULLETS, 0), items(lists.TORPEDOES, 0)
    game.divers, game.e_fish, game.e_subs = items(lists.DIVERS, 1), items(lists.FISH, 1), items(lists.SUBS, 2)


PUT: dict[str, Callable[[Any, list[int]], None]] = {
    "Asterix": _asterix,
    "Breakout": _breakout,
    "Freeway": _freeway,
    "Seaquest": _seaquest,
    "SpaceInvaders": _space_invaders,
}


if __name__ == "__main__":
    entry.run(main)
