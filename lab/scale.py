"""Does a training in several processes pay? Two processes beside two threads, the exchange alone, larger jobs on paper.

    python -m lab.scale                                              about ten minutes of an idle machine
    python -m lab.scale --turns 1 --iterations 2 --worlds 64 --repeats 20 --rows 64           shows that it runs

Trainings are CartPole-v1 by PPO: one process with two threads and shards=1, two processes of one thread with shards=2,
in turns; told are the seconds that they collected and learnt. An exchange is the sum of one vector over all processes
of this machine, beside gloo's all_reduce. On paper each process has as many rows as one had alone, an update takes what
it takes here in torch on one thread, and an exchange log2(processes) times what one takes between two of this machine.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from math import log2
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lab.bench.measure import machine
from lab.bench.pairs import measured
from lab.bench.ratio import Ratio, ratio_of
from stride.agents.engines.process_group import init_process_group
from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.places import PROJECT

STEPS = 128  # of each environment in a rollout
WORDS = (
    "train.py", "CartPole-v1:ppo", "-q", f"n_steps={STEPS}", "n_epochs=4", "batch_size=0.25", "hidden_dims=[64,64]",
    "early_stop_on_eval_threshold=false", "eval_freq_epochs=null", "test_episodes=0",
)  # fmt: skip
CONTENDERS = {
    "two threads": ("shards=1", "threads=2"),
    "two processes": ("shards=2", "threads=1", "--processes", "2"),
}
SIZES = (9_155, 1_000_000)  # numbers of a vector: actor and critic of 64 x 64 for CartPole, and a large one
NETS = (64, 256, 1024)  # width of both hidden layers of actor and critic
PROCESSES = (2, 4, 16)  # on paper
Times = dict[str, list[float]]


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--turns", type=int, default=11, help="of the trainings (default 11)")
    parser.add_argument("--iterations", type=int, default=20, help="of a training (default 20)")
    parser.add_argument("--worlds", type=int, default=2048, help="of a training (default 2048)")
    parser.add_argument("--repeats", type=int, default=400, help="of an exchange (default 400)")
    parser.add_argument(
        "--rows", type=int, default=8192, help="of a minibatch in each process, on paper (default 8192)"
    )
    asked = parser.parse_args(argv)
    print(machine(1))
    print(f"two processes reach {trainings(asked.worlds, asked.iterations, asked.turns)} of the rate of two threads")
    taken = {}
    for ranks in (2, 4):
        for size in SIZES:
            medians = {name: statistics.median(times) for name, times in exchanges(ranks, size, asked.repeats).items()}
            taken[ranks, size] = medians["tree"]
            told = ", ".join(f"{name} {seconds * 1e6:,.0f} us" for name, seconds in medians.items())
            print(f"{ranks} processes, {size:,} numbers: {told}", flush=True)
    small, large = SIZES
    per_number = max(0.0, (taken[2, large] - taken[2, small]) / (large - small))
    for width in NETS:
        size, seconds = update_of(width, asked.rows, asked.turns)
        between_two = taken[2, small] + per_number * (size - small)
        shares = [f"{count}: {seconds / (seconds + log2(count) * between_two):.1%}" for count in PROCESSES]
        print(f"{size:,} parameters, an update {seconds * 1e3:.2f} ms, efficiency on paper: {', '.join(shares)}")
    return 0


def trainings(worlds: int, iterations: int, turns: int) -> Ratio:
    """How many times the rate of two threads that of two processes is."""
    budget = (f"n_envs={worlds}", f"max_timesteps={worlds * STEPS * iterations}")
    seconds: Times = {name: [] for name in CONTENDERS}
    for turn in range(turns + 1):
        for name in list(CONTENDERS)[:: -1 if turn % 2 else 1]:
            phases = measured(PROJECT, [*WORDS, *budget, *CONTENDERS[name]], STRIDE_CORES="2").phases
            if turn:  # the first one compiled kernels
                seconds[name].append(phases["collect"] + phases["learn"])
    steps = worlds * STEPS * iterations
    for name, values in seconds.items():
        print(f"{name}: {steps / statistics.median(values):,.0f} env steps/s")
    return ratio_of(seconds["two threads"], seconds["two processes"])


def exchanges(ranks: int, size: int, repeats: int) -> Times:
    """Seconds of each exchange, over the tree and by all_reduce, by rank 0's clock."""
    context = get_context("spawn")
    results: Queue[Times] = context.Queue()
    with tempfile.TemporaryDirectory(prefix="stride-scale-") as folder:
        rest = (ranks, str(Path(folder) / "ranks"), size, repeats, results)
        processes = [context.Process(target=exchange, args=(rank, *rest)) for rank in range(ranks)]
        for process in processes:
            process.start()
        times = results.get(timeout=600)
        for process in processes:
            process.join()
    return times


def exchange(rank: int, ranks: int, file: str, size: int, repeats: int, results: "Queue[Times]") -> None:
    """What one process does."""
    torch.set_num_threads(1)
    group, x = init_process_group(rank, ranks, file), torch.ones(size)
    ways: dict[str, Callable[[Tensor], object]] = {"tree": group.sum, "all_reduce": dist.all_reduce}
    times: Times = {name: [] for name in ways}
    for turn in range(repeats + 1):
        for name, way in ways.items():
            x.fill_(1.0)
            dist.barrier()
            took = timed(partial(way, x))
            if turn:
                times[name].append(took)
    dist.barrier()
    group.close()
    if rank == 0:
        results.put(times)


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def update_of(width: int, rows: int, repeats: int) -> tuple[int, float]:
    """Parameters of actor and critic, and the seconds of one gradient of both on one thread."""
    torch.set_num_threads(1)
    layers = [(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, k)) for k in (2, 1)]
    nets, obs = [nn.Sequential(*each) for each in layers], torch.randn(rows, 4)

    def gradient() -> None:
        torch.stack([net(obs).square().mean() for net in nets]).sum().backward()

    size = sum(parameter.numel() for net in nets for parameter in net.parameters())
    return size, statistics.median(timed(gradient) for _ in range(repeats))


if __name__ == "__main__":
    entry.run(main)
