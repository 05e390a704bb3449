"""Print what a shell needs to complete the words of `stride`:   eval "$(stride completion bash)"   in ~/.bashrc

zsh: the same line with zsh, in ~/.zshrc after compinit.   fish: stride completion fish | source
"""

import argparse
import glob
import os
from collections.abc import Iterable
from importlib import import_module
from inspect import signature
from typing import get_args, get_origin

from config.commands.table import commands
from config.commands.train import OneLineParser
from config.field_types import hints, members
from config.loader import environment_files
from config.schema import ALGORITHMS
from config.variants import EnvironmentFile
from runstore.run_dir import list_runs
from scripts.usage import parser_of
from utils import entry
from utils.user_error import UserError

SHELLS = {
    # bash breaks words at : and =, and wants what comes after the last of them
    "bash": """\
_stride() {
  local line="${COMP_LINE:0:COMP_POINT}" each found
  local word="${line##* }"
  local head="${word%"${word##*[:=]}"}"
  COMPREPLY=()
  found="$(stride completion bash --line "$line" 2>/dev/null)" || return 0
  while IFS= read -r each; do [[ $each ]] && COMPREPLY+=("${each#"$head"}"); done <<< "$found"
  [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[:=/] ]] && compopt -o nospace 2>/dev/null
}
complete -F _stride stride
""",
    "zsh": """\
#compdef stride
_stride() {
  local -a all
  all=("${(@f)$(stride completion zsh --line "${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
  compadd -S '' -- ${(M)all:#*[:=/]}
  compadd -- ${all:#*[:=/]}
}
compdef _stride stride
""",
    "fish": """\
complete -c stride -f -a '(stride completion fish --line (commandline -cp) 2>/dev/null)'
""",
}
PARSERS = {  # by name, not imported: only the one that is asked for is, and not all commands are there
    "train": "config.commands.train:build_parser",
    "play": "config.commands.play:build_play_parser",
    "inspect": "config.commands.inspect:build_inspect_parser",
    "publish": "config.commands.publish:build_publish_parser",
    "check-env": "config.commands.check_env:build_check_parser",
    "export": "config.commands.export:build_export_parser",
    "monitor": "config.commands.monitor:build_monitor_parser",
    "runs": "config.commands.runs:build_runs_parser",
    "verify": "config.commands.verify:build_verify_parser",
    "sweep": "config.commands.sweep:build_sweep_parser",
}
RUN_WORDS = ("RUN", "RUNS")
FILE_WORDS = ("FILE", "FOLDER", "PATH")
NEWEST = 20  # runs that are offered


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("shell", choices=SHELLS, help="whose words to print")
    parser.add_argument("--line", help=argparse.SUPPRESS)  # what has been typed so far: print how it may go on
    asked = parser.parse_args(argv)
    told = SHELLS[asked.shell] if asked.line is None else "".join(f"{each}\n" for each in completed(asked.line))
    print(told, end="")
    return 0


def completed(line: str) -> list[str]:
    """The words that the last one of a line may become."""
    words = line.split()
    last = "" if not words or line[-1].isspace() else words.pop()
    return sorted(each for each in offered(words[1:], last) if each.startswith(last))


def offered(words: list[str], last: str) -> Iterable[str]:
    """What may stand after these words."""
    known = commands()
    if not words:
        return known
    if words[0] not in known:
        return ()
    parser, rest = parser_of_words(words[0], words[1:])
    flag, equals, begun = last.partition("=")
    if equals and flag.startswith("-") and (action := taking(parser, flag)):
        return [f"{flag}={each}" for each in values(action, begun)]
    if rest and (action := taking(parser, rest[-1])):
        found = values(action, last)
        if found or action.nargs != "?":
            return found
    if last.startswith("-"):
        return flags(parser)
    return positional(words[0], parser, rest, last)


def parser_of_words(command: str, words: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser of a command, or of the one below it that the words name, and the words that are left for it."""
    if command not in PARSERS:
        return OneLineParser(), words
    module, _, name = PARSERS[command].partition(":")
    build = vars(import_module(module))[name]
    parser: argparse.ArgumentParser = build(**{each: command for each in signature(build).parameters})  # its `program`
    for place, word in enumerate(words):
        if (below := belows(parser)) and word in below:
            return below[word], words[place + 1 :]
    return parser, words


def belows(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands of a command."""
    return next((dict(each.choices) for each in parser._actions if isinstance(each, argparse._SubParsersAction)), {})


def taking(parser: argparse.ArgumentParser, flag: str) -> argparse.Action | None:
    """The flag, where a value goes with it."""
    found = parser._option_string_actions.get(flag)
    return None if found is None or found.nargs == 0 else found


def values(action: argparse.Action, last: str) -> list[str]:
    """Of an argument: its choices, or what its metavar says that it takes."""
    if action.choices is not None:
        return [str(each) for each in action.choices]
    if action.dest == "checkpoint":
        return ["best", "last"]
    if action.metavar in RUN_WORDS:
        return ["@last", "@best", *(run.id for run in list_runs()[:NEWEST])]
    return files(last) if action.metavar in FILE_WORDS else []


def positional(command: str, parser: argparse.ArgumentParser, words: list[str], last: str) -> Iterable[str]:
    """What may stand where no flag does."""
    if command == "train":
        env = next((word for word in words if ":" in word and "=" not in word), "")
        return keys(env, last) if env else environments(last)
    if command in ("check-env", "list", "completion"):
        first = all(word.startswith("-") for word in words)
        return () if not first else SHELLS if command == "completion" else environment_files()
    if command == "new":
        return files(last)
    if below := belows(parser):
        return below
    return next((values(each, last) for each in parser._actions if not each.option_strings), ())


def flags(parser: argparse.ArgumentParser) -> list[str]:
    told = (action for action in parser._actions if action.help != argparse.SUPPRESS)
    return [flag for action in told for flag in action.option_strings if flag.startswith("--")]


def environments(last: str) -> list[str]:
    """ENV: of all, or ENV:VARIANT where the environment is known by now."""
    known = environment_files()
    stem = last.partition(":")[0]
    begun = [name for name in known if name.startswith(stem)]
    if ":" not in last and len(begun) != 1:
        return [f"{name}:" for name in begun]
    found = stem if stem in known else begun[0] if begun and ":" not in last else ""
    return [f"{found}:{variant}" for variant in EnvironmentFile.read(known[found]).variants] if found else []


def keys(env: str, last: str) -> list[str]:
    """key= of a variant's algorithm; key=value where a key takes but few values."""
    stem, _, variant = env.partition(":")
    file = EnvironmentFile.read(path) if (path := environment_files().get(stem)) else None
    if file is None or variant not in file.variants:
        return []
    types = hints(ALGORITHMS[file.algorithm(variant)])
    key = last.partition("=")[0]
    if "=" not in last:
        return [f"{name}=" for name in types]
    return [f"{key}={word}" for word in choices(types.get(key))]


def choices(hint: object) -> list[str]:
    """The words that a key takes, where these are all there are."""
    found = [word for member in members(hint) for word in (get_args(member) if get_origin(member) else ())]
    found += [False, True] if bool in members(hint) else []
    return [str(word).lower() for word in found if isinstance(word, str | int)]


def files(last: str) -> list[str]:
    return [f"{name}/" if os.path.isdir(name) else name for name in glob.glob(f"{glob.escape(last)}*")]


def run(argv: list[str]) -> int:
    """main, silent where what is being typed makes no sense yet: a shell has no line to show that in."""
    try:
        return main(argv)
    except UserError:
        if "--line" in argv:
            return 1
        raise


if __name__ == "__main__":
    entry.run(run)
