"""The wheel, used in a folder whose own utils, config, agents and scripts come first."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import urllib.request
import zipfile
from pathlib import Path

import pytest
from installed import build, environment, install

ROOT = Path(__file__).resolve().parent.parent
QUICK = ["engine=eager", "n_envs=2", "n_steps=16", "batch_size=32", "test_episodes=2"]
SHADOWS = ("utils.py", "config/__init__.py", "agents/__init__.py", "scripts/__init__.py", "train.py", "stride.py")
SHADOW = "raise ImportError('mine, and nobody else is to import it')\n"
IN_WHEEL = ("tests/config", "tests/test_own_project.py", "tests/test_plugins.py", "tests/utils/test_quick_start.py")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with sdist and wheel."""
    folder = tmp_path_factory.mktemp("built")
    build(folder / "sdist", "sdist").rename(folder / "stride.tar.gz")
    wheel = build(folder / "wheel")
    return wheel.rename(folder / wheel.name).parent


@pytest.fixture(scope="module")
def place(built, tmp_path_factory):
    """A folder with modules of one's own, beside an environment with the wheel, its dependencies this one's."""
    folder = tmp_path_factory.mktemp("place")
    [wheel] = built.glob("*.whl")
    install(wheel, folder / "venv")
    for name in SHADOWS:
        (folder / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "mine" / name).write_text(SHADOW)
    return folder


def path_of(place):
    return f"{place / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"


def typed(place, line, cwd="mine", code=0):
    env = {name: value for name, value in os.environ.items() if name not in ("STRIDE_RUNS", "PYTHONPATH")}
    env |= {"VIRTUAL_ENV": str(place / "venv"), "PATH": path_of(place)}
    done = subprocess.run(shlex.split(line), cwd=place / cwd, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.slow
def test_one_name_is_installed(built):
    [wheel], [sdist] = built.glob("*.whl"), built.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"stride", "stride_rl"}
    assert wheel.stat().st_size < 2e6 and {
        "stride/config/bands.json",
        "stride/py.typed",
        "stride/template/env.py.txt",
    } <= {*names}
    # what the sdist holds makes the same wheel
    subprocess.run(["tar", "xzf", sdist, "-C", built], check=True)
    [unpacked] = built.glob("stride_rl-*/")
    one, other = (zipfile.ZipFile(path) for path in (wheel, build(built / "again", checkout=unpacked)))
    assert one.namelist() == other.namelist() and all(one.read(name) == other.read(name) for name in names)


@pytest.mark.slow
def test_train_play_resume_publish_and_load_beside_modules_of_the_same_names(place):
    assert "did you mean train?" in typed(place, "stride trian", code=2)
    help_text = typed(place, "stride --help")
    assert all(f"  {name} " in help_text for name in ("train", "play", "inspect", "publish", "list", "new", "schema"))
    typed(place, f"stride train CartPole-v1:ppo env_backend=gym max_timesteps=64 --seed 1,2 {' '.join(QUICK)}")
    runs = sorted((place / "mine" / "runs").glob("2*"))
    facts = json.loads((runs[0] / "config.json").read_text())
    assert len(runs) == 2 and facts["command"].startswith("stride train CartPole-v1:ppo") and facts["git_hash"] == ""
    assert "python" not in (runs[0] / "report.md").read_text().partition("## Versions")[0].replace("| python |", "")
    typed(place, "stride train --resume @last max_timesteps=128 -q")
    assert '"episodes": 2' in typed(place, "stride play --headless --episodes 2 --json")
    assert "nothing was sent" in typed(place, "stride publish --dry-run card")
    assert "stride play --run-id hub:" in (place / "mine" / "card" / "README.md").read_text()
    code = "import stride; agent = stride.load('@last').agent; print(agent.act([0, 0, 0, 0.1]))"
    assert typed(place, f"python -P -c {shlex.quote(code)}").strip() in ("0", "1")
    keys = ", ".join(QUICK).replace("=eager", "='eager'")
    code = f"import stride; run = stride.train('CartPole-v1:ppo', max_timesteps=64, {keys}); "
    code += "print(run.facts['command'], run.agent.predict([[0, 0, 0, 0.1]]).shape)"
    said = typed(place, f"python -P -c {shlex.quote(code)}")
    assert re.search(r"^stride train CartPole-v1:ppo .* \(1,\)$", said, re.M)


@pytest.mark.slow
def test_a_new_project_in_the_wheel(place):
    said = typed(place, "stride new walker")
    assert "stride train Walker-v0:ppo" in said
    typed(place, f"stride train Walker-v0:ppo max_timesteps=64 -q {' '.join(QUICK)}", "mine/walker")
    assert len([*(place / "mine" / "walker" / "runs").glob("2*")]) == 1
    assert "Walker-v0:ppo" in typed(place, "stride list walk", "mine/walker")


@pytest.mark.slow
def test_the_inspector_serves_its_page(place):
    env = {**os.environ, "STRIDE_RUNS": str(place / "mine" / "runs")}
    command = [place / "venv" / "bin" / "stride", "inspect", "--port", "0"]
    with subprocess.Popen(command, cwd=place / "mine", env=env, stdout=subprocess.PIPE, text=True) as served:
        try:
            address = next(word for line in served.stdout for word in line.split() if word.startswith("http"))
            with urllib.request.urlopen(address, timeout=60) as page:
                assert b"stride" in page.read().lower()
        finally:
            served.send_signal(signal.SIGINT)


@pytest.mark.slow
def test_import_is_quick_and_loads_nothing_heavy(place):
    code = "import sys, stride; print(sorted({'torch', 'numpy', 'numba', 'yaml', 'rich'} & {*sys.modules}))"
    assert typed(place, f"python -P -c {shlex.quote(code)}").strip() == "[]"
    code = "import sys; import stride.__main__; print('torch' in sys.modules)"
    assert typed(place, f"python -P -c {shlex.quote(code)}").strip() == "False"


@pytest.mark.slow
def test_the_readmes_first_lines_for_pip(tmp_path):
    """Typed by bash into an empty environment, in a folder that has a utils.py of its own."""
    [block] = re.findall(r"^```\n(pip wheel .*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert [line.split()[0] for line in block.splitlines()] == ["pip", "stride", "stride", "eval"]
    environment(tmp_path / "venv")
    (tmp_path / "utils.py").write_text(SHADOW)
    env = {name: value for name, value in os.environ.items() if name not in ("STRIDE_RUNS", "PYTHONPATH")}
    env |= {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PATH": path_of(tmp_path)}  # 0: none is made
    script = block.replace("path/to/stride", shlex.quote(str(ROOT))) + "complete -p stride\n"
    done = subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "solved: goal reached" in done.stdout and "_python_argcomplete stride" in done.stdout.splitlines()[-1]
    assert len([*(tmp_path / "walker" / "runs").glob("2*")]) == 1


@pytest.mark.slow
def test_fast_tests_pass_in_the_wheel(place, tmp_path):
    """Some of them, copied to where there is no checkout; they import what the wheel has installed."""
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PATH": path_of(place)}
    words = [place / "venv" / "bin" / "python", "-P", "-m", "pytest", "-n", "0", "-m", "not slow", *IN_WHEEL]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and re.search(r"^[3-9]\d\d passed", done.stdout, re.M), done.stdout + done.stderr
