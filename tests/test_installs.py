"""Both ways to install, editable and as a wheel, typed in folders that have nothing to do with the checkout.

In the folder `own` are modules that the commands are to find, and others called as ours are, which nobody may import.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
QUICK = "engine=eager n_envs=2 n_steps=16 batch_size=32 max_timesteps=64 test_episodes=2 -q"
KEYS = "max_timesteps=64, n_envs=2, n_steps=16, batch_size=32, engine='eager', test_episodes=2"
FILES = {
    "own/helper.py": 'WORLD = "gymnasium.envs.classic_control:CartPoleEnv"\n',
    "own/walker.py": """import gymnasium
from helper import WORLD
gymnasium.register("Walker-v0", WORLD, max_episode_steps=50)
""",
    "own/nstep.py": '''from dataclasses import dataclass
from stride.agents.ppo import PPO
from stride.config.schema import PPOConfig

@dataclass(frozen=True)
class Keys(PPOConfig):
    courage: float = 0.5
    """How bold."""

class NStep(PPO):
    config: Keys
''',
}
SHADOW = "raise ImportError('mine, and nobody else is to import it')\n"
SHADOWS = ["own/utils.py", "own/train.py", *(f"own/{name}/__init__.py" for name in ("config", "agents", "scripts"))]
FILES |= dict.fromkeys((*SHADOWS, "other/stride.py", "other/utils.py"), SHADOW)
CALLS = {
    "train, seeds": f"stride train walker:Walker-v0:ppo {QUICK} --seed 1,2",
    "play": "stride play --headless --episodes 2 --json",
    "resume": "stride train --resume @last -q --max-timesteps 96",
    "check-env": "stride check-env walker:Walker-v0 --seconds 1",
    "help of an algorithm": "stride train CartPole-v1:nstep:NStep --help",
    "runs": "stride runs list",
    "export": "stride export @last --torch --out policy.pt2",
    "publish": "stride publish --dry-run card",
    "load": "python -c 'import stride; print(stride.load().agent.act([0, 0, 0, 0.1]))'",
    "load elsewhere": "python -c 'import os, stride; os.chdir(\"/\"); print(stride.load().agent.act([0, 0, 0, 0.1]))'",
    "train in Python": f"""python -c 'import stride; stride.train("walker:Walker-v0:ppo", {KEYS.replace("'", '"')})'""",
}
IN_WHEEL = ("tests/config", "tests/test_own_project.py", "tests/test_plugins.py", "tests/utils/test_quick_start.py")
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, f'build_{sys.argv[2]}')(sys.argv[1])"
OURS = ("stride_rl", "__editable__")
in_a_wheel = pytest.mark.parametrize("place", ["wheel"], indirect=True)
pytestmark = pytest.mark.slow


def build(folder: Path, kind: str = "wheel", checkout: Path = ROOT) -> Path:
    """The `wheel` or `sdist` of a checkout, made in an empty folder by the backend that pip would ask."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-c", BUILD, folder, kind], cwd=checkout, check=True, capture_output=True)
    [result] = folder.iterdir()
    return result


def environment(folder: Path) -> Path:
    """The Python of a new environment that has all that is installed here, pip included, but not this project."""
    venv.create(folder, with_pip=False)
    (libraries := folder / "libraries" / "site-packages").mkdir(parents=True)  # so that blame.py sees libraries
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(OURS) and path.suffix != ".pth":  # an editable installation is one of these
            (libraries / path.name).symlink_to(path)
    site = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(site, "libraries.pth").write_text(f"{libraries}\n")
    pip = folder / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec {folder}/bin/python -m pip "$@"\n')
    pip.chmod(0o755)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=["editable", "wheel"])
def place(request, wheel, tmp_path_factory):
    """A folder with modules of one's own, beside an environment with Stride, its dependencies this one's."""
    folder = tmp_path_factory.mktemp(request.param)
    what = [wheel] if request.param == "wheel" else ["--no-build-isolation", "--no-deps", "--editable", ROOT]
    command = environment(folder / "venv"), "-m", "pip", "install", "--quiet", "--no-index", *what
    subprocess.run(command, check=True)
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def trained(place):
    """The same where there is a run of a world of one's own."""
    typed(place, f"stride train walker:Walker-v0:ppo {QUICK}", "own")
    return place


