"""What a shell offers after what was typed; in bash, through the function that bash calls."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from config.commands.table import commands
from scripts.completion import PARSERS, SHELLS, completed, main
from utils.places import PROJECT, module_of

ROOT = Path(__file__).resolve().parents[2]


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
def test_offered(line, first, among):
    found = completed(line)
    assert found[:1] == ([first] if first else []) and among <= {*found}


def test_every_command_that_parses_words_completes_its_flags():
    """A command whose words config/commands reads is listed in PARSERS, and each line there is a parser."""
    read = {path.stem for path in (PROJECT / "config" / "commands").glob("*.py")} - {"__init__", "table"}
    builds = {name: place.partition(":")[0].rpartition(".")[2] for name, place in PARSERS.items()}
    assert {module for module in read if "def build_" in source(module)} <= {*builds.values()}
    for name in commands().keys() & builds.keys():
        assert "--help" in completed(f"stride {name} --h")
        assert len(completed(f"stride {name} --")) > 1 or len(completed(f"stride {name} ")) > 1, "flags, or words below"


def source(module):
    return (PROJECT / "config" / "commands" / f"{module}.py").read_text()


def test_files_are_offered_where_one_is_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "more").mkdir()
    assert completed("stride train --config m") == ["mine.yaml", "more/"]


def test_half_a_word_that_makes_no_sense_says_nothing(capsys):
    command = [sys.executable, "-m", "scripts.completion", "bash", "--line", "stride train Nope-v1:ppo gam"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.skipif(not shutil.which("bash"), reason="wants bash")
@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("stride ins", ["inspect"]),
        ("stride train CartPole-v1:pp", ["ppo", "ppo_lstm", "ppo_pixels"]),  # bash keeps what stands before the colon
        ("stride train CartPole-v1:ppo activation=t", ["tanh"]),
    ],
)
def test_bash(line, replies, tmp_path):
    module = module_of("scripts/completion.py")
    stand_in = f'stride() {{ (cd {shlex.quote(str(ROOT))} && {sys.executable} -m {module} "${{@:2}}"); }}'
    script = f"{stand_in}\n{SHELLS['bash']}\nCOMP_LINE={shlex.quote(line)}\nCOMP_POINT={len(line)}\n_stride\n"
    script += 'printf "%s\\n" "${COMPREPLY[@]}"\n'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == replies


def test_what_is_printed_is_for_the_shell_that_was_named(capsys):
    for shell in SHELLS:
        assert main([shell]) == 0
        assert capsys.readouterr().out.strip() == SHELLS[shell].strip()


def test_without_torch():
    code = (
        "import sys; from scripts.completion import completed as c; c('stride train C'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
