"""The campaign's table: which variants are trained for docs/results.md, for how many steps, on which seeds.

The rules:
- A training spends its whole budget and never stops early. The budget is that of the public reference if there is one.
- The score of a training is the mean return of 100 fresh episodes with its final weights.
- The price of a run (seconds of one core) decides how many seeds a row has.
- If a setting of a variant changes after the result of a seed was recorded, that seed is spent for the variant: its
  result may have influenced the change. The row then goes on with the next round of seeds (1001, 2001, ...).
- Tuning uses seeds 100 to 999.

This module does not import torch.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, NamedTuple

from lab.evidence.file import KEYS_WITHOUT_EFFECT, configured, named
from stride.config.loader import to_plain
from stride.config.schema import Config
from stride.utils.user_error import UserError, nearest

CLASSIC, TOY, BOX2D, PIXELS = "Classic control", "Toy text", "Box2D", "Pixels and games"
MINIGRID, MUJOCO, MODELS = "MiniGrid", "MuJoCo", "World models"
MEMORY = "bsuite and POPGym"
GENERAL = "Environments without own settings"
FAMILIES = (CLASSIC, TOY, BOX2D, PIXELS, MINIGRID, MEMORY, MUJOCO, MODELS, GENERAL)
NO_EARLY_STOP = ("early_stop_on_eval_threshold=false", "early_stop_on_train_threshold=false")
WHOLE = (*NO_EARLY_STOP, "test_episodes=100", "threads=1")
# a change of these keys spends no seed: they change no weight of a training. The budget does change weights, but it is
# that of the reference, so no result has influenced it.
KEYS_THAT_SPEND_NO_SEED = (
    *KEYS_WITHOUT_EFFECT,
    "max_timesteps",
    "eval_freq_epochs",
    "eval_episodes",
    "test_episodes",
    *(key.partition("=")[0] for key in NO_EARLY_STOP),
)
SEEDS_BY_PRICE = ((180, 20), (1200, 10))  # (a run takes less than so many seconds of a core, number of seeds)
SEEDS_OF_LONG_RUNS = 5  # for runs that take at least 1200 s
ROUND_DISTANCE, MAX_SEEDS = 1000, 20  # between the first seeds of two rounds; seeds of the largest round
ZOO = "rl-zoo"  # github.com/DLR-RM/rl-baselines3-zoo, benchmark.md: one run each
OPTIMUM = "optimum"  # source: the best value that is possible, from the environment's transition table
FIRST_FIVE = range(1, 6)  # the seeds of an older table of results
HUNDRED = "eval_episodes=100"
TWICE = ("frame_skip=2", "eval_freq_epochs=1", "eval_episodes=10")  # each action twice, as the suite's results do


class Row(NamedTuple):
    """One variant that the campaign measures."""

    variant: str  # ENV:VARIANT
    family: str  # one of FAMILIES: the section of docs/results.md
    piece: str  # the part of the campaign that measures it: "P1", "P2", .., "later"
    seconds: int  # of one core for a run, estimated from short trainings; recorded runs replace the estimate
    reference: float | None = None  # public score
    source: str = ""  # of the reference
    random: float | None = None  # mean return of 100 episodes of random actions
    budget: int = 0  # env steps of the reference; 0: the shipped budget is the same, or there is no reference
    changes: tuple[str, ...] = ()  # "key=value": of evaluations, and the frames that an action is held for
    spent: range = range(0)  # seeds with results from before the campaign, after which settings changed

    @property
    def seeds(self) -> int:
        """How many seeds the row has, by its estimated price."""
        return next((seeds for limit, seeds in SEEDS_BY_PRICE if self.seconds < limit), SEEDS_OF_LONG_RUNS)

    @property
    def overrides(self) -> list[str]:
        """The changes of the shipped config as "key=value", each key once; the row's own ones come last and win."""
        budget = [f"max_timesteps={self.budget}"] if self.budget else []
        by_key = {word.partition("=")[0]: word for word in (*WHOLE, *budget, *self.changes)}
        return [*by_key.values()]

    def config(self) -> Config:
        """Load the config that is trained; UserError if its environment is not installed."""
        return _config(self)


