"""The command line of scripts/export.py, every word of it checked. No exporting here."""

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from stride.config.commands.one_line import OneLineParser
from stride.utils.user_error import UserError, check_file_name

EXAMPLES = """\
examples:
  stride export @last --onnx                        CartPole-v1-ppo.onnx, for onnxruntime
  stride export hub:you/cartpole --torch --time     for torch without Stride; ms of a call
"""
SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
NEEDED = {"onnx": ("onnx", "onnxscript", "onnxruntime")}  # modules that the extra `export` installs


@dataclass(frozen=True)
class ExportArguments:
    """What was asked for; `out` is "" where the file is called after environment and variant."""

    run_id: str
    checkpoint: str
    kind: str
    out: str
    time: bool

    def path(self, env_id: str, variant: str) -> Path:
        """The file."""
        name = re.sub(r"[^A-Za-z0-9_.]+", "-", f"{env_id}-{variant}").strip("-.")
        return Path(self.out or f"{name}{SUFFIXES[self.kind]}")


def build_export_parser() -> OneLineParser:
    parser = OneLineParser(
        prog="stride export",
        description="Write a trained policy into one file: observation processing, network and greedy action.",
        epilog=EXAMPLES,
    )
    text = "@last (the default), @best[:ENV[:VARIANT]], id, path, hub:USER/REPO[@REVISION]"
    parser.add_argument("run_id", metavar="RUN", nargs="?", default="@last", help=text)
    parser.add_argument("--checkpoint", metavar="NAME", default="best", help="best (the default), last or epoch=NN")
    kinds = parser.add_mutually_exclusive_group(required=True)
    for kind, text in (
        ("onnx", "for onnxruntime; pip install 'stride-rl[export]'"),
        ("torch", "torch.export's own file, which torch loads without Stride"),
    ):
        kinds.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, help=text)
    parser.add_argument("--out", metavar="FILE", default="", help="ENV-VARIANT.onnx or .pt2 by default")
    parser.add_argument("--time", action="store_true", help="measure a call of the file beside one of torch")
    return parser


def parse_export(argv: list[str]) -> ExportArguments:
    """argv without the program's name; what is unknown, of the wrong form or not installed is refused."""
    if "--c" in argv:
        raise UserError("--c was removed: export --onnx; onnx2c makes C of it")
    found = build_export_parser().parse_all(argv)
    arguments = ExportArguments(**vars(found))
    for module in NEEDED.get(arguments.kind, ()):
        if find_spec(module) is None:
            raise UserError(f"--{arguments.kind} needs {module}: pip install 'stride-rl[export]'")
    if arguments.out:
        _check_out(arguments)
    return arguments


def _check_out(arguments: ExportArguments) -> None:
    check_file_name(arguments.out, "--out")
    path, suffix = Path(arguments.out), SUFFIXES[arguments.kind]
    if path.suffix != suffix:
        raise UserError(f"--{arguments.kind} writes {suffix} files: --out {path.with_suffix(suffix)}, not {path}")
    if not path.absolute().parent.is_dir():
        raise UserError(f"--out {path}: there is no folder {path.absolute().parent}")
    if path.is_dir():
        raise UserError(f"--out {path} is a folder; name a file in it")
