"""Command lines of the commands about one run: play, publish, export, verify, inspect. Every argument is checked.

They are not in these commands, so that a wrong flag is reported, and a line completed, before torch is loaded.
"""

import re
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stride.commands.train_arguments import TRUST, trusted
from stride.commands.usage import OneLineParser, add_project, check_output_file
from stride.runstore.run_dir import RunDir
from stride.runstore.select import LAST, names_group, parse_selector
from stride.utils.user_error import UserError, check_file_name

UNFIT_CHARACTERS = re.compile(r"[^A-Za-z0-9_.]+")  # not allowed in names of files and repositories
RUN = "@last (the default), @best[:ENV[:VARIANT]], id, path or hub:USER/REPO[@REVISION]"
CHECKPOINT = "best (the default), last or epoch=NN"


def plain_name(env_id: str, variant: str) -> str:
    """Return <env>-<variant>, with characters that names of files and of repositories on the Hub may have."""
    return UNFIT_CHARACTERS.sub("-", f"{env_id}-{variant}").strip("-.")


def look_for_run(parse: Callable[[list[str]], Any], must_exist: bool = True) -> Callable[[list[str]], None]:
    """Return a function that checks a command line, and that its run exists, before anything slow is loaded."""

    def check_first(argv: list[str]) -> None:
        selector = parse(argv).run_id
        kind = parse_selector(selector).kind
        if kind not in ("hub", "group") and (must_exist or selector != LAST):
            RunDir.find(selector)

    return check_first


PLAY_EXAMPLES = """\
examples:
  python run_play.py                                   five episodes of the last run, in a window if possible
  python run_play.py --headless --episodes 100 --json  mean and standard deviation of 100 episodes
  python run_play.py --run-id @best:CartPole-v1 --video            record one file per episode in the run's folder
  python run_play.py --step-by-step --sampled          press Enter for each step; shows the policy's output
  python run_play.py --user                            play it yourself
  python run_play.py --run-id group:@last              compare the seeds of the last group by their closing tests
  python run_play.py --run-id group:A,group:B --episodes 100   play every run of two groups, compare the groups
"""


@dataclass(frozen=True)
class PlayArguments:
    """How run_play.py was called; `mode` is greedy, sampled, random or user."""

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
        """Whether the runs of one or several groups are compared."""
        return names_group(self.run_id.partition(",")[0])

    @property
    def user(self) -> bool:
        """Whether a person plays."""
        return self.mode == "user"

    @property
    def filmed(self) -> bool:
        """Whether videos are made; `video` is "" if they go into the run's folder."""
        return self.video is not None


def build_play_parser() -> OneLineParser:
    parser = OneLineParser(
        prog="python run_play.py", description="Watch or measure a trained agent.", epilog=PLAY_EXAMPLES
    )
    add = parser.add_argument
    add("--run-id", "--run_id", metavar="RUN", default=LAST, help=f"{RUN}; group:NAME[,group:NAME]")
    add("--checkpoint", metavar="NAME", default="best", help=CHECKPOINT)
    add("--episodes", type=int, metavar="N", default=5, help="number of episodes; default 5")
    modes = parser.add_mutually_exclusive_group()  # all four flags set `mode`
    for flag, mode, text in (
        ("--deterministic", "greedy", "the most likely action; the default"),
        ("--sampled", "sampled", "actions drawn from the policy's distribution"),
        ("--random", "random", "random actions"),
        ("--user", "user", "you play, with the keyboard"),
    ):
        modes.add_argument(flag, dest="mode", action="store_const", const=mode, default="greedy", help=text)
    add("--headless", action="store_true", help="no window; many episodes in parallel")
    text = "record without a window: one file per episode in the run's videos/ or in folder PATH; or all in PATH.mp4"
    add("--video", nargs="?", const="", metavar="PATH", help=text)
    text = "do not write episode, step and return into the video"
    add("--no-captions", dest="captions", action="store_false", help=text)
    add("--seed", type=int, metavar="N", default=0, help="the same seed gives the same episodes; default 0")
    add("--fps", type=float, metavar="N", help="frames per second of the window or video")
    add("--step-by-step", action="store_true", help="describe each step and wait for Enter")
    add("--max-steps", type=int, metavar="N", help="end each episode after N steps")
    add("--json", action="store_true", help="print one JSON object, no window")
    add("--trust", metavar="MODULE[,MODULE]", default="", help=TRUST)
    add_project(parser)
    return parser