ROWS = (
    Row("CartPole-v1:ppo", CLASSIC, "P1", 12, 500.0, f"{ZOO}, 100,000 steps", 23.68),
    Row("CartPole-v1:pqn", CLASSIC, "P1", 45, 500.0, "highest return", 23.68),
    Row("CartPole-v1:reinforce", CLASSIC, "P1", 12, 500.0, "highest return", 23.68),
    Row("CartPole-v1:dqn", CLASSIC, "P1", 30, 500.0, f"{ZOO}, 50,000 steps", 23.68, spent=FIRST_FIVE),
    Row("Acrobot-v1:ppo", CLASSIC, "P1", 12, -73.5, f"{ZOO}, 1,000,000 steps", -497.08),
    Row("Acrobot-v1:dqn", CLASSIC, "P1", 110, -76.6, f"{ZOO}, 100,000 steps", -497.08),
    Row("MountainCar-v0:ppo", CLASSIC, "P1", 20, -110.4, f"{ZOO}, 1,000,000 steps", -200.0),
    Row("MountainCar-v0:dqn", CLASSIC, "P1", 75, -100.8, f"{ZOO}, 120,000 steps", -200.0, spent=FIRST_FIVE),
    Row("MountainCarContinuous-v0:ppo", CLASSIC, "P1", 20, 88.3, f"{ZOO}, 20,000 steps", -33.25),
    Row("MountainCarContinuous-v0:sac", CLASSIC, "P2", 55, 94.7, f"{ZOO}, 50,000 steps", -33.25),
    Row("Pendulum-v1:ppo", CLASSIC, "P1", 12, -172.2, f"{ZOO}, 100,000 steps", -1207.56, spent=FIRST_FIVE),
    Row("Pendulum-v1:sac", CLASSIC, "P2", 150, -157.0, f"{ZOO}, 20,000 steps", -1207.56),
    Row("Pendulum-v1:td3", CLASSIC, "later", 150, -151.9, f"{ZOO}, 20,000 steps", -1207.56),
    Row("Pendulum-v1:tqc", CLASSIC, "later", 400, None, "", -1207.56),
    Row("CartPole-v1:ppo_lstm", CLASSIC, "P2", 320, 500.0, "highest return", 23.68),
    Row("Bandit-v0:ppo", TOY, "P1", 12, 1.606, "the mean of the best arm", changes=("test_episodes=2000",)),
    Row("Blackjack-v1:ppo", TOY, "P1", 45, -0.0431, OPTIMUM, -0.46),
    Row("CliffWalking-v1:ppo", TOY, "P1", 30, -13.0, OPTIMUM, -72838.92),
    Row("CliffWalking-v1:q_learning", TOY, "P1", 15, -13.0, OPTIMUM, -72838.92),
    Row("FrozenLake-v1:ppo", TOY, "P1", 12, 0.7402, OPTIMUM, 0.01),
    Row("FrozenLake-v1:q_learning", TOY, "P1", 20, 0.7402, OPTIMUM, 0.01),
    Row("FrozenLake8x8-v1:ppo", TOY, "P1", 18, 0.886, "value iteration, within 0.01", 0.0, spent=FIRST_FIVE),
    Row("FrozenLake8x8-v1:q_learning", TOY, "P1", 40, 0.886, "value iteration, within 0.01", 0.0),
    Row("Taxi-v4:ppo", TOY, "P1", 30, 7.93, OPTIMUM, -777.48),
    Row("Taxi-v4:q_learning", TOY, "P1", 45, 7.93, OPTIMUM, -777.48),
    Row("LunarLander-v3:ppo", BOX2D, "P1", 200, 242.1, f"{ZOO}, v2, 1,000,000 steps", -191.96),
    Row("LunarLander-v3:dqn", BOX2D, "P1", 350, 154.4, f"{ZOO}, v2, 100,000 steps", -191.96),
    Row("LunarLanderContinuous-v3:ppo", BOX2D, "P1", 225, 270.9, f"{ZOO}, v2, 1,000,000 steps", -212.68),
    Row("LunarLanderContinuous-v3:sac", BOX2D, "P10", 6_300, 260.4, f"{ZOO}, v2, 500,000 steps", -212.68),
    Row("BipedalWalker-v3:ppo", BOX2D, "P11", 1_800, 213.3, f"{ZOO}, 5,000,000 steps", -102.82),
    Row("BipedalWalker-v3:sac", BOX2D, "P12", 6_300, 297.7, f"{ZOO}, 500,000 steps", -102.82),
    Row("CarRacing-v3:ppo", BOX2D, "later", 52_000),
    Row("CartPole-v1:ppo_pixels", PIXELS, "P2", 160, 500.0, "highest return", 23.68),
    Row("ALE/Pong-v5:features", PIXELS, "later", 2_000),
    Row("ALE/Breakout-v5:features", PIXELS, "later", 2_000),
    Row("VizDoom/basic:ppo", PIXELS, "later", 1_000),
    Row("VizDoom/defend_the_center:ppo", PIXELS, "later", 8_000),
    Row("Retro/Airstriker-Genesis-v0:ppo", PIXELS, "later", 8_000),
    Row("MinAtar/Asterix-v1:ppo", PIXELS, "later", 600),
    Row("MinAtar/Asterix-v1:pqn", PIXELS, "later", 600),
    Row("MinAtar/Breakout-v1:ppo", PIXELS, "later", 600),
    Row("MinAtar/Breakout-v1:pqn", PIXELS, "later", 600),
    Row("MinAtar/Freeway-v1:ppo", PIXELS, "later", 600),
    Row("MinAtar/Freeway-v1:pqn", PIXELS, "later", 600),
    Row("MinAtar/Seaquest-v1:ppo", PIXELS, "later", 600),
    Row("MinAtar/Seaquest-v1:pqn", PIXELS, "later", 600),
    Row("MinAtar/SpaceInvaders-v1:ppo", PIXELS, "later", 600),
    Row("MinAtar/SpaceInvaders-v1:pqn", PIXELS, "later", 600),
    Row("MiniGrid-DoorKey-5x5-v0:ppo", MINIGRID, "P3", 150, None, "", 0.041),
    Row("MiniGrid-DoorKey-5x5-v0:vector", MINIGRID, "P3", 150, None, "", 0.041),
    Row("MiniGrid-DoorKey-5x5-v0:lstm", MINIGRID, "P3", 600, None, "", 0.041),
    Row("MiniGrid-DoorKey-5x5-v0:cnn", MINIGRID, "P3", 600, None, "", 0.041),
    Row("MiniGrid-Empty-Random-5x5-v0:ppo", MINIGRID, "later", 60),
    Row("MiniGrid-Unlock-v0:ppo", MINIGRID, "later", 120),
    Row("MiniGrid-FourRooms-v0:ppo", MINIGRID, "later", 2_000),
    Row("MiniGrid-KeyCorridorS3R1-v0:ppo", MINIGRID, "later", 250),
    Row("bsuite/Catch-v0:ppo", MEMORY, "later", 30),
    Row("bsuite/DeepSea-v0:ppo", MEMORY, "later", 30),
    Row("bsuite/DiscountingChain-v0:ppo", MEMORY, "later", 30),
    Row("bsuite/MemoryChain-v0:ppo", MEMORY, "later", 30),
    Row("bsuite/MemoryChain-v0:ppo_lstm", MEMORY, "later", 300),
    Row("popgym-AutoencodeEasy-v0:ppo", MEMORY, "later", 60),
    Row("popgym-AutoencodeEasy-v0:ppo_lstm", MEMORY, "later", 600),
    Row("popgym-CountRecallEasy-v0:ppo", MEMORY, "later", 60),
    Row("popgym-CountRecallEasy-v0:ppo_lstm", MEMORY, "later", 600),
    Row("popgym-PositionOnlyCartPoleEasy-v0:ppo", MEMORY, "later", 60),
    Row("popgym-PositionOnlyCartPoleEasy-v0:ppo_lstm", MEMORY, "later", 600),
    Row("popgym-PositionOnlyPendulumEasy-v0:ppo", MEMORY, "later", 60),
    Row("popgym-PositionOnlyPendulumEasy-v0:ppo_lstm", MEMORY, "later", 600),
    Row("popgym-RepeatFirstEasy-v0:ppo", MEMORY, "later", 60),
    Row("popgym-RepeatFirstEasy-v0:ppo_lstm", MEMORY, "later", 600),
    Row("popgym-RepeatPreviousEasy-v0:ppo", MEMORY, "later", 60),
    Row("popgym-RepeatPreviousEasy-v0:ppo_lstm", MEMORY, "later", 600),
    Row("HalfCheetah-v5:ppo", MUJOCO, "P3", 450, 5819.1, f"{ZOO}, v3, 1,000,000 steps", -282.49, 1_000_000),
    Row("Hopper-v5:ppo", MUJOCO, "P3", 400, 2410.4, f"{ZOO}, v3, 1,000,000 steps", 16.67, 1_000_000),
    Row("Walker2d-v5:ppo", MUJOCO, "P3", 450, 3478.8, f"{ZOO}, v3, 1,000,000 steps", None, 1_000_000),
    Row("Ant-v5:ppo", MUJOCO, "P3", 1_000, 1327.2, f"{ZOO}, v3, 1,000,000 steps", None, 1_000_000),
    Row("HalfCheetah-v5:sac", MUJOCO, "P14", 12_000, 9535.5, f"{ZOO}, v3, 1,000,000 steps", -282.49),
    Row("Hopper-v5:sac", MUJOCO, "P14", 12_000, 2325.5, f"{ZOO}, v3, 1,000,000 steps", 16.67),
    Row("HalfCheetah-v5:td3", MUJOCO, "later", 12_000, 9655.7, f"{ZOO}, v3, 1,000,000 steps", -282.49),
    Row("Hopper-v5:td3", MUJOCO, "later", 12_000, 3606.4, f"{ZOO}, v3, 1,000,000 steps", 16.67),
    Row("HalfCheetah-v5:tqc", MUJOCO, "later", 20_000, 12089.9, f"{ZOO}, v3, 1,000,000 steps", -282.49),
    Row("Hopper-v5:tqc", MUJOCO, "later", 20_000, 3754.2, f"{ZOO}, v3, 1,000,000 steps", 16.67),
    Row(
        "CartPole-v1:dreamer", MODELS, "P2", 400, 500.0, "highest return", 23.68,
        changes=("eval_freq_epochs=2", HUNDRED), spent=FIRST_FIVE,
    ),
    Row("Pendulum-v1:dreamer", MODELS, "P2", 300, None, "", -1207.56, changes=("eval_freq_epochs=3", HUNDRED)),
    Row("PixelCatch-v0:dreamer", MODELS, "later", 900, None, "", None, 20_000, ("eval_freq_epochs=2", HUNDRED)),
    Row("CartPole-v1:dreamer_pixels", MODELS, "later", 4_000, 500.0, "highest return", 23.68),
    Row(
        "dm_control/cartpole-swingup:dreamer", MODELS, "later", 2_500, budget=50_000,
        changes=(*TWICE, "epoch_iterations=625"),
    ),
    Row("dm_control/cartpole-swingup:sac", MODELS, "later", 900, None, "", None, 50_000, TWICE),
    Row("minigrid:MiniGrid-Empty-5x5-v0:ppo", GENERAL, "later", 90, random=0.179),
    Row("minigrid:MiniGrid-LavaGapS5-v0:ppo", GENERAL, "later", 90, random=0.054),
    Row("minigrid:MiniGrid-Unlock-v0:dqn", GENERAL, "later", 2_200, random=0.025),
    Row("highway_env:highway-fast-v0:ppo", GENERAL, "later", 480, random=7.81),
    Row("highway_env:parking-v0:sac", GENERAL, "later", 610, random=-42.6),
    Row("gymnasium_robotics:PointMaze_UMazeDense-v3:ppo", GENERAL, "later", 60, random=68.1),
    Row("InvertedPendulum-v5:ppo", GENERAL, "later", 15, random=4.9),
    Row("InvertedDoublePendulum-v5:sac", GENERAL, "later", 100, random=47.3),
    Row("Reacher-v5:sac", GENERAL, "later", 170, random=-42.7),
    Row("CartPole-v1:planet", MODELS, "later", 600, 500.0, "highest return", 23.68),
)  # fmt: skip

