"""Train a policy in Brax environments, which JAX compiles: `ant` is `python train.py brax/ant:ppo`.

All other arguments, such as n_envs=256 or max_timesteps=2e6, are passed to train.py.
"""

from stride.commands import train
from stride.commands.usage import parser_of
from stride.envs_gym.brax_worlds import PREFIX, TASKS
from stride.utils import entry


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("task", choices=TASKS, metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--algo", default="ppo", help="whose general settings: ppo, reinforce, sac, dreamer")
    arguments, others = parser.parse_known_args(argv)
    return train.command([f"{PREFIX}{arguments.task}:{arguments.algo}", *others])


if __name__ == "__main__":
    entry.run(main)
