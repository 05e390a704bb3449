"""Evaluate a policy that was trained in Brax environments: returns of new episodes, in many environments at once.

This is `python run_play.py --run-id RUN --headless` for a run of Brax; its environments cannot be rendered here.
"""

from stride.commands import run_play
from stride.commands.usage import parser_of
from stride.envs_gym.brax_worlds import PREFIX
from stride.runstore.run_dir import RunDir
from stride.utils import entry
from stride.utils.user_error import UserError


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("run", nargs="?", default="@last", metavar="RUN", help="its id, or @last")
    parser.add_argument("--episodes", type=int, default=32, metavar="N", help="how many (32)")
    arguments, others = parser.parse_known_args(argv)
    env_id = str(RunDir.find(arguments.run).facts().get("env_id"))
    if not env_id.startswith(PREFIX):
        raise UserError(f"{arguments.run} was trained in {env_id}; this is for {PREFIX}..., run_play.py for any")
    return run_play.command(["--run-id", arguments.run, "--headless", "--episodes", str(arguments.episodes), *others])


if __name__ == "__main__":
    entry.run(main)
