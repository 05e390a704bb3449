"""What not losing a run costs: the share of it that goes into checkpoints, and into looking for what is no number.

    python -m lab.bench.reliability checkpoints CartPole-v1:ppo --seconds 60    a whole training, saving timed
    python -m lab.bench.reliability guard --seconds 10                          iterations with and without it

Everything is as shipped but for the end: trainings are stopped by Ctrl-C after so many seconds. What is compared is
taken in turns in one process; medians. A figure of a shared machine is worth its ratio only.
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

ENDLESS = ("max_timesteps=1e9", "early_stop_on_eval_threshold=false", "-q")
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
    asked = parser.parse_args(argv)
    torch.set_num_threads(1)
    print(machine(1), flush=True)
    lines = []
    keys = tuple(word for word in asked.variants if "=" in word)
    with temporary_runs():
        if asked.what == "guard":
            for title, words in GUARDED.items():
                lines.append(guarded(title, (*words, *keys), asked.seconds))
                print(lines[-1], flush=True)
        for variant in (word for word in asked.variants if "=" not in word):
            words = (variant, *keys)
            lines.append(share(words, asked.seconds))
            print(lines[-1], flush=True)
    if asked.record:
        record(asked.what, TITLES[asked.what], lines, git_hash())
    return 0


def share(words: tuple[str, ...], seconds: float) -> str:
    """How much of a training that is stopped after so long goes into its checkpoints, whatever they do."""
    places: dict[str, list[Place]] = {
        "ticks": [(Agent, "training_step")],
        "all": [(Checkpoint, "on_train_batch_end"), (Checkpoint, "on_train_end")],
        "saves": [(Checkpoint, "save")],
    }
    with timed(places) as spans:
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
        code = train.train(parse_arguments([*words, *ENDLESS]))
    assert code == 128 + signal.SIGINT
    run = RunDir.find("@last")
    lasted, steps = spans["ticks"][-1].ended - spans["ticks"][0].began, run.facts()["outcome"]["env_steps"]
    size = max(path.stat().st_size for path in run.checkpoints.glob("*=*.ckpt"))
    spent, saves = sum(span.seconds for span in spans["all"]), [span.seconds for span in spans["saves"]]
    each = (
        f"{size / 1024:.0f} KiB, {1e3 * statistics.median(saves):.1f} ms each: {100 * spent / lasted:.2f} % of the time"
    )
    return f"{' '.join(words)}: {lasted:.1f} s, {steps:,} env steps, {len(saves)} checkpoints of {each}"


def guarded(title: str, words: tuple[str, ...], seconds: float) -> str:
    """Iterations with and without the guard in turn; the median of what a pair differs by, of the median without."""
    env_id, variant = words[0].split(":")
    config = load_config(env_id, variant, ["max_timesteps=1e9", *words[1:]])
    agent = build_agent(config, make_envs(config, config.n_envs))
    optimizer = agent.configure_optimizers()
    setattr(agent, "optimizers", lambda use_pl_optimizer=False: optimizer)  # noqa: B010

    def iteration(guard: bool) -> float:
        agent.guarded = guard
        began = time.perf_counter()
        agent.training_step(iter([0]))
        return time.perf_counter() - began

    end = time.monotonic() + seconds
    plain, more, turn = list[float](), list[float](), 0
    while time.monotonic() < end:
        order = (True, False) if turn % 2 else (False, True)
        found = {guard: iteration(guard) for guard in order}
        turn += 1
        if turn > 5:  # before, kernels are loaded and moments made
            plain.append(found[False])
            more.append(found[True] - found[False])
    agent.collector.envs.close()
    usual, extra = statistics.median(plain), statistics.median(more)
    part = f"{100 * extra / usual:.2f} % ({len(plain):,} pairs)"
    return f"{title}: {1e6 * usual:,.0f} us an iteration, the guard {1e6 * extra:+,.1f} us: {part}"


if __name__ == "__main__":
    entry.run(main)