def parse_play(argv: list[str]) -> PlayArguments:
    """Parse argv, without the program's name; UserError if something is unknown, out of range or contradictory."""
    parsed = build_play_parser().parse_all(argv)
    arguments = PlayArguments(**{**vars(parsed), "trust": trusted(parsed.trust)})
    limits = (("episodes", arguments.episodes, 1), ("max-steps", arguments.max_steps, 1), ("seed", arguments.seed, 0))
    for name, value, least in limits:
        if value is not None and not least <= value < 2**63:
            raise UserError(f"--{name} must be a whole number, {least} or more, not {value}")
    if arguments.fps is not None and not 0 < arguments.fps <= 1000:
        raise UserError(f"--fps must be above 0 and at most 1000, not {arguments.fps:g}")
    if arguments.user and (arguments.headless or arguments.filmed or arguments.json):
        raise UserError("--user needs a window; leave out --headless, --video and --json")
    if not arguments.captions and not arguments.filmed:
        raise UserError("--no-captions needs --video; give both")
    if arguments.video:
        _check_video(arguments.video)
    return _for_group(arguments, argv) if arguments.group else arguments


def _check_video(name: str) -> None:
    check_file_name(name, "--video")
    path = Path(name)
    if path.is_dir():
        return
    if path.suffix != ".mp4":
        raise UserError(f"--video takes a folder or a file that ends in .mp4, not {name}")
    check_output_file("--video", name)


def _for_group(arguments: PlayArguments, argv: list[str]) -> PlayArguments:
    """Refuse flags that need one run; play the group's runs (headless) only if a flag says how."""
    if arguments.user or arguments.filmed or arguments.step_by_step or arguments.fps:
        raise UserError(
            f"{arguments.run_id} is several runs, and these flags need one; without them, the runs are compared"
        )
    playing = {"--episodes", "--checkpoint", "--seed", "--max-steps", "--sampled", "--random", "--deterministic"}
    is_played = any(word.partition("=")[0] in playing for word in argv)
    return replace(arguments, headless=arguments.headless or is_played)


PUBLISH_EXAMPLES = """\
examples:
  python run_publish.py --dry-run                      print the model card and write the files into a folder
  python run_publish.py                                the last run, to <you>/<env>-<variant>
  python run_publish.py --run-id @best:CartPole-v1 --repo you/cartpole --private
then, on any machine:
  python run_play.py --run-id hub:you/cartpole
"""
TEMPORARY = ""  # --dry-run without FOLDER: a temporary one


def build_publish_parser() -> OneLineParser:
    parser = OneLineParser(
        prog="python run_publish.py",
        description="Publish a trained agent on the Hugging Face Hub.",
        epilog=PUBLISH_EXAMPLES,
    )
    add = parser.add_argument
    add("--run-id", "--run_id", metavar="RUN", default=LAST, help="@last (the default), id or path")
    add("--checkpoint", metavar="NAME", default="best", help=CHECKPOINT)
    add("--repo", metavar="USER/NAME", default="", help="default <you>/<env>-<variant>")
    add("--private", action="store_true", help="only you can see it")
    text = "send nothing: write the files into FOLDER and print the card"
    add("--dry-run", dest="folder", nargs="?", metavar="FOLDER", const=TEMPORARY, help=text)
    add("--message", metavar="TEXT", default="", help="commit message")
    text = "publish even where your texts look like a secret, a path or an address"
    add("--allow-text", action="store_true", help=text)
    add("--trust", metavar="MODULE[,MODULE]", default="", help=TRUST)
    add_project(parser)
    return parser


def parse_publish(argv: list[str]) -> Namespace:
    """Parse argv, without the program's name; UserError if something is unknown or of the wrong form.

    `folder` is None without --dry-run, TEMPORARY if --dry-run names none.
    """
    arguments = build_publish_parser().parse_all(argv)
    if parse_selector(arguments.run_id).kind == "hub":
        raise UserError(f"{arguments.run_id} is already published; --run-id takes a run on this machine")
    if arguments.folder:
        check_file_name(arguments.folder, "--dry-run")
    arguments.trust = trusted(arguments.trust)
    return arguments


EXPORT_EXAMPLES = """\
examples:
  stride export @last --onnx                        CartPole-v1-ppo.onnx, for onnxruntime
  stride export hub:you/cartpole --torch --time     for torch without Stride; measures ms per call
"""
SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
ONNX_MODULES = ("onnx", "onnxscript", "onnxruntime")  # installed by the extra `export`


