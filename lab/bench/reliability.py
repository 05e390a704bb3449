"""What does reliability cost? Times checkpoints, and the guard that looks for values that are not finite.

    python -m lab.bench.reliability checkpoints CartPole-v1:ppo --seconds 60    a whole training, saving timed
    python -m lab.bench.reliability guard --seconds 10                          iterations with and without it

Everything is as shipped, but trainings are stopped by Ctrl-C after some seconds. Iterations with and without the guard
alternate in one process; figures are medians. On a shared machine only ratios mean something.
"""

import os
import signal
import statistics
import threading
import time

import torch

from lab.bench.measure import Place, machine, timed
from lab.faults.record import record
from stride.agents.base import Agent
from stride.agents.engines.choice import build_agent
from stride.commands import train
from stride.commands.train_arguments import parse_arguments
from stride.commands.usage import parser_of
from stride.config.loader import load_config
from stride.envs_gym.make import make_envs
from stride.runstore.run_dir import RunDir
from stride.runstore.run_names import temporary_runs
from stride.trainer_callbacks.checkpoint import Checkpoint
from stride.utils import entry
from stride.utils.provenance import git_hash

UNTIL_STOPPED = ("max_timesteps=1e9", "early_stop_on_eval_threshold=false", "-q")
TITLES = {"checkpoints": "What checkpoints cost", "guard": "What the numbers guard costs"}
GUARDED = {
    "PPO, fused, 8 x 128": ("CartPole-v1:ppo", "n_steps=128", "n_epochs=4", "batch_size=0.25"),
    "PPO, fused, 256 x 128": ("CartPole-v1:ppo", "n_envs=256", "n_steps=128", "n_epochs=4", "batch_size=0.25"),
    "PPO, fused, as shipped": ("CartPole-v1:ppo",),
    "REINFORCE, fused, as shipped": ("CartPole-v1:reinforce",),
    "PPO, eager, as shipped": ("CartPole-v1:ppo", "engine=eager"),
    "DQN, as shipped": ("CartPole-v1:dqn", "learning_starts=0"),
    "SAC, as shipped": ("Pendulum-v1:sac", "learning_starts=0"),
    "Q-learning, as shipped": ("FrozenLake-v1:q_learning",),
}


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=TITLES)
    parser.add_argument("variants", nargs="*", metavar="ENV:VARIANT or key=value", help="to train, and with what")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="of each training, or guarded agent")
    parser.add_argument("--record", action="store_true", help="write the figures into docs/reliability.md")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    print(machine(1), flush=True)
    lines = []
    keys = tuple(word for word in args.variants if "=" in word)
    with temporary_runs():
        if args.what == "guard":
            for title, arguments in GUARDED.items():
                lines.append(guarded(title, (*arguments, *keys), args.seconds))
                print(lines[-1], flush=True)
        for variant in (word for word in args.variants if "=" not in word):
            arguments = (variant, *keys)
            lines.append(share(arguments, args.seconds))
            print(lines[-1], flush=True)
    if args.record:
        record(args.what, TITLES[args.what], lines, git_hash())
    return 0


def share(arguments: tuple[str, ...], seconds: float) -> str:
    """Train for so many seconds; return a line with the share of the time that all calls of Checkpoint take."""
    places: dict[str, list[Place]] = {
        "ticks": [(Agent, "training_step")],
        "all": [(Checkpoint, "on_train_batch_end"), (Checkpoint, "on_train_end")],
        "saves": [(Checkpoint, "save")],
    }
    with timed(places) as spans:
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
        code = train.train(parse_arguments([*arguments, *UNTIL_STOPPED]))
    assert code == 128 + signal.SIGINT
    run = RunDir.find("@last")
    lasted, steps = spans["ticks"][-1].ended - spans["ticks"][0].began, run.facts()["outcome"]["env_steps"]
    size = max(path.stat().st_size for path in run.checkpoints.glob("*=*.ckpt"))
    spent, saves = sum(span.seconds for span in spans["all"]), [span.seconds for span in spans["saves"]]
    each_save = (
        f"{size / 1024:.0f} KiB, {1e3 * statistics.median(saves):.1f} ms each: {100 * spent / lasted:.2f} % of the time"
    )
    return f"{' '.join(arguments)}: {lasted:.1f} s, {steps:,} env steps, {len(saves)} checkpoints of {each_save}"


def guarded(title: str, arguments: tuple[str, ...], seconds: float) -> str:
    """Time iterations with and without the guard in turn; return a line with the median difference of a pair."""
    env_id, variant = arguments[0].split(":")
    config = load_config(env_id, variant, ["max_timesteps=1e9", *arguments[1:]])
    agent = build_agent(config, make_envs(config, config.n_envs))
    optimizer = agent.configure_optimizers()
    setattr(agent, "optimizers", lambda use_pl_optimizer=False: optimizer)  # noqa: B010

    def iteration(guard: bool) -> float:
        agent.guarded = guard
        began = time.perf_counter()
        agent.training_step(iter([0]))
        return time.perf_counter() - began

    end = time.monotonic() + seconds
    without, differences, turn = list[float](), list[float](), 0
    while time.monotonic() < end:
        order = (True, False) if turn % 2 else (False, True)
        seconds_with = {guard: iteration(guard) for guard in order}
        turn += 1
        if turn > 5:  # the first turns load kernels and make the optimizer's moments
            without.append(seconds_with[False])
            differences.append(seconds_with[True] - seconds_with[False])
    agent.collector.envs.close()
    usual, extra = statistics.median(without), statistics.median(differences)
    part = f"{100 * extra / usual:.2f} % ({len(without):,} pairs)"
    return f"{title}: {1e6 * usual:,.0f} us an iteration, the guard {1e6 * extra:+,.1f} us: {part}"


if __name__ == "__main__":
    entry.run(main)
