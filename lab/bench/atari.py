"""PPO of an Atari game in one run, in turns: ours, in both precisions, Stable-Baselines3 and CleanRL's way.

    python -m lab.bench.atari                       ALE/Pong-v5 or, without ale-py, pictures that cost nothing
    python -m lab.bench.atari --env pictures        the network alone
    python -m lab.bench.atari --threads 2 --iterations 4 --json FILE
    python -m lab.bench.atari --no-bf16             processors that multiply no bfloat16 take minutes for it

Whole trainings of the same work: 8 worlds x 128 steps, 4 epochs of 4 minibatches, the nature network of 512 features
for actor and critic, the same threads of torch, each in a process of its own, as a user has it. Ours has every callback
and the closing checkpoint; peers are their bare loops with their own wrappers. CleanRL's own file cannot stand beside
them: its last release, 1.2.0, wants a Python before 3.11 and Gym 0.23; so its way is written anew. An env step is four
frames of the game. Rates are of the wall clock and of the CPU: where other programs run, the latter is nearer to the
truth, and ratios of turns nearer still.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch

from lab.bench import peers, pictures
from lab.bench.limit import multiply_add_limit
from lab.bench.measure import Figures, lasting, machine, median_of, ratio, timed, trained
from lab.bench.peers import SB3, Ready
from stride.agents.engines.choice import build_agent
from stride.agents.networks.actor_critic import ActorCritic
from stride.commands.usage import parser_of
from stride.config.general import load_general
from stride.config.schema import PPOConfig
from stride.envs_gym.make import make_envs
from stride.envs_gym.task import task_of
from stride.utils import entry
from stride.utils.durable_file import write_json
from stride.utils.user_error import UserError

PICTURES, PONG = f"{pictures.__name__}:{pictures.ID}", "ALE/Pong-v5"
WORK = ("n_envs=8", "n_steps=128", "n_epochs=4", "batch_size=0.25", "policy=cnn", "hidden_dims=[]", "optimizer=adam")
PLAIN = ("policy_lr=3e-4", "clip_range=0.2", "ent_coef=0", "normalize_reward=false", "eval_freq_epochs=null")
SHOWN = ("early_stop_on_eval_threshold=false", "test_episodes=0", "engine=eager", "log_freq_epochs=1")
STACKED = ("grayscale_obs=false", "resize_obs=false", "frame_stack=1")  # pictures are stacks already
OURS, BF16 = "ours", "ours, bf16"
# multiply-adds of an image: three convolutions and the layer that joins, all of 4 x 84 x 84
FORWARD = 400 * 256 * 32 + 81 * 512 * 64 + 49 * 576 * 64 + 3136 * 512
FIRST = 400 * 256 * 32  # whose input has no gradient
Prepare = Callable[[int], Ready]


class Spent(NamedTuple):
    """Seconds of one training."""

    wall: float
    cpu: float


Run = Callable[[int], Spent]  # a training of so many iterations


def main(argv: list[str]) -> int:
    """Exit code."""
    asked = arguments(argv)
    torch.set_num_threads(asked.threads)
    config = work(asked.env or (PONG if find_spec("ale_py") else PICTURES), asked.threads)
    limit = multiply_add_limit(asked.threads)
    print(machine(asked.threads, SB3, "ale_py"), flush=True)
    print(f"limit: {limit / 1e9:,.0f} GFLOP/s; it multiplies and adds {flops(config) / 1e6:,.0f} million times a step")
    who = contenders(config, asked.bf16)
    with apart(who, asked.threads) as timed_by:
        table = in_turns(timed_by, config, asked.iterations, asked.repeats)
    parts = parts_of(config, asked.iterations)
    print(text(config, table, parts, limit), flush=True)
    if asked.json:
        write_json(asked.json, {"machine": machine(asked.threads, SB3), "table": table, "parts": parts})
    return 0


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--env", default="", metavar="ID", help="a game of ale-py, or pictures")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of torch, for all")
    parser.add_argument("--iterations", type=int, default=2, metavar="N", help="of a timed training")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="turns")
    parser.add_argument("--bf16", action=argparse.BooleanOptionalAction, default=True, help="ours in bfloat16, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    asked = parser.parse_args(argv)
    if asked.env == "pictures":
        asked.env = PICTURES
    if asked.env not in ("", PICTURES) and not asked.env.startswith("ALE/"):
        raise UserError(f"--env takes a game of ale-py, {PONG} say, or pictures, not {asked.env}")
    return asked


def work(env_id: str, threads: int) -> PPOConfig:
    """SB3's defaults in our words, but for the size of a rollout."""
    stacked = STACKED if env_id == PICTURES else ()
    config = load_general(f"{env_id}:ppo", [*WORK, *PLAIN, *SHOWN, *stacked, f"threads={threads}"], task_of)
    assert isinstance(config, PPOConfig)
    return config


