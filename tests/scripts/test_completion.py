"""What a shell offers after what was typed."""

import io
import subprocess
import sys
from pathlib import Path

import argcomplete
import pytest

from stride.commands.completion import BUILDERS, SHELLS, complete, main
from stride.commands.usage import COMMANDS
from stride.utils.places import PROJECT

ROOT = Path(__file__).resolve().parents[2]


class LeftError(Exception):
    """In the place of the end of the process."""


@pytest.fixture
def completed(monkeypatch):
    """The words that a shell offers for a line."""

    def leave(code):
        raise LeftError

    # it would take descriptor 9 for its own
    monkeypatch.setattr(argcomplete.CompletionFinder, "_init_debug_stream", lambda self: None)

    def words(line):
        output = io.StringIO()
        output.close = lambda: None
        asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SHELL": "fish", "COMP_TYPE": ""}
        asked |= {"_ARGCOMPLETE_SUPPRESS_SPACE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}
        for name, value in asked.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(LeftError):
            complete(leave, output)
        return output.getvalue().split()

    return words


# what is typed after `stride`, and some of what is offered
OFFERED = """
tr > train
train Cart > CartPole-v1:dqn CartPole-v1:ppo
train Frozen > FrozenLake-v1: FrozenLake8x8-v1:
train CartPole-v1:ppo_ > CartPole-v1:ppo_lstm CartPole-v1:ppo_pixels
train CartPole-v1:ppo clip_ > clip_range= clip_range_vf=
train CartPole-v1:dqn clip_ >
train CartPole-v1:ppo activation= > activation=relu activation=tanh
train CartPole-v1:ppo share_trunk= > share_trunk=false share_trunk=true
train --re > --require-goal --resume
train --gro > --group
train --nurs >
play --run-id @ > @best @last
publish --checkpoint  > best last
list Cart > CartPole-v1
completion  > bash fish zsh
completion bash  >
nonsense  >
check-env Frozen > FrozenLake-v1 FrozenLake8x8-v1
check-env CartPole-v1 --se > --seconds
export @ > @best @last
export @last --on > --onnx
play --run-id=@ > --run-id=@best --run-id=@last
play --checkpoint= > --checkpoint=best --checkpoint=last
publish --dry-run --mes > --message
train CartPole-v1:ppo --seed  >
train Nope-v1:ppo gam >
new -- > --help
"""


@pytest.mark.parametrize("case", OFFERED.strip().splitlines())
def test_offered(completed, case):
    line, _, words = case.partition(" >")
    offered = completed(f"stride {line}")
    assert {*words.split()} <= {*offered} and bool(offered) == bool(words)


def test_every_command_that_parses_words_completes_its_flags(completed):
    """A command that has a function `build_..parser` is listed in BUILDERS."""
    files = (PROJECT / "stride" / "commands").glob("*.py")
    assert sum(path.read_text().count("\ndef build_") for path in files) == len(BUILDERS)
    for name in {command.name for command in COMMANDS} & BUILDERS.keys():
        assert "--help" in completed(f"stride {name} --h")
        assert len(completed(f"stride {name} --")) > 1 or len(completed(f"stride {name} ")) > 1, "flags, or words below"


def test_files_are_offered_where_one_is_meant(completed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "more").mkdir()
    assert sorted(completed("stride train --config m")) == ["mine.yaml", "more/"]


def test_what_is_printed_is_for_the_shell_that_was_named(capsys):
    for shell in SHELLS:
        assert main([shell]) == 0
        printed = capsys.readouterr().out
        assert "stride" in printed and ("complete --command" in printed) == (shell == "fish")


def test_a_tab_loads_no_torch():
    code = "import sys; from stride.commands.completion import parser_of_line; parser_of_line(['stride', 'train']); "
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
