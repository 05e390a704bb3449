"""docs/export.md, typed by a machine: its commands in their order, its Python where there is no Stride."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import run_command

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.M | re.S)


@pytest.mark.slow
def test_everything_on_the_page_works(tmp_path):
    pytest.importorskip("onnxruntime", reason="needs pip install 'stride-rl[export]'")
    blocks = BLOCK.findall((ROOT / "docs" / "export.md").read_text())
    assert [kind for kind, _ in blocks] == ["sh", "python", "sh", "python", "python"]
    said = [line for block in blocks for line in carried_out(tmp_path, *block)]
    text = "\n".join(said)
    assert text.count("verified   at most") == 3 and text.count("; all actions equal") == 3 and "torch 0." in text
    assert "CartPole-v1 Box(" in text and '"env_id": "CartPole-v1"' in text and "torch.Size([3, 2])" in text
    assert re.search(r"^2 \[[01]\] \[\[", text, re.M)


def carried_out(folder, kind, text):
    """What a block says when it is typed in this folder."""
    if kind == "python":
        yield from done(folder, [sys.executable, "-I", "-W", "ignore", "-c", text])
    else:
        for line in text.splitlines():
            words = shlex.split(line)
            given = {"python": words[1:], "stride": ["-m", *words]}.get(words[0])
            yield from python(folder, given) if given else done(folder, words)


def done(folder, words):
    ended = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, f"{words}\n{ended.stdout}{ended.stderr}"
    return ended.stdout.splitlines()


def python(folder, words):
    """A command of the project, from another folder than its own."""
    words = [str(ROOT / words[0]), *words[1:]] if words[0] == "train.py" else words
    env = {**os.environ, "STRIDE_RUNS": str(folder / "runs"), "PYTHONPATH": str(ROOT)}
    ended = run_command(*words, cwd=folder, env=env, timeout=900)
    assert ended.returncode == 0, f"{words}\n{ended.stdout}{ended.stderr}"
    return ended.stdout.splitlines()
