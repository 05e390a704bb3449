"""The command line of run_play.py, every word of it checked. No playing here."""

from dataclasses import dataclass, replace
from pathlib import Path

from stride.config.commands.one_line import OneLineParser, add_project
from stride.config.commands.train import TRUST, trusted
from stride.runstore.seed_group import names_group
from stride.utils.user_error import UserError, check_file_name

EXAMPLES = """\
examples:
  python run_play.py                                   five episodes of the last run, in a window where there is one
  python run_play.py --headless --episodes 100 --json  the evaluation: mean and deviation of 100 episodes
  python run_play.py --run-id @best:CartPole-v1 --video            film it: a file per episode in the run's folder
  python run_play.py --step-by-step --sampled          Enter for each step, with what the policy thinks
  python run_play.py --user                            play it yourself
  python run_play.py --run-id group:@last              compare the seeds of the last group, as their runs ended
  python run_play.py --run-id group:A,group:B --episodes 100   play every run of two groups, compare the groups
"""


@dataclass(frozen=True)
class PlayArguments:
    """What was asked for; `mode` is greedy, sampled, random or user."""

    run_id: str
    checkpoint: str
    episodes: int
    mode: str
    headless: bool
    video: str | None
    captions: bool
    seed: int
    fps: float | None
    step_by_step: bool
    max_steps: int | None
    json: bool
    trust: tuple[str, ...] = ()

    @property
    def group(self) -> bool:
        """Whether the seeds of a group are to be compared, or several groups."""
        return names_group(self.run_id.partition(",")[0])

    @property
    def user(self) -> bool:
        """Whether a person plays."""
        return self.mode == "user"

    @property
    def filmed(self) -> bool:
        """Whether videos are wanted; `video` is "" where they go into the run's folder."""
        return self.video is not None


def build_play_parser() -> OneLineParser:
    parser = OneLineParser(
        prog="python run_play.py",
        description="Watch or measure a trained agent.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "--run-id",
        "--run_id",
        metavar="RUN",
        default="@last",
        help="@last (the default), @best[:ENV[:VARIANT]], id, path, hub:USER/REPO[@REVISION]; group:NAME[,group:NAME]",
    )
    parser.add_argument("--checkpoint", metavar="NAME", default="best", help="best (the default), last or epoch=NN")
    parser.add_argument("--episodes", type=int, metavar="N", default=5, help="how many; 5 by default")
    who = parser.add_mutually_exclusive_group()  # four flags, one answer: `mode`
    for flag, mode, text in (
        ("--deterministic", "greedy", "the most likely action; the default"),
        ("--sampled", "sampled", "actions by the policy's chances"),
        ("--random", "random", "any action"),
        ("--user", "user", "you play, by keyboard"),
    ):
        who.add_argument(flag, dest="mode", action="store_const", const=mode, default="greedy", help=text)
    parser.add_argument("--headless", action="store_true", help="no window; many episodes at once")
    parser.add_argument(
        "--video",
        nargs="?",
        const="",
        metavar="PATH",
        help="film it, without a window: an episode a file in the run's videos/ or in the folder PATH, all in PATH.mp4",
    )
    parser.add_argument(
        "--no-captions", dest="captions", action="store_false", help="a video without episode, step and return"
    )
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="one seed, the same episodes; 0 by default")
    parser.add_argument("--fps", type=float, metavar="N", help="speed of the window or the video")
    parser.add_argument("--step-by-step", action="store_true", help="tell about each step and wait for Enter")
    parser.add_argument("--max-steps", type=int, metavar="N", help="end each episode after N steps")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output, no window")
    parser.add_argument("--trust", metavar="MODULE[,MODULE]", default="", help=TRUST)
    add_project(parser)
    return parser


def parse_play(argv: list[str]) -> PlayArguments:
    """argv without the program's name; what is unknown, out of range or at odds is refused."""
    found = build_play_parser().parse_all(argv)
    arguments = PlayArguments(**{**vars(found), "trust": trusted(found.trust)})
    _check_numbers(arguments)
    _check_together(arguments)
    return _for_group(arguments, argv) if arguments.group else arguments


def _for_group(arguments: PlayArguments, argv: list[str]) -> PlayArguments:
    """A group is compared, never watched; whoever says how it is to play wants it played."""
    if arguments.user or arguments.filmed or arguments.step_by_step or arguments.fps:
        raise UserError(
            f"{arguments.run_id} is compared, not watched; without these flags it shows its runs: watch one"
        )
    said = {word.partition("=")[0] for word in argv}
    playing = {"--episodes", "--checkpoint", "--seed", "--max-steps", "--sampled", "--random", "--deterministic"}
    return replace(arguments, headless=arguments.headless or bool(said & playing))


def _check_numbers(arguments: PlayArguments) -> None:
    limits = (("episodes", arguments.episodes, 1), ("max-steps", arguments.max_steps, 1), ("seed", arguments.seed, 0))
    for name, value, least in limits:
        if value is not None and not least <= value < 2**63:
            raise UserError(f"--{name} is a whole number from {least} on, not {value}")
    if arguments.fps is not None and not 0 < arguments.fps <= 1000:
        raise UserError(f"--fps lies above 0 and at most at 1000, not {arguments.fps:g}")


def _check_together(arguments: PlayArguments) -> None:
    if arguments.user and (arguments.headless or arguments.filmed or arguments.json):
        raise UserError("--user needs a window, which --headless, --video and --json do without")
    if not arguments.captions and not arguments.filmed:
        raise UserError("--no-captions is about a --video; give both")
    if not arguments.video:
        return
    check_file_name(arguments.video, "--video")
    path = Path(arguments.video).absolute()
    if path.is_dir():
        return
    if path.suffix != ".mp4":
        raise UserError(f"--video writes .mp4 files or into a folder, and {arguments.video} is neither")
    if not path.parent.is_dir():
        raise UserError(f"--video {arguments.video}: there is no folder {path.parent}")
