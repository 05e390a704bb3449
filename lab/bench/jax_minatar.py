"""Env steps per second of purejaxql's PQN or PureJaxRL's PPO on MinAtar Breakout, by their own code from a checkout.

    git clone https://github.com/mttga/purejaxql && git clone https://github.com/luchris429/purejaxrl
    pip install jax flax optax distrax; pip install --no-deps gymnax==0.0.8
    PYTHONPATH=purejaxql python -m lab.bench.jax_minatar pqn
    PYTHONPATH=purejaxrl/purejaxrl python -m lab.bench.jax_minatar ppo

Both compute what Stride's MinAtar/Breakout-v1:pqn and :ppo do, with the same numbers of environments, steps, epochs and
minibatches, and with Stride's network (PureJaxRL's own are two of dense layers). A whole training is one XLA program,
compiled before it is timed, without evaluations. Stride's iterations per second, to compare:
`python -m lab.bench.rate MinAtar/Breakout-v1:pqn threads=2`.
This file does not import Stride.
"""

import argparse
from importlib import import_module


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench.jax_minatar",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("learner", choices=("pqn", "ppo"))
    parser.add_argument("--iterations", type=int, default=20, metavar="N", help="of a timed training (default 20)")
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="timed trainings (default 5)")
    args = parser.parse_args()
    peer = import_module("lab.bench.peer_minatar")  # it needs JAX
    per_second = peer.env_steps_per_second(args.learner, args.iterations, args.turns)
    print(f"{args.learner}, env steps per second: {per_second:.0f}")


if __name__ == "__main__":
    main()