def surroundings(place):
    """Variables with which the commands of that environment come first; runs lie in the folder `runs` of `place`."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"STRIDE_RUNS": str(place / "runs"), "XDG_STATE_HOME": str(place / "state")}
    return env | {"VIRTUAL_ENV": str(place / "venv"), "PATH": f"{place / 'venv' / 'bin'}{os.pathsep}{env['PATH']}"}


def typed(place, line, cwd, code=0, **variables):
    words, env = shlex.split(line), surroundings(place) | variables
    done = subprocess.run(words, cwd=place / cwd, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def python(code):
    """A command for code that finds no module where one stands."""
    return f"python -P -c {shlex.quote(code)}"


# an editable installation differs by where modules are, so two words there are enough
@pytest.mark.parametrize(
    ("place", "call"),
    [*(("wheel", call) for call in CALLS), ("editable", "train, seeds"), ("editable", "load elsewhere")],
    indirect=["place"],
)
def test_every_word_finds_ones_own_modules_where_one_stands(trained, call):
    text = typed(trained, CALLS[call], "own")
    assert "Traceback" not in text
    assert call != "help of an algorithm" or "How bold." in text


def test_one_name_is_installed_and_an_sdist_makes_the_same_wheel(wheel, tmp_path):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"stride", "stride_rl"}
    assert {"stride/config/bands.json", "stride/py.typed", "stride/template/env.py.txt"} <= {*names}
    assert wheel.stat().st_size < 2e6
    shutil.unpack_archive(build(tmp_path / "sdist", "sdist"), tmp_path / "unpacked", filter="data")
    [checkout] = (tmp_path / "unpacked").iterdir()
    one, other = (zipfile.ZipFile(path) for path in (wheel, build(tmp_path / "again", checkout=checkout)))
    assert other.namelist() == names and all(one.read(name) == other.read(name) for name in names)


@in_a_wheel
def test_commands_and_runs_know_of_no_checkout(place):
    other = {"cwd": "other", "STRIDE_RUNS": ""}
    assert "did you mean train?" in typed(place, "stride trian", code=2, **other)
    commands = {*re.findall(r"^  (\S+) ", typed(place, "stride --help", **other), re.M)}
    assert {"train", "play", "inspect", "publish", "list", "new", "schema"} <= commands
    code = f"import stride; print(stride.train('CartPole-v1:ppo', {KEYS}).agent.predict([[0, 0, 0, 0.1]]).shape)"
    assert typed(place, python(code), **other).endswith("(1,)\n")
    [run] = (place / "other" / "runs").glob("2*")
    facts = json.loads((run / "config.json").read_text())
    assert facts["command"].startswith("stride train CartPole-v1:ppo") and facts["git_hash"] == ""
    assert "python" not in (run / "report.md").read_text().partition("## Versions")[0].replace("| python |", "")
    assert "nothing was sent" in typed(place, "stride publish --dry-run card", **other)
    assert "stride play --run-id hub:" in (place / "other" / "card" / "README.md").read_text()


@in_a_wheel
def test_the_inspector_serves_its_page(place):
    command = [place / "venv" / "bin" / "stride", "inspect", "--port", "0"]
    options = {"cwd": place / "own", "env": surroundings(place), "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **options) as server:
        try:
            address = next(word for line in server.stdout for word in line.split() if word.startswith("http"))
            with urllib.request.urlopen(address, timeout=300) as page:
                assert b"stride" in page.read().lower()
        finally:
            server.send_signal(signal.SIGINT)


def test_the_readmes_first_lines_for_pip(tmp_path):
    """Typed by bash into an empty environment, in a folder that has a utils.py of its own."""
    [block] = re.findall(r"^```\n(pip wheel .*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert [line.split()[0] for line in block.splitlines()] == ["pip", "stride", "stride", "eval"]
    environment(tmp_path / "venv")
    (tmp_path / "utils.py").write_text(SHADOW)
    script = block.replace("path/to/stride", shlex.quote(str(ROOT))) + "complete -p stride\n"
    variables = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "STRIDE_RUNS": ""}  # 0: none is made
    text = typed(tmp_path, f"bash -ec {shlex.quote(script)}", tmp_path, **variables)
    assert "solved: goal reached" in text and "_python_argcomplete stride" in text
    assert len([*(tmp_path / "walker" / "runs").glob("2*")]) == 1


@pytest.mark.soak
@in_a_wheel
def test_fast_tests_pass(place, tmp_path):
    """Some of them, copied to where there is no checkout; they import what the wheel has installed."""
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    text = typed(place, f'python -P -m pytest -n 0 -m "not slow" {" ".join(IN_WHEEL)}', tmp_path, STRIDE_RUNS="")
    assert re.search(r"^[2-9]\d\d passed", text, re.M), text
