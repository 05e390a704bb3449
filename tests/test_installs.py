"""Both ways to install, editable and as a wheel, typed in a folder that has nothing to do with the checkout."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
from installed import build, environment, install

from lab.notebooks import FOLDER, ORDER

ROOT = Path(__file__).resolve().parent.parent
QUICK = "engine=eager n_envs=2 n_steps=16 batch_size=32 max_timesteps=64 test_episodes=2 -q"
WALKER = """import gymnasium
from helper import WORLD
gymnasium.register("Walker-v0", WORLD, max_episode_steps=50)
"""
HELPER = 'WORLD = "gymnasium.envs.classic_control:CartPoleEnv"\n'
ALGORITHM = '''from dataclasses import dataclass
from stride.agents.ppo import PPO
from stride.config.schema import PPOConfig

@dataclass(frozen=True)
class Keys(PPOConfig):
    courage: float = 0.5
    """How bold."""

class NStep(PPO):
    config: Keys
'''
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
    "train in Python": "python -c 'import stride; stride.train(\"walker:Walker-v0:ppo\", max_timesteps=64, n_envs=2, "
    "n_steps=16, batch_size=32, engine=\"eager\", test_episodes=2)'",
}  # fmt: skip

FEWER = {"seed=3)": "seed=3, max_timesteps=2048)", "max_timesteps=40_000, seed=1": "max_timesteps=2048, seed=1",
         "--seed 1,2,3,4,5 max_timesteps=12_000": "--seed 1,2 max_timesteps=2048"}  # fmt: skip


@pytest.fixture(scope="module", params=["editable", "wheel"])
def place(request, tmp_path_factory):
    """A folder with modules of one's own, beside an environment with Stride, its dependencies this one's."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "wheel":
        install(build(folder / "wheel"), folder / "venv")
    else:
        python = environment(folder / "venv")
        words = "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps", "--editable"
        subprocess.run([python, *words, ROOT], check=True)
    (folder / "mine").mkdir()
    texts = {"walker": WALKER, "helper": HELPER, "nstep": ALGORITHM}
    for name, text in texts.items():
        (folder / "mine" / f"{name}.py").write_text(text)
    typed(folder, f"stride train walker:Walker-v0:ppo {QUICK}")
    return folder


def typed(place, line, cwd="mine"):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"STRIDE_RUNS": str(place / "runs"), "XDG_STATE_HOME": str(place / "state")}
    env |= {"PATH": f"{place / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(shlex.split(line), cwd=place / cwd, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_every_word_finds_ones_own_modules_where_one_stands(place, call):
    said = typed(place, CALLS[call])
    assert "Traceback" not in said
    if call == "help of an algorithm":
        assert "How bold." in said


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDER)
def test_the_first_cells_of_the_notebooks(place, name):
    """Up to the first training or loaded run, by the interpreter in an empty folder, as Jupyter would."""
    (place / "notebooks").mkdir(exist_ok=True)
    lines = ["import os"]
    for cell in json.loads((FOLDER / f"{name}.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            lines += ("".join(cell["source"]) + "\n").splitlines()
            if "stride." in lines[-1]:
                break
    code = "\n".join(f'assert os.system(f"{line[1:]}") == 0' if line.startswith("!") else line for line in lines)
    for whole, part in FEWER.items():
        code = code.replace(whole, part)
    assert "2048" in code
    typed(place, f"python -c {shlex.quote(code)}", "notebooks")
