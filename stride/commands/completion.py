"""Print what goes into a shell's file so that it completes the words of `stride`.

bash, in ~/.bashrc:                    eval "$(stride completion bash)"
zsh, in ~/.zshrc after compinit:       eval "$(stride completion zsh)"
fish, in ~/.config/fish/config.fish:   stride completion fish | source
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO, get_args, get_origin

import argcomplete

from stride.commands.usage import parser_of
from stride.config.commands.check_env import build_check_parser
from stride.config.commands.export import build_export_parser
from stride.config.commands.inspect import build_inspect_parser
from stride.config.commands.monitor import build_monitor_parser
from stride.config.commands.one_line import OneLineParser
from stride.config.commands.play import build_play_parser
from stride.config.commands.publish import build_publish_parser
from stride.config.commands.runs import build_runs_parser
from stride.config.commands.sweep import build_sweep_parser
from stride.config.commands.table import commands
from stride.config.commands.train import build_parser
from stride.config.commands.verify import build_verify_parser
from stride.config.field_types import hints, members
from stride.config.loader import environment_files
from stride.config.schema import ALGORITHMS
from stride.config.variants import EnvironmentFile
from stride.runstore.run_dir import list_runs
from stride.utils import entry

SHELLS = ("bash", "zsh", "fish")
ASKED = "_ARGCOMPLETE"  # argcomplete's variable: what the shell sets to ask for words, the line is in COMP_LINE
WORD_BREAKS = "_ARGCOMPLETE_COMP_WORDBREAKS"
BUILDERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "train": build_parser,
    "play": build_play_parser,
    "inspect": build_inspect_parser,
    "publish": build_publish_parser,
    "export": build_export_parser,
    "verify": build_verify_parser,
    "check-env": lambda: build_check_parser("stride check-env"),
    "monitor": lambda: build_monitor_parser("stride monitor"),
    "runs": lambda: build_runs_parser("stride runs"),
    "sweep": lambda: build_sweep_parser("stride sweep"),
}
NEWEST = 20  # runs that are offered


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("shell", choices=SHELLS, help="whose words to print")
    shell = parser.parse_args(argv).shell
    print(argcomplete.shellcode(["stride"], use_defaults=False, shell=shell), end="")
    return 0


def complete(leave: Callable[[int], object] = os._exit, output: TextIO | None = None) -> None:
    """Tell a shell in which Tab was pressed how its line may go on, and end this process.

    `output`: where the words go; None: where the shell's function reads them.
    """
    typed = os.environ["COMP_LINE"].encode()[: int(os.environ["COMP_POINT"])].decode(errors="replace")
    finished = typed.split() if typed[-1:].isspace() else typed.split()[:-1]
    os.environ[ASKED] = str(min(2, len(finished)))  # which word of the line is the program of this parser
    breaks = os.environ.get(WORD_BREAKS, "")  # bash leaves the @ in front of a word, which argcomplete does not expect
    os.environ[WORD_BREAKS] = breaks.replace("@", "")
    parser = parser_of_line(finished)
    nothing = argcomplete.SuppressCompleter()
    argcomplete.autocomplete(
        parser, always_complete_options=False, default_completer=nothing, exit_method=leave, output_stream=output
    )


def parser_of_line(finished: list[str]) -> argparse.ArgumentParser:
    """The parser of the command among the finished words, with what completes each argument."""
    if len(finished) < 2:
        parser: argparse.ArgumentParser = OneLineParser()
        parser.add_argument("command", choices=commands())
        return parser
    command = finished[1]
    if command not in commands():
        return OneLineParser()
    parser = built(command)
    for action in actions_of(parser):
        completer = completer_of(command, action)
        if completer is not None:
            action.completer = completer  # type: ignore[attr-defined]  # where argcomplete looks for it
    return parser


def built(command: str) -> argparse.ArgumentParser:
    """The parser that reads a command's words."""
    if command in BUILDERS:
        return BUILDERS[command]()
    parser = OneLineParser()
    if command == "list":
        parser.add_argument("term", metavar="ENV", nargs="?")
    elif command == "completion":
        parser.add_argument("shell", choices=SHELLS)
    elif command == "new":
        parser.add_argument("name", metavar="FOLDER")
    return parser


def actions_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments of a parser and of the commands below it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from actions_of(below)


def completer_of(command: str, action: argparse.Action) -> Any:
    """What argcomplete is to call for an argument; None: its choices, or nothing."""
    if command == "train" and action.dest == "words":
        return words_of_training
    if action.dest == "checkpoint":
        return lambda **_: ["best", "last"]
    if action.metavar in ("RUN", "RUNS"):
        return run_names
    if action.metavar == "ENV":
        return lambda **_: [*environment_files()]
    return argcomplete.FilesCompleter() if action.metavar in ("FILE", "FOLDER", "PATH") else None


def run_names(**_: object) -> list[str]:
    return ["@last", "@best", *(run.id for run in list_runs()[:NEWEST])]


def words_of_training(prefix: str, parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """ENV:VARIANT, then its key=value."""
    words = parsed_args.words or []
    config_id = next((word for word in words if ":" in word and "=" not in word), "")
    return keys(config_id, prefix) if config_id else environments(prefix)


def environments(prefix: str) -> list[str]:
    """ENV: of all, or ENV:VARIANT where the environment is known by now."""
    known = environment_files()
    stem = prefix.partition(":")[0]
    possible = [name for name in known if name.startswith(stem)]
    if ":" not in prefix and len(possible) != 1:
        return [f"{name}:" for name in possible]
    name = stem if stem in known or ":" in prefix else possible[0]
    return [f"{name}:{variant}" for variant in EnvironmentFile.read(known[name]).variants] if name in known else []


def keys(config_id: str, prefix: str) -> list[str]:
    """key= of a variant's algorithm; key=value where a key takes but few values."""
    name, _, variant = config_id.partition(":")
    file = EnvironmentFile.read(path) if (path := environment_files().get(name)) else None
    if file is None or variant not in file.variants:
        return []
    types = hints(ALGORITHMS[file.algorithm(variant)])
    key = prefix.partition("=")[0]
    if "=" not in prefix:
        return [f"{name}=" for name in types]
    return [f"{key}={word}" for word in choices(types.get(key))]


def choices(hint: object) -> list[str]:
    """The words that a key takes, where these are all there are."""
    words = [word for member in members(hint) for word in (get_args(member) if get_origin(member) else ())]
    words += [False, True] if bool in members(hint) else []
    return [str(word).lower() for word in words if isinstance(word, str | int)]


if __name__ == "__main__":
    if ASKED in os.environ:
        complete()
        sys.exit(1)
    entry.run(main)
