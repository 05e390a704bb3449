"""MuJoCo's bodies by general settings beside Stable-Baselines3 by the same numbers: learning curves of one machine.

    python -m lab.evidence.mujoco                            every row, seeds 1 to 3, theirs and ours in turns
    python -m lab.evidence.mujoco Hopper --budget 20_000     the rows with that in their name, for so many steps
    python -m lab.evidence.mujoco --seeds 0                  the table and the curves again, nothing is trained

One thread each. Both are evaluated by 10 greedy episodes 20 times. What is there is kept: the same command goes on.
"""

import importlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import gymnasium
import numpy as np
import torch

from lab.bench import peers
from lab.bench.pairs import default_runs
from lab.evidence import public
from lab.evidence.file import file_stem, named, this_machine
from lab.evidence.report import table
from lab.evidence.variants import RESULTS
from lab.evidence.ways import band_of
from stride.commands import train
from stride.commands.train_arguments import parse_arguments
from stride.commands.usage import parser_of
from stride.config.general import load_general
from stride.config.schema import Config, PPOConfig
from stride.envs_gym.task import task_of
from stride.runstore.history import VAL
from stride.runstore.metrics_table import points, read_csv
from stride.runstore.run_dir import list_runs
from stride.utils import entry
from stride.utils.curve import bands_svg
from stride.utils.durable_file import read_json, write_json
from stride.utils.provenance import git_hash
from stride.utils.statistics import FEWEST, interval
from stride.utils.typography import score
from stride.utils.user_error import UserError

FOLDER = RESULTS / "mujoco"
FIGURES = FOLDER / "rows.json"
WHO = ("ours", "sb3")
ROWS = {  # and how many env steps an evening of two cores allows
    "InvertedPendulum-v5:ppo": 100_000, "InvertedPendulum-v5:sac": 20_000, "Hopper-v5:ppo": 500_000,
    "Hopper-v5:sac": 200_000, "HalfCheetah-v5:ppo": 500_000, "HalfCheetah-v5:sac": 200_000,
}  # fmt: skip
EPISODES, LOOKS = 10, 20  # of an evaluation; how many evaluations
HEAD = ("environment and algorithm", "who", "seeds", "env steps", "last evaluation", "minutes")
Points = list[tuple[int, float]]


class Curve(NamedTuple):
    words: str
    who: str
    seed: int
    budget: int
    points: Points
    seconds: float
    commit: str = ""  # the code that trained it
    machine: str = ""


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="a part of the names")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="how many seeds, from 1 on (default 3)")
    parser.add_argument("--budget", type=int, metavar="N", help="env steps instead of those of the rows")
    given = parser.parse_args(argv)
    curves = kept()
    for words in named(given.pattern, [*ROWS]):
        measure(words, given.budget or ROWS[words], range(1, given.seeds + 1), curves)
    print("\n" + told(curves))
    draw(curves)
    return 0


def kept() -> list[Curve]:
    rows = read_json(FIGURES)["rows"] if FIGURES.is_file() else []
    return [Curve(**{**row, "points": [(int(x), float(y)) for x, y in row["points"]]}) for row in rows]


def measure(words: str, budget: int, seeds: Sequence[int], curves: list[Curve]) -> None:
    """Train what is missing, who is first changes with the seed, and keep each as soon as it is there."""
    for seed in seeds:
        for who in WHO[:: 1 if seed % 2 else -1]:
            if any(curve[:4] == (words, who, seed, budget) for curve in curves):
                continue
            print(f"  {words} seed {seed}, {who}: {budget:,} env steps", flush=True)
            curves.append(trained(words, who, seed, budget))
            rows = [curve._asdict() for curve in sorted(curves)]
            FOLDER.mkdir(parents=True, exist_ok=True)
            write_json(FIGURES, {"rows": rows})


def trained(words: str, who: str, seed: int, budget: int) -> Curve:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(curve_of, words, who, seed, budget).result()


def curve_of(words: str, who: str, seed: int, budget: int) -> Curve:
    overrides = [f"max_timesteps={budget}", f"seed={seed}", "threads=1"]
    config = load_general(words, overrides, task_of)
    began = time.perf_counter()
    reached = ours(words, overrides, config) if who == "ours" else theirs(config)
    return Curve(words, who, seed, budget, reached, time.perf_counter() - began, git_hash(), this_machine())


