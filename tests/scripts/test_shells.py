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
SHELLS = {  # how each is started, and how completion begins, as the top of scripts/completion.py says
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
    "ins": "inspect",
    "check-e": "check-env",
    "check-env --sec": "check-env --seconds",
    "export --onn": "export --onnx",
    "train CartPole-v1:ppo_l": "train CartPole-v1:ppo_lstm",
    "train CartPole-v1:ppo activation=ta": "train CartPole-v1:ppo activation=tanh",
    "play --run-id @la": "play --run-id @last",
    "publish --checkpoint=b": "publish --checkpoint=best",
}


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_what_a_tab_makes_of_a_line(shell, tmp_path):
    if not shutil.which(shell):
        pytest.skip(f"wants {shell}")
    start, begin = SHELLS[shell]
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
