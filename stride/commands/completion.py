"""Print the shell code that completes the words of `stride`.

bash, in ~/.bashrc:                    eval "$(stride completion bash)"
zsh, in ~/.zshrc after compinit:       eval "$(stride completion zsh)"
fish, in ~/.config/fish/config.fish:   stride completion fish | source
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, TextIO, get_args, get_origin

import argcomplete

from stride.commands.usage import COMMANDS, OneLineParser, parser_of
from stride.config.fields import hints, members
from stride.config.loader import environment_files
from stride.config.raw import AUTO, EnvironmentFile
from stride.config.schema import ALGORITHMS
from stride.runstore.run_dir import list_runs
from stride.utils import entry

SHELLS = ("bash", "zsh", "fish")
ASK_VARIABLE = "_ARGCOMPLETE"  # argcomplete's: the shell sets it to ask for words; COMP_LINE has the line
WORD_BREAKS = "_ARGCOMPLETE_COMP_WORDBREAKS"
BUILDERS = {  # command -> module:function that builds its parser; imported only for that command
    "train": "train_arguments:build_parser",
    "play": "run_arguments:build_play_parser",
    "inspect": "run_arguments:build_inspect_parser",
    "publish": "run_arguments:build_publish_parser",
    "export": "run_arguments:build_export_parser",
    "verify": "run_arguments:build_verify_parser",
    "check-env": "check_env:build_check_parser",
    "monitor": "monitor:build_monitor_parser",
    "runs": "runs:build_runs_parser",
    "sweep": "sweep:build_sweep_parser",
}
MAX_RUNS = 20  # ids of runs that are offered, the newest


def main(argv: list[str]) -> int:
    """Print the code for a shell; return the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("shell", choices=SHELLS, help="the shell to print completion for")
    shell = parser.parse_args(argv).shell
    print(argcomplete.shellcode(["stride"], use_defaults=False, shell=shell), end="")
    return 0


def complete(leave: Callable[[int], object] = os._exit, output: TextIO | None = None) -> None:
    """Print the words that may follow, after Tab was pressed in a shell, and end this process.

    `output`: where to write the words; None: where the shell's function reads them.
    """
    typed = os.environ["COMP_LINE"].encode()[: int(os.environ["COMP_POINT"])].decode(errors="replace")
    finished = typed.split() if typed[-1:].isspace() else typed.split()[:-1]
    os.environ[ASK_VARIABLE] = str(min(2, len(finished)))  # the number of the word that is the parser's program
    breaks = os.environ.get(WORD_BREAKS, "")  # bash keeps an @ in the word although it is one of these
    os.environ[WORD_BREAKS] = breaks.replace("@", "")
    argcomplete.autocomplete(
        parser_of_line(finished), always_complete_options=False, default_completer=argcomplete.SuppressCompleter(),
        exit_method=leave, output_stream=output,
    )  # fmt: skip


def parser_of_line(finished: list[str]) -> argparse.ArgumentParser:
    """Return the parser of the command in the finished words; its arguments know how they are completed."""
    parser: argparse.ArgumentParser = OneLineParser()
    names = [command.name for command in COMMANDS]
    if len(finished) < 2:
        parser.add_argument("command", choices=names)
        return parser
    command = finished[1]
    if command not in names:
        return parser
    if command in BUILDERS:
        module, _, function = BUILDERS[command].partition(":")
        parser = vars(import_module(f"stride.commands.{module}"))[function]()
    elif command == "list":
        parser.add_argument("term", metavar="ENV", nargs="?")
    elif command == "completion":
        parser.add_argument("shell", choices=SHELLS)
    elif command == "new":
        parser.add_argument("name", metavar="FOLDER")
    for action in actions_of(parser):
        completer = completer_of(command, action)
        if completer is not None:
            action.completer = completer  # type: ignore[attr-defined]  # where argcomplete looks for it
    return parser


def actions_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield all arguments of a parser and of its subcommands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from actions_of(subparser)


def completer_of(command: str, action: argparse.Action) -> Any:
    """Return the function that completes an argument; None: argcomplete offers its choices, or nothing."""
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
    return ["@last", "@best", *(run.id for run in list_runs()[:MAX_RUNS])]


def words_of_training(prefix: str, parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """Return ENV:VARIANT, or after it key=value."""
    for word in parsed_args.words or []:
        if ":" in word and "=" not in word:
            return keys(word, prefix)
    return environments(prefix)


def environments(prefix: str) -> list[str]:
    """Return `ENV:` of all that match, or every `ENV:VARIANT` if only one environment matches."""
    files = environment_files()
    stem, colon, _ = prefix.partition(":")
    possible = [name for name in files if name.startswith(stem)]
    if not colon and len(possible) != 1:
        return [f"{name}:" for name in possible]
    name = stem if colon else possible[0]
    variants = [*EnvironmentFile.read(files[name]).variants, AUTO] if name in files else []
    return [f"{name}:{variant}" for variant in variants]


def keys(config_id: str, prefix: str) -> list[str]:
    """Return `key=` for every key of a variant's algorithm; after `key=`, its values if there are only a few."""
    name, _, variant = config_id.partition(":")
    file = EnvironmentFile.read(path) if (path := environment_files().get(name)) else None
    if file is None or variant not in file.variants:
        return []
    types = hints(ALGORITHMS[file.algorithm(variant)])
    key, has_value, _ = prefix.partition("=")
    return [f"{key}={word}" for word in choices(types.get(key))] if has_value else [f"{name}=" for name in types]


def choices(hint: object) -> list[str]:
    """Return the values that a key of this type can take, if they can be listed: Literal and bool."""
    options: list[object] = []
    for member in members(hint):
        options += get_args(member) if get_origin(member) else ()
    options += [False, True] if bool in members(hint) else []
    return [str(option).lower() for option in options if isinstance(option, str | int)]


if __name__ == "__main__":
    if ASK_VARIABLE in os.environ:
        complete()
        sys.exit(1)
    entry.run(main)
