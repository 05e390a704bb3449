"""Words completed in real shells: typed into bash, zsh and fish at a terminal, Tab and all, as people do."""

import os
import pty
import select
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from stride.utils.places import module_of

ROOT = Path(__file__).resolve().parents[2]
INTERACTIVE = {"bash": ["bash", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"], "fish": ["fish", "--no-config", "-i"]}
BEGIN = {  # as the top of scripts/completion.py says
    "bash": 'eval "$(stride completion bash)"',
    "zsh": 'autoload -Uz compinit; compinit -u -D; eval "$(stride completion zsh)"',
    "fish": "stride completion fish | source",
}
STRIDE = """\
#!/bin/sh
if [ "$1" = completion ] || [ -n "$_ARGCOMPLETE" ]; then
  PYTHONPATH={root} exec {python} -m {module} "$@"
fi
printf '%s\\n' "$@" > {told}.part
mv {told}.part {told}
"""
LINES = [  # typed, with a Tab at the end; and the words that the command then gets
    ("stride ins", ["inspect"]),
    ("stride check-e", ["check-env"]),
    ("stride check-env --sec", ["check-env", "--seconds"]),
    ("stride export --onn", ["export", "--onnx"]),
    ("stride train CartPole-v1:ppo_l", ["train", "CartPole-v1:ppo_lstm"]),
    ("stride train CartPole-v1:ppo activation=ta", ["train", "CartPole-v1:ppo", "activation=tanh"]),
    ("stride play --run-id @la", ["play", "--run-id", "@last"]),
    ("stride publish --checkpoint=b", ["publish", "--checkpoint=best"]),
]


class Terminal:
    """A shell at a terminal, and what it showed."""

    def __init__(self, words, env):
        self.shown = b""
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            os.execvpe(words[0], words, env)

    def type(self, text, until, seconds=120.0):
        """Read what comes until the file is there."""
        os.write(self.end, text.encode())
        deadline = time.monotonic() + seconds
        while not until.exists():
            assert time.monotonic() < deadline, self.shown.decode(errors="replace")
            if select.select([self.end], [], [], 0.02)[0]:
                self.shown += os.read(self.end, 65536)

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.close(self.end)
        os.waitpid(self.pid, 0)


@pytest.mark.slow
@pytest.mark.parametrize("shell", INTERACTIVE)
def test_what_a_tab_makes_of_a_line(shell, tmp_path):
    if not shutil.which(shell):
        pytest.skip(f"wants {shell}")
    told, begun, program = tmp_path / "told", tmp_path / "begun", tmp_path / "bin" / "stride"
    program.parent.mkdir()
    given = {"root": ROOT, "python": sys.executable, "module": module_of("stride/__main__.py"), "told": told}
    program.write_text(STRIDE.format(**{name: shlex.quote(str(value)) for name, value in given.items()}))
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "STRIDE_RUNS": str(tmp_path)}
    env |= {"HOME": str(tmp_path), "TERM": "xterm", "COLUMNS": "80"}
    terminal = Terminal(INTERACTIVE[shell], env)
    try:
        terminal.type(f"{BEGIN[shell]}\rtouch {begun}\r", begun)
        for line, words in LINES:
            told.unlink(missing_ok=True)
            terminal.type(f"{line}\t\r", told)
            assert told.read_text().split() == words, line
    finally:
        terminal.close()
