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


class Left(Exception):  # noqa: N818
    """In the place of the end of the process."""


@pytest.fixture
def completed(monkeypatch):
    """The words that a shell offers for a line."""

    def left(code):
        raise Left

    # it would take descriptor 9 for its own
    monkeypatch.setattr(argcomplete.CompletionFinder, "_init_debug_stream", lambda self: None)

    def words(line):
        output = io.StringIO()
        output.close = lambda: None
        asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SHELL": "fish", "COMP_TYPE": ""}
        asked |= {"_ARGCOMPLETE_SUPPRESS_SPACE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}
        for name, value in asked.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(Left):
            complete(left, output)
        return output.getvalue().split()

    return words


@pytest.mark.parametrize(
    ("line", "first", "among"),
    [
        ("stride tr", "train", {"train"}),
        ("stride train Cart", "CartPole-v1:dqn", {"CartPole-v1:ppo"}),
        ("stride train Frozen", "FrozenLake-v1:", {"FrozenLake8x8-v1:"}),
        ("stride train CartPole-v1:ppo_", "CartPole-v1:ppo_lstm", {"CartPole-v1:ppo_pixels"}),
        ("stride train CartPole-v1:ppo clip_", "clip_range=", {"clip_range_vf="}),
        ("stride train CartPole-v1:dqn clip_", None, set()),
        ("stride train CartPole-v1:ppo activation=", "activation=relu", {"activation=tanh"}),
        ("stride train CartPole-v1:ppo share_trunk=", "share_trunk=false", {"share_trunk=true"}),
        ("stride train --re", "--require-goal", {"--resume"}),
        ("stride train --gro", "--group", set()),
        ("stride train --nurs", None, set()),
        ("stride play --run-id @", "@best", {"@last"}),
        ("stride publish --checkpoint ", "best", {"last"}),
        ("stride list Cart", "CartPole-v1", {"CartPole-v1"}),
        ("stride completion ", "bash", {"fish", "zsh"}),
        ("stride completion bash ", None, set()),
        ("stride nonsense ", None, set()),
        ("stride check-env Frozen", "FrozenLake-v1", {"FrozenLake8x8-v1"}),
        ("stride check-env CartPole-v1 --se", "--seconds", set()),
        ("stride export @", "@best", {"@last"}),
        ("stride export @last --on", "--onnx", set()),
        ("stride play --run-id=@", "--run-id=@best", {"--run-id=@last"}),
        ("stride play --checkpoint=", "--checkpoint=best", {"--checkpoint=last"}),
        ("stride publish --dry-run --mes", "--message", set()),
        ("stride train CartPole-v1:ppo --seed ", None, set()),
        ("stride new --", "--help", set()),
    ],
)
def test_offered(completed, line, first, among):
    found = completed(line)
    assert ({first} if first else set()) | among <= {*found} and bool(found) == bool(first)


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


def test_half_a_word_that_makes_no_sense_says_nothing(completed):
    assert completed("stride train Nope-v1:ppo gam") == []


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