# how many trainings chose a variant's settings, and on which seeds; "unknown" where nobody counted
TUNING = dict.fromkeys(
    (
        "Acrobot-v1:dqn", "BipedalWalker-v3:ppo", "HalfCheetah-v5:sac", "Hopper-v5:sac",
        "LunarLander-v3:dqn", "LunarLander-v3:ppo", "LunarLanderContinuous-v3:ppo", "LunarLanderContinuous-v3:sac",
        "Pendulum-v1:sac", "HalfCheetah-v5:td3", "HalfCheetah-v5:tqc", "Hopper-v5:td3", "Hopper-v5:tqc",
        "Pendulum-v1:td3", "Pendulum-v1:tqc",
    ),
    "none: numbers of rl-zoo",
) | {
    "CartPole-v1:dqn": "173, seeds 100 to 129",
    "CartPole-v1:reinforce": "33, seeds 100 to 109",
    "FrozenLake8x8-v1:ppo": "25, seeds 100 to 109",
    "MiniGrid-Unlock-v0:ppo": "6, seeds 100 to 102",
    "MountainCar-v0:dqn": "10, seeds 100 to 104",
    "Pendulum-v1:ppo": "22, seeds 100 to 109",
}  # fmt: skip
UNKNOWN = "unknown"


def chosen(words: Collection[str]) -> list[Row]:
    """Return the rows that have one of these pieces, families, names or parts of names; all rows for no word."""
    rows = {row.variant: row for row in ROWS}
    selected: dict[str, Row] = {} if words else rows
    for word in words:
        matching = [row for row in ROWS if word in (row.piece, row.family)]
        if not matching:
            matching = [rows[name] for name in named(word, [*rows])]
        if not matching:
            raise UserError(f"no row or piece is called {word!r}{nearest(word, [*rows, 'P1', 'P2', 'P3'])}")
        selected |= {row.variant: row for row in matching}
    return [row for row in ROWS if row.variant in selected]