def contenders(config: PPOConfig, bf16: bool) -> Mapping[str, Prepare]:
    """Name -> a training of so many iterations, ready to begin."""
    found: dict[str, Prepare] = {OURS: partial(ours, config)}
    if bf16:
        found[BF16] = partial(ours, replace(config, precision="bf16"))
    known = replace(config, env_id=config.env_id.rpartition(":")[2])  # `module:` is a word of ours
    if find_spec(SB3):
        found["sb3"] = partial(peers.sb3_of_a_game, known)
    else:
        print("not installed, so left out: stable-baselines3")
    found["cleanrl style"] = partial(peers.cleanrl_of_a_game, known)
    return found


def ours(config: PPOConfig, iterations: int) -> Ready:
    whole = lasting(config, iterations)
    torch.set_num_threads(whole.torch_threads)
    envs = make_envs(whole, whole.n_envs)
    agent = build_agent(whole, envs)
    return Ready(lambda: trained(whole, agent), envs.close)


@contextmanager
def apart(who: Mapping[str, Prepare], threads: int) -> Iterator[Mapping[str, Run]]:
    """Each in a process that does nothing else: what one asks of its memory, say, is none of the others'."""
    with ExitStack() as stack:
        begin = partial(ProcessPoolExecutor, 1, get_context("spawn"), torch.set_num_threads, (threads,))
        pools = {name: stack.enter_context(begin()) for name in who}
        yield {name: partial(waited_for, pools[name], prepare) for name, prepare in who.items()}


def waited_for(pool: ProcessPoolExecutor, prepare: Prepare, iterations: int) -> Spent:
    return pool.submit(spent, prepare, iterations).result()


def spent(prepare: Prepare, iterations: int) -> Spent:
    """Of a training from its first env step to its last update."""
    ready = prepare(iterations)
    wall, cpu = time.perf_counter(), time.process_time()
    ready.run()
    found = Spent(time.perf_counter() - wall, time.process_time() - cpu)
    ready.close()
    return found


def in_turns(who: Mapping[str, Run], config: PPOConfig, iterations: int, repeats: int) -> Figures:
    """Name -> env steps per second by both clocks, all turns; one iteration of each goes before, for what is made once.

    In bfloat16 a turn is one iteration.
    """
    found: dict[str, list[Spent]] = {name: [] for name in who}
    counts = {name: 1 if name == BF16 else iterations for name in who}
    for name, run in who.items():
        run(1)
        print(f"  {name} is ready", flush=True)
    for turn in range(1, repeats + 1):
        for name, run in who.items():
            found[name].append(run(counts[name]))
        print(f"  turn {turn} of {repeats}", flush=True)
    steps = {name: config.rollout_size * count for name, count in counts.items()}
    return {
        clock: {name: median_of([steps[name] / getattr(one, clock) for one in all_]) for name, all_ in found.items()}
        for clock in Spent._fields
    }


def parts_of(config: PPOConfig, iterations: int) -> dict[str, float]:
    """Wall milliseconds of one env step, where they go: a training of its own, watched."""
    whole = lasting(config, iterations)
    envs = make_envs(whole, whole.n_envs)
    agent = build_agent(whole, envs)
    with timed({"act": [(ActorCritic, "act")], "worlds": [(type(envs), "step")], "judge": [(type(agent), "judge")],
                "update": [(type(agent), "update")]}) as spans:  # fmt: skip
        trained(whole, agent)
    envs.close()
    steps = config.rollout_size * iterations / 1e3
    seconds = {name: sum(span.seconds for span in all_) for name, all_ in spans.items()}
    return {name: each / steps for name, each in {**agent.seconds, **seconds}.items()}


def flops(config: PPOConfig) -> int:
    """Multiplications and additions of one env step: acting, valuing, and forward and twice back in each epoch."""
    return 2 * (FORWARD * 2 + config.n_epochs * (3 * FORWARD - FIRST))


def text(config: PPOConfig, table: Figures, parts: Mapping[str, float], limit: float) -> str:
    minibatches = config.rollout_size // config.minibatch_size
    lines = [
        f"\n{config.env_id}, {config.n_envs} worlds x {config.n_steps} steps, {config.n_epochs} epochs x {minibatches} "
        f"minibatches, nature network of 512 features, {config.threads} thread(s), env steps per second"
    ]
    lines.append(f"  {'':<16}{'wall':>10}{'cpu':>10}   times sb3 and cleanrl style, by cpu (least to most)")
    for name, found in table["cpu"].items():
        times = [told(ratio(found, table["cpu"][peer])) for peer in ("sb3", "cleanrl style") if peer in table["cpu"]]
        wall = table["wall"][name]["median"]
        lines.append(f"  {name:<16}{wall:>10,.0f}{found['median']:>10,.0f}   {'  '.join(times)}")
    share = table["wall"][OURS]["median"] * flops(config) / limit
    lines.append(f"  ours multiplies and adds at {share:.0%} of the limit")
    where = ", ".join(f"{name} {ms:.2f}" for name, ms in parts.items() if ms)
    lines.append(f"  ours, ms of the wall clock an env step: {where}")
    return "\n".join(lines)


def told(found: Figures) -> str:
    least, most = min(found["all"]), max(found["all"])
    return f"{statistics.median(found['all']):.2f} ({least:.2f} to {most:.2f})"


if __name__ == "__main__":
    entry.run(main)
