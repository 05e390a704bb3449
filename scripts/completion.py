"""Print what a shell needs to complete the words of `stride`:   eval "$(stride completion bash)"   in ~/.bashrc

zsh: the same line with zsh, in ~/.zshrc after compinit.   fish: stride completion fish | source
"""

import argparse
import glob
import os
from collections.abc import Callable, Iterable
from typing import get_args, get_origin

from config.commands.inspect import build_inspect_parser
from config.commands.play import build_play_parser
from config.commands.publish import build_publish_parser
from config.commands.table import commands
from config.commands.train import build_parser
from config.field_types import hints, members
from config.loader import environment_files
from config.schema import ALGORITHMS
from config.variants import EnvironmentFile
from scripts.usage import parser_of
from utils import entry
from utils.run_dir import list_runs
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
PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "train": build_parser, "play": build_play_parser, "inspect": build_inspect_parser, "publish": build_publish_parser,
}  # fmt: skip
RUN_FLAGS = {"--run-id", "--run_id", "--resume"}
FILE_FLAGS = {"--config", "--video", "--dry-run"}
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
    if not words:
        return commands()
    command, before = words[0], words[-1]
    if before in RUN_FLAGS:
        return ["@last", "@best", *(run.id for run in list_runs()[:NEWEST])]
    if before == "--checkpoint":
        return ["best", "last"]
    if before in FILE_FLAGS or command == "new":
        return files(last)
    if last.startswith("-"):
        return flags(PARSERS[command]()) if command in PARSERS else ()
    if command in ("train", "check-env"):
        env = next((word for word in words[1:] if ":" in word and "=" not in word), "")
        return keys(env, last) if env else environments(last)
    rest: dict[str, Iterable[str]] = {"list": environment_files(), "completion": SHELLS}
    return rest.get(command, ())


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