def build_export_parser() -> OneLineParser:
    parser = OneLineParser(
        prog="stride export",
        description="Write a trained policy into one file: observation processing, network and greedy action.",
        epilog=EXPORT_EXAMPLES,
    )
    add = parser.add_argument
    add("run_id", metavar="RUN", nargs="?", default=LAST, help=RUN)
    add("--checkpoint", metavar="NAME", default="best", help=CHECKPOINT)
    kinds = parser.add_mutually_exclusive_group(required=True)
    text = "for onnxruntime; pip install 'stride-rl[export]'"
    kinds.add_argument("--onnx", dest="kind", action="store_const", const="onnx", help=text)
    text = "torch.export format, which torch loads without Stride"
    kinds.add_argument("--torch", dest="kind", action="store_const", const="torch", help=text)
    add("--out", metavar="FILE", default="", help="default ENV-VARIANT.onnx or .pt2")
    add("--time", action="store_true", help="measure one call of the file and one of torch")
    return parser


def parse_export(argv: list[str]) -> Namespace:
    """Parse argv, without the program's name; UserError if something is unknown, wrong or not installed.

    `out` is "" if the file is to be named after environment and variant.
    """
    if "--c" in argv:
        raise UserError("--c was removed; use --onnx, then onnx2c to make C code")
    arguments = build_export_parser().parse_all(argv)
    for module in ONNX_MODULES if arguments.kind == "onnx" else ():
        if find_spec(module) is None:
            raise UserError(f"--onnx needs {module}: pip install 'stride-rl[export]'")
    path, suffix = Path(arguments.out), SUFFIXES[arguments.kind]
    if arguments.out and path.suffix != suffix:
        raise UserError(f"--{arguments.kind} writes {suffix} files; use --out {path.with_suffix(suffix)}, not {path}")
    check_output_file("--out", arguments.out)
    return arguments


VERIFY_EXAMPLES = """\
examples:
  stride verify @last                     compare its earliest checkpoint
  stride verify RUN --iterations 50       compare every checkpoint of its first 50 iterations
  stride verify RUN --test                also repeat the closing test, with the weights of its last checkpoint
exit codes:
  0 identical, or the same within the tolerance; 1 different, or the run's files disagree; 2 it cannot be repeated
"""
TOLERANCE = 1e-5


def build_verify_parser() -> OneLineParser:
    parser = OneLineParser(
        prog="stride verify",
        description="Check that a run is reproducible: train its first iterations again from its config and seed.",
        epilog=VERIFY_EXAMPLES,
    )
    add = parser.add_argument
    add("run_id", metavar="RUN", nargs="?", default=LAST, help="@last (the default), id or path")
    text = "compare every checkpoint of the first N iterations; default: only the earliest checkpoint"
    add("--iterations", type=int, metavar="N", default=0, help=text)
    add("--test", action="store_true", help="repeat the closing test and compare it")
    text = f"largest difference that counts as the same; default {TOLERANCE:g}"
    add("--tolerance", type=float, metavar="X", default=TOLERANCE, help=text)
    return parser


def parse_verify(argv: list[str]) -> Namespace:
    """Parse argv, without the program's name; `iterations` is 0 if only the earliest checkpoint is compared.

    UserError if something is unknown or out of range.
    """
    arguments = build_verify_parser().parse_all(argv)
    if arguments.iterations < 0:
        raise UserError(f"--iterations must be a whole number, 1 or more, not {arguments.iterations}")
    if not 0 <= arguments.tolerance < float("inf"):
        raise UserError(f"--tolerance must be a number, 0 or more, not {arguments.tolerance}")
    if parse_selector(arguments.run_id).kind == "hub":
        raise UserError(f"{arguments.run_id} has one checkpoint and no rows; verify takes a run on this machine")
    return arguments


ADDRESS = re.compile(r"[A-Za-z0-9_.:%-]{0,63}")


def build_inspect_parser() -> OneLineParser:
    parser = OneLineParser(prog="python run_inspect.py", description="Inspect runs and episodes in the browser.")
    add = parser.add_argument
    text = "the run to show first: @last (the default), @best[:ENV[:VARIANT]] or id"
    add("--run-id", "--run_id", metavar="RUN", default=LAST, help=text)
    add("--port", type=int, metavar="N", default=7860, help="default 7860; 0 takes any free port")
    text = "address to listen on; 127.0.0.1 (the default) allows this machine only"
    add("--host", metavar="ADDRESS", default="127.0.0.1", help=text)
    text = "a public address through Gradio's servers; everyone with the address sees every run"
    add("--share", action="store_true", help=text)
    add_project(parser)
    return parser


def parse_inspect(argv: list[str]) -> Namespace:
    """Parse argv, without the program's name; UserError if something is unknown or out of range."""
    arguments = build_inspect_parser().parse_all(argv)
    if not 0 <= arguments.port <= 65535:
        raise UserError(f"--port must be from 0 to 65535, not {arguments.port}")
    if not ADDRESS.fullmatch(arguments.host):  # only its form; the server finds out whether this machine has it
        raise UserError(f"--host takes an address such as 127.0.0.1, not {arguments.host!r}")
    return arguments