def row_of(variant: str) -> Row:
    """Return the row of ENV:VARIANT; UserError if the campaign has none."""
    for row in ROWS:
        if row.variant == variant:
            return row
    raise UserError(f"no row of the campaign is called {variant!r}{nearest(variant, [row.variant for row in ROWS])}")


@cache
def _config(row: Row) -> Config:
    return configured(row.variant, row.overrides)


@cache
def settings(row: Row) -> str:
    """Return the hash of the row's settings, see `settings_hash`: if it changes, seeds with results are spent."""
    return settings_hash(to_plain(row.config()))


def settings_hash(plain: Mapping[str, Any]) -> str:
    """Return 12 hex digits of the SHA-256 of the settings in a whole config."""
    return hashlib.sha256(json.dumps(settings_only(plain), sort_keys=True).encode()).hexdigest()[:12]


def settings_only(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings among the keys of a config: those whose change spends seeds."""
    return {key: value for key, value in plain.items() if key not in KEYS_THAT_SPEND_NO_SEED}


def are_present(row: Row, then: Mapping[str, Any]) -> bool:
    """Whether a row still has the settings `then`; a key that was added since must be at its default."""
    config = row.config()
    return all(
        then.get(key, getattr(type(config), key, None)) == value
        for key, value in settings_only(to_plain(config)).items()
    )


def seeds_of(row: Row, tried: Mapping[int, Collection[str]], present: str) -> range:
    """Return the seeds of the first round without a spent seed.

    `tried`: seed -> hashes of the settings that it has a result of; `present`: the hash of the row's settings now.
    """
    spent = {seed for seed, hashes in tried.items() if any(text != present for text in hashes)} | {*row.spent}
    first = 1
    while spent & {*range(first, first + MAX_SEEDS)}:
        first += ROUND_DISTANCE
    return range(first, first + row.seeds)