def ours(words: str, overrides: list[str], config: Config) -> Points:
    looks = [*often(config), "eval_warmup_epochs=0", f"eval_episodes={EPISODES}", "test_episodes=0"]
    with default_runs():
        code = train.train(parse_arguments([words, *overrides, *looks, "early_stop_on_eval_threshold=false", "-q"]))
        if code:
            raise UserError(f"the training of {words} ended with {code}")
        return [(int(x), y) for x, y in points(read_csv(list_runs()[0].metrics_csv), VAL)]


def often(config: Config) -> list[str]:
    """LOOKS evaluations: an epoch of PPO is a rollout, of SAC as many steps as lie between two of them."""
    between = config.max_timesteps // LOOKS
    if isinstance(config, PPOConfig):
        return [f"eval_freq_epochs={max(1, between // config.rollout_size)}"]
    return [f"epoch_iterations={max(1, between)}", "eval_freq_epochs=1"]


def theirs(config: Config) -> Points:
    """By the same numbers; evaluated between two stretches of one training."""
    torch.set_num_threads(1)
    env = importlib.import_module(f"{peers.SB3}.common.vec_env")
    evaluate = importlib.import_module(f"{peers.SB3}.common.evaluation").evaluate_policy
    callbacks = importlib.import_module(f"{peers.SB3}.common.callbacks")
    monitor = importlib.import_module(f"{peers.SB3}.common.monitor").Monitor  # counts raw returns
    worlds = env.DummyVecEnv([lambda: monitor(gymnasium.make(config.env_id))] * config.n_envs)
    judge = env.DummyVecEnv([lambda: monitor(gymnasium.make(config.env_id))])
    if isinstance(config, PPOConfig):
        assert isinstance(config.gamma, float)
        worlds = env.VecNormalize(worlds, gamma=config.gamma, norm_reward=config.normalize_reward)
        judge = env.VecNormalize(judge, training=False, norm_reward=False)
        judge.obs_rms = worlds.obs_rms
    judge.seed(config.seed + 1000)
    peer = peers.algorithm(config, peers.SB3, worlds)
    reached: Points = []

    class Look(callbacks.BaseCallback):  # type: ignore[name-defined]  # theirs is imported by name
        def _on_step(self) -> bool:
            due = (len(reached) + 1) * config.max_timesteps // LOOKS
            if self.num_timesteps >= due and len(reached) < LOOKS:
                mean, _ = evaluate(peer, judge, n_eval_episodes=EPISODES, warn=False)
                reached.append((self.num_timesteps, float(mean)))
            return True

    peer.learn(config.max_timesteps, callback=Look())
    return reached


def told(curves: Sequence[Curve]) -> str:
    lines = []
    for words, budget, both in by_row(curves):
        for who, mine in both.items():
            ends = [curve.points[-1][1] for curve in mine if curve.points]
            minutes = f"{np.mean([curve.seconds for curve in mine]) / 60:.1f}" if mine else "-"
            lines.append((words, who, str(len(mine)), f"{budget:,}", spread(ends), minutes))
    return table([HEAD, *lines])


def by_row(curves: Sequence[Curve]) -> Iterator[tuple[str, int, dict[str, list[Curve]]]]:
    for words, budget in dict.fromkeys((curve.words, curve.budget) for curve in sorted(curves)):
        mine = [curve for curve in curves if (curve.words, curve.budget) == (words, budget)]
        yield words, budget, {who: [curve for curve in mine if curve.who == who] for who in WHO}


def spread(values: Sequence[float]) -> str:
    """The mean, of FEWEST or more with its 95 % interval."""
    if len(values) < FEWEST:
        return score(float(np.mean(values))) if values else "-"
    low, high = interval(values, np.mean)
    return f"{score(float(np.mean(values)))} [{score(low)}, {score(high)}]"


def draw(curves: Sequence[Curve]) -> None:
    for words, _, both in by_row(curves):
        lines = {who: [curve.points for curve in mine] for who, mine in both.items()}
        if all(mine and all(mine) for mine in lines.values()):
            bands = {who: band_of(mine) for who, mine in lines.items()}
            seeds = min(map(len, lines.values()))
            title = f"{words}, " + (f"{seeds} seeds each, mean, 95 % interval" if seeds > 1 else "one seed each")
            last = max(band.mean[-1].x for band in bands.values())
            env, _, learner = words.partition(":")
            svg = bands_svg(title, bands, None, public.overlay(env, learner, last))
            (FOLDER / f"{file_stem(words)}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    entry.run(main)
