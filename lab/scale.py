"""Measures whether training in several processes pays: two processes beside two threads, and the exchange alone.

    python -m lab.scale                                              about ten minutes of an idle machine
    python -m lab.scale --turns 1 --iterations 2 --worlds 64 --repeats 20 --rows 64           shows that it runs

Trainings are CartPole-v1 by PPO, in turns: one process with two threads and shards=1, and two processes of one thread
with shards=2. Their seconds of collecting and learning are compared. An exchange is the sum of one vector over all
processes of this machine; it is measured beside gloo's all_reduce. Larger jobs are estimated "on paper": each process
has as many rows as one had alone, an update takes as long as here in torch on one thread, and an exchange takes
log2(processes) times as long as one between two processes of this machine.
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
SIZES = (9_155, 1_000_000)  # of a vector, in numbers: actor and critic of 64 x 64 for CartPole, and a large one
NETS = (64, 256, 1024)  # width of both hidden layers of actor and critic
PROCESSES = (2, 4, 16)  # of the estimate
Times = dict[str, list[float]]  # name -> seconds of each turn


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
    tree_seconds = {}
    for ranks in (2, 4):
        for size in SIZES:
            medians = {name: statistics.median(times) for name, times in exchanges(ranks, size, asked.repeats).items()}
            tree_seconds[ranks, size] = medians["tree"]
            text = ", ".join(f"{name} {seconds * 1e6:,.0f} us" for name, seconds in medians.items())
            print(f"{ranks} processes, {size:,} numbers: {text}", flush=True)
    small, large = SIZES
    per_number = max(0.0, (tree_seconds[2, large] - tree_seconds[2, small]) / (large - small))
    for width in NETS:
        size, seconds = update_of(width, asked.rows, asked.turns)
        between_two = tree_seconds[2, small] + per_number * (size - small)
        shares = [f"{count}: {seconds / (seconds + log2(count) * between_two):.1%}" for count in PROCESSES]
        print(f"{size:,} parameters, an update {seconds * 1e3:.2f} ms, efficiency on paper: {', '.join(shares)}")
    return 0


def trainings(worlds: int, iterations: int, turns: int) -> Ratio:
    """Return the rate of two processes as a multiple of that of two threads."""
    budget = (f"n_envs={worlds}", f"max_timesteps={worlds * STEPS * iterations}")
    seconds: Times = {name: [] for name in CONTENDERS}
    for turn in range(turns + 1):
        for name in list(CONTENDERS)[:: -1 if turn % 2 else 1]:
            phases = measured(PROJECT, [*WORDS, *budget, *CONTENDERS[name]], STRIDE_CORES="2").phases
            if turn:  # the first turn compiles kernels and is not counted
                seconds[name].append(phases["collect"] + phases["learn"])
    steps = worlds * STEPS * iterations
    for name, values in seconds.items():
        print(f"{name}: {steps / statistics.median(values):,.0f} env steps/s")
    return ratio_of(seconds["two threads"], seconds["two processes"])


def exchanges(ranks: int, size: int, repeats: int) -> Times:
    """Return the seconds of each exchange of `size` numbers between `ranks` processes, by rank 0's clock.

    "tree" is ours, "all_reduce" gloo's.
    """
    context = get_context("spawn")
    results: Queue[Times] = context.Queue()
    with tempfile.TemporaryDirectory(prefix="stride-scale-") as folder:
        arguments = (ranks, str(Path(folder) / "ranks"), size, repeats, results)
        processes = [context.Process(target=exchange, args=(rank, *arguments)) for rank in range(ranks)]
        for process in processes:
            process.start()
        times = results.get(timeout=600)
        for process in processes:
            process.join()
    return times


def exchange(rank: int, ranks: int, file: str, size: int, repeats: int, results: "Queue[Times]") -> None:
    """Exchange a vector `repeats` times in the process `rank`; rank 0 puts the times into `results`."""
    torch.set_num_threads(1)
    group, x = init_process_group(rank, ranks, file), torch.ones(size)
    methods: dict[str, Callable[[Tensor], object]] = {"tree": group.sum, "all_reduce": dist.all_reduce}
    times: Times = {name: [] for name in methods}
    for turn in range(repeats + 1):
        for name, method in methods.items():
            x.fill_(1.0)
            dist.barrier()
            seconds = timed(partial(method, x))
            if turn:
                times[name].append(seconds)
    dist.barrier()
    group.close()
    if rank == 0:
        results.put(times)


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def update_of(width: int, rows: int, repeats: int) -> tuple[int, float]:
    """Return the number of parameters of actor and critic, and the seconds of a gradient of both on one thread."""
    torch.set_num_threads(1)
    layers = [(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, k)) for k in (2, 1)]
    nets, obs = [nn.Sequential(*net_layers) for net_layers in layers], torch.randn(rows, 4)

    def gradient() -> None:
        torch.stack([net(obs).square().mean() for net in nets]).sum().backward()

    size = sum(parameter.numel() for net in nets for parameter in net.parameters())
    return size, statistics.median(timed(gradient) for _ in range(repeats))


if __name__ == "__main__":
    entry.run(main)
