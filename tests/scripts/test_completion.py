"""What a shell offers after what was typed; and in real shells what a Tab makes of it, as people press it."""

import io
import os
import pty
import select
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path

import argcomplete
import pytest

from stride.commands.completion import BUILDERS, complete
from stride.commands.usage import COMMANDS
from stride.utils.places import PROJECT, module_of

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
train CartPole-v1:ppo_ > CartPole-v1:ppo_lstm CartPole-v1:ppo_pixels
train CartPole-v1:ppo clip_ > clip_range= clip_range_vf=
train CartPole-v1:dqn clip_ >
train CartPole-v1:ppo activation= > activation=relu activation=tanh
train --re > --require-goal --resume
train --nurs >
play --run-id @ > @best @last
publish --checkpoint  > best last
list Cart > CartPole-v1
completion  > bash fish zsh
completion bash  >
nonsense  >
check-env Frozen > FrozenLake-v1 FrozenLake8x8-v1
export @last --on > --onnx
play --run-id=@ > --run-id=@best --run-id=@last
play --checkpoint= > --checkpoint=best --checkpoint=last
train CartPole-v1:ppo --seed  >
train Nope-v1:ppo gam >
new -- > --help
"""


@pytest.mark.parametrize("case", OFFERED.strip().splitlines())
def test_offered(completed, case):
    line, _, words = case.partition(" >")
    offered = completed(f"stride {line}")
    assert {*words.split()} <= {*offered} and bool(offered) == bool(words)


def test_every_command_completes_its_flags_and_files_where_one_is_meant(completed, tmp_path, monkeypatch):
    """A command that has a function `build_..parser` is listed in BUILDERS."""
    files = (PROJECT / "stride" / "commands").glob("*.py")
    assert sum(path.read_text().count("\ndef build_") for path in files) == len(BUILDERS)
    for name in {command.name for command in COMMANDS} & BUILDERS.keys():
        assert "--help" in completed(f"stride {name} --h")
        assert len(completed(f"stride {name} --")) > 1 or len(completed(f"stride {name} ")) > 1, "flags, or words below"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "more").mkdir()
    assert sorted(completed("stride train --config m")) == ["mine.yaml", "more/"]


REAL = {  # how each is started, and how completion begins, as the top of scripts/completion.py says
    "bash": ("bash --norc -i", 'eval "$(stride completion bash)"'),
    "zsh": ("zsh -f -i", 'autoload -Uz compinit; compinit -u -D; eval "$(stride completion zsh)"'),
    "fish": ("fish --no-config -i", "stride completion fish | source"),
}
STRIDE = """\
#!/bin/sh
if [ "$1" = completion ] || [ -n "$_ARGCOMPLETE" ]; then
  PYTHONPATH={root} exec {python} -m {module} "$@"
fi
printf '%s\\n' "$@" > {words}.part
mv {words}.part {words}
"""
LINES = {  # typed after `stride`, with a Tab at the end; and the words that the command then gets
    "ins": "inspect", "check-e": "check-env", "check-env --sec": "check-env --seconds", "export --onn": "export --onnx",
    "train CartPole-v1:ppo_l": "train CartPole-v1:ppo_lstm",
    "train CartPole-v1:ppo activation=ta": "train CartPole-v1:ppo activation=tanh",
    "play --run-id @la": "play --run-id @last", "publish --checkpoint=b": "publish --checkpoint=best",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("shell", REAL)
def test_what_a_tab_makes_of_a_line(shell, tmp_path):
    if not shutil.which(shell):
        pytest.skip(f"wants {shell}")
    start, begin = REAL[shell]
    words, begun, program = tmp_path / "words", tmp_path / "begun", tmp_path / "bin" / "stride"
    program.parent.mkdir()
    places = {"root": ROOT, "python": sys.executable, "module": module_of("stride/__main__.py"), "words": words}
    program.write_text(STRIDE.format(**{name: shlex.quote(str(value)) for name, value in places.items()}))
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    pid, end = pty.fork()
    if pid == 0:
        os.execvpe(start.split()[0], start.split(), {**env, "TERM": "xterm", "COLUMNS": "80"})
    printed = b""

    def type_until(text, file):
        """Read what comes until the file is there."""
        nonlocal printed
        os.write(end, text.encode())
        deadline = time.monotonic() + 120
        while not file.exists():
            assert time.monotonic() < deadline, printed.decode(errors="replace")
            if select.select([end], [], [], 0.02)[0]:
                printed += os.read(end, 65536)

    try:
        type_until(f"{begin}\rtouch {begun}\r", begun)
        for line, expected in LINES.items():
            words.unlink(missing_ok=True)
            type_until(f"stride {line}\t\r", words)
            assert words.read_text().split() == expected.split(), line
    finally:
        os.kill(pid, signal.SIGKILL)
        os.close(end)
        os.waitpid(pid, 0)
