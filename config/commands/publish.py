"""The command line of run_publish.py, every word of it checked. No publishing here."""

from dataclasses import dataclass

from stride.config.commands.one_line import OneLineParser, add_project
from stride.config.commands.train import TRUST, trusted
from stride.runstore.run_names import HUB_PREFIX
from stride.utils.user_error import UserError, check_file_name

EXAMPLES = """\
examples:
  python run_publish.py --dry-run                      what would be sent: the card here, the files in a folder
  python run_publish.py                                the last run, to <you>/<env>-<variant>
  python run_publish.py --run-id @best:CartPole-v1 --repo you/cartpole --private
then, on any machine:
  python run_play.py --run-id hub:you/cartpole
"""
TEMPORARY = ""


@dataclass(frozen=True)
class PublishArguments:
    """What was asked for; `folder` is None without --dry-run, and TEMPORARY where it names none."""

    run_id: str
    checkpoint: str
    repo: str
    private: bool
    folder: str | None
    message: str
    allow_text: bool
    trust: tuple[str, ...] = ()

    @property
    def dry_run(self) -> bool:
        """Whether to send nothing."""
        return self.folder is not None


def build_publish_parser() -> OneLineParser:
    parser = OneLineParser(
        prog="python run_publish.py",
        description="Publish a trained agent on the Hugging Face Hub.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--run-id", "--run_id", metavar="RUN", default="@last", help="@last (the default), id, path")
    parser.add_argument("--checkpoint", metavar="NAME", default="best", help="best (the default), last or epoch=NN")
    parser.add_argument("--repo", metavar="USER/NAME", default="", help="<you>/<env>-<variant> by default")
    parser.add_argument("--private", action="store_true", help="only you can see it")
    parser.add_argument("--dry-run", dest="folder", nargs="?", metavar="FOLDER", default=None, const=TEMPORARY,
                        help="send nothing: write the files into FOLDER and print the card")  # fmt: skip
    parser.add_argument("--message", metavar="TEXT", default="", help="of the commit")
    parser.add_argument("--allow-text", action="store_true",
                        help="publish texts of yours that look like a secret, a path or an address")  # fmt: skip
    parser.add_argument("--trust", metavar="MODULE[,MODULE]", default="", help=TRUST)
    add_project(parser)
    return parser


def parse_publish(argv: list[str]) -> PublishArguments:
    """argv without the program's name; what is unknown or of the wrong form is refused."""
    found = build_publish_parser().parse_all(argv)
    if found.run_id.startswith(HUB_PREFIX):
        raise UserError(f"{found.run_id} is published already; --run-id takes a run of this machine")
    if found.folder:
        check_file_name(found.folder, "--dry-run")
    return PublishArguments(**{**vars(found), "trust": trusted(found.trust)})
