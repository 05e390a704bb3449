"""What does a Ray cluster cost? Times the same runs locally and on a cluster of two one-CPU nodes on this machine.

Each turn is one command, from the shell to its last line: CartPole-v1:ppo for 20,000 env steps a seed. The cluster, a
head and two nodes of one CPU, runs before; each command starts its own workers.
"""

from lab.bench.pairs import measured
from lab.bench.ratio import ratio_of
from lab.faults.pauses import cluster
from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.places import PROJECT

COMMAND = ("train.py", "CartPole-v1:ppo", "max_timesteps=20000", "early_stop_on_eval_threshold=false", "-q", "--seed")


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--turns", type=int, default=7)
    args = parser.parse_args(argv)
    times: dict[str, list[float]] = {"ray": [], "local": []}
    with cluster():
        measured(PROJECT, [*COMMAND, "1-2"])  # compiles kernels
        for turn in range(args.turns):
            order = ("local", "ray") if turn % 2 == 0 else ("ray", "local")
            for place in order:
                times[place].append(measured(PROJECT, [*COMMAND, f"1-{args.runs}", "--on", place]).wall)
            print(f"{args.runs} runs: local {times['local'][-1]:.1f} s, ray {times['ray'][-1]:.1f} s", flush=True)
    print(f"ray takes {ratio_of(times['ray'], times['local'])} of local")
    return 0


if __name__ == "__main__":
    entry.run(main)
