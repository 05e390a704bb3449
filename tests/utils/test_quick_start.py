"""A command loads what it needs, torch's compiler only where something compiles, and leaves at once; what was
registered for its end is done all the same."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stride.agents.networks.policies import POLICIES
from stride.commands import train
from stride.commands.train_opening import answer_early, check_policy, policy_names
from stride.config.loader import load_config
from stride.utils import quick_start
from stride.utils.places import HOME

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = f"{HOME}/commands/"
# pages, pictures, trackers, peers, GPU, physics: none of them is needed to train CartPole
NOT_NEEDED = {
    "gradio", "fastapi", "starlette", "uvicorn", "httpx", "huggingface_hub", "safetensors", "playwright", "websockets",
    "wandb", "tensorboard", "tensorboardX", "mlflow", "pandas", "matplotlib", "sklearn", "av", "imageio",
    "moviepy", "pygame", "Box2D", "mujoco", "ale_py", "cv2", "stable_baselines3", "jax", "cupy", "torchvision",
    "pytest", "stride.inspector", "stride.publishing", "torch._dynamo", "sympy", "torch.utils.tensorboard",
    "scipy.signal", "scipy.sparse", "scipy.stats", "scipy.optimize", "scipy.spatial", "scipy.interpolate",
}  # fmt: skip
COMPILER = {"numba.np.linalg", "scipy.linalg"}  # nor these, once the kernels are stored: 50 MB
TRAINED = """
import gc; import sys; from stride.commands import train
assert gc.isenabled() and gc.get_freeze_count() > 100_000
assert train.main(["CartPole-v1:ppo", "-q", "max_timesteps=512", "eval_freq_epochs=1", "eval_warmup_epochs=0"]) == 0
print("LOADED:", *sys.modules)
"""
LEFT = """
import atexit; from stride.utils import quick_start
atexit.register(lambda: print("registered", flush=False))
print("said", end=" ")
quick_start.leave({code})
print("not reached")
"""


def run(program, *path, **environment):
    """This program in a process of its own, in which `path` goes before the project."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT])), **environment}
    words = [sys.executable, "-W", "ignore", "-c", program]
    return subprocess.run(words, env=env, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_training_imports_no_more_than_it_needs(tmp_path):
    loaded = loaded_by_training(tmp_path)
    if COMPILER & {*loaded}:  # the first run here compiles
        loaded = loaded_by_training(tmp_path)
    assert COMPILER & {*loaded} == set()
    assert {train.__name__, "torch", "stride.agents.ppo"} <= {*loaded}
    assert NOT_NEEDED & {*loaded, *(name.split(".")[0] for name in loaded)} == set()


def loaded_by_training(folder):
    done = run(TRAINED, STRIDE_RUNS=str(folder), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    return done.stdout.rpartition("LOADED: ")[2].split()


@pytest.mark.parametrize("code", [0, 3])
def test_leaving_does_what_was_registered_and_says_what_was_said(code):
    done = run(LEFT.format(code=code))
    assert (done.returncode, done.stdout, done.stderr) == (code, "said registered\n", "")


# loads torch, or takes a third of the time that such an answer may take
HEAVY = {"torch", "lightning", "numba", "gymnasium", "numpy", "gradio", "stride.inspector.app"}
YAML = {"hydra", "omegaconf"}  # which values are read with
AT_ONCE = [  # what is typed, its exit code, what is said
    ("train.py --help", 0, "Train an agent from a config."),
    ("train.py CartPole-v1:ppo --help", 0, "gae_lambda="),
    ("train.py --list-envs cart", 0, "CartPole-v1:ppo"),
    ("train.py CartPole-v1:ppo polic_lr=1", 2, "did you mean policy_lr"),
    ("train.py CartPol-v1:ppo -q", 2, "did you mean CartPole-v1"),
    ("train.py CartPole-v1:pp", 2, "no variant 'pp'"),
    ("train.py --sed 1", 2, "did you mean --seed"),
    ("run_play.py --help", 0, "Watch or measure a trained agent."),
    ("run_play.py --episode 3", 2, "did you mean --episodes"),
    ("run_publish.py --help", 0, "Publish"),
    ("run_inspect.py --help", 0, "Inspect runs"),
    ("train.py --resume nobody", 2, "no run 'nobody'"),
    *((f"run_{name}.py --run-id nobody", 2, "no run 'nobody'") for name in ("play", "publish", "inspect")),
]
VALUES = ["policy_lr=abc", "policy=mpl", "n_steps=0", "spec.goal=[", "max_timesteps=0", "engine=graphed"]
TYPED = """
import atexit, runpy, sys
sys.argv[:] = {words!r}
atexit.register(lambda: print("LOADED:", *sys.modules))
runpy.run_path({folder!r} + sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("words", "code", "said"), [*AT_ONCE, *((f"train.py CartPole-v1:ppo {word}", 2, "error: ") for word in VALUES)]
)
def test_what_needs_no_torch_is_said_without_it(tmp_path, words, code, said):
    done = run(TYPED.format(folder=COMMANDS, words=words.split()), STRIDE_RUNS=str(tmp_path))
    out, _, loaded = done.stdout.rpartition("LOADED:")
    assert done.returncode == code and said in (done.stderr if code else out), done.stderr
    assert code == 0 or (out == "" and len(done.stderr.splitlines()) == 1)
    needed = YAML if words.split()[-1] in VALUES else set()
    assert "stride.utils.quick_start" in loaded.split() and not ((HEAVY | YAML) - needed) & {*loaded.split()}


IMPORTS = {
    "a Tab": "from stride.commands.completion import parser_of_line; parser_of_line(['stride', 'train'])",
    "a loop of one's own": "import sys, stride; stride.MetricsFile(sys.argv[1]).close()",
    "a monitor": "import stride.commands.monitor",
}
RICH = {"rich.live", "rich.table", "stride.config.schema"}  # what a monitor's first screen does without


@pytest.mark.parametrize("name", IMPORTS)
def test_what_answers_at_once_loads_nothing_heavy(tmp_path, name):
    done = run(f"import sys; sys.argv[1:] = [{str(tmp_path)!r}]; {IMPORTS[name]}; print(*sys.modules)")
    assert not {"torch", *((HEAVY | RICH) if name == "a monitor" else ())} & {*done.stdout.split()}, done.stderr
    assert "stride" in done.stdout


OPENED = """
import sys
from stride.commands.train_opening import answer_early
code = answer_early({words!r})
print("LOADED:", *sys.modules)
"""


BUDGET = "100,000 env steps"
OPENINGS = {
    "CartPole-v1:ppo": ["CartPole-v1:ppo", f"goal    475 within {BUDGET}", "agent   ppo, seed 1"],
    "CartPole-v1:ppo --seed 3,5": ["CartPole-v1:ppo", f"goal    475 within {BUDGET}", "agent   ppo, seeds 3, 5"],
    "CartPole-v1:ppo spec.goal=null": ["CartPole-v1:ppo", f"budget  {BUDGET}", "agent   ppo, seed 1"],
    "CartPole-v1:ppo -q": [],
}


@pytest.mark.parametrize("words", OPENINGS)
def test_the_first_lines_stand_there_before_torch_is_loaded(tmp_path, words):
    done = run(OPENED.format(words=words.split()), STRIDE_RUNS=str(tmp_path))
    out, _, loaded = done.stdout.rpartition("LOADED:")
    assert [line.strip() for line in out.strip().splitlines()] == OPENINGS[words], done.stderr
    assert "stride.commands.train_opening" in loaded and not HEAVY - {"numpy"} & {*loaded.split()}


@pytest.mark.parametrize("goal", ["475", "null"])
def test_the_header_is_printed_once_and_says_the_same_in_two_parts(tmp_path, capfd, monkeypatch, goal):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    words = ["CartPole-v1:ppo", "max_timesteps=512", "eval_freq_epochs=null", f"spec.goal={goal}"]

    def header():
        lines = capfd.readouterr().out.partition("run     ")[0].splitlines()
        return sorted(line.strip() for line in lines if line.strip())

    assert train.command(words) == 0
    whole = header()
    assert answer_early(words) is None  # as a process of its own begins
    assert train.command(words) == 0
    parts = header()
    assert train.command(words) == 0
    within = " within 512 env steps"
    if goal == "null":  # what the environment says is not known at first
        parts.remove("budget  512 env steps")
        parts = sorted(line + within if line.startswith("goal") else line for line in parts)
    assert parts == whole == header() and any(within in line for line in parts)


def test_a_policy_that_is_refused_early_is_one_that_would_be_refused_late():
    ours = {name for name, recipe in POLICIES.items() if recipe.__module__ == "stride.agents.networks.policies"}
    assert {*policy_names()} == ours
    check_policy(replace(load_config("CartPole-v1", "ppo"), policy="mine", env_id="mine:World-v0"))  # it may bring it


EARLY_SIGNAL = """
import os, runpy, signal, sys
class Interruption:
    def find_spec(self, name, path=None, target=None):
        if name == "stride.commands.train_opening":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interruption())
runpy.run_module("stride.commands.train", run_name="__main__", alter_sys=True)
"""


def test_a_ctrl_c_among_the_first_imports_ends_it_without_a_traceback():
    ended = subprocess.run([sys.executable, "-c", EARLY_SIGNAL], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_a_terminal_is_told_what_it_waits_for_and_a_ctrl_c_ends_it_without_a_traceback(monkeypatch, capfd):
    told = []
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.print", lambda *words, **options: told.append((words, options["end"])))
    monkeypatch.setattr(signal, "signal", lambda number, handler: told.append(handler))
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.default_int_handler)
    quick_start.loading("wait")
    assert told == [(("wait",), ""), signal.SIG_DFL]
    quick_start.loaded()
    quick_start.loaded()
    assert told[2:] == [signal.default_int_handler, (("\r    ",), "\r")]


# ---- torch's compiler and torchmetrics


COMPILED = """
import sys
import stride.utils.lean_lightning
import lightning as L
import torch
from lightning.fabric.wrappers import OptimizedModule, _unwrap_compiled
from torch.optim import Adam, Optimizer

def loaded():
    return "torch._dynamo" in sys.modules

model = torch.nn.Linear(2, 2)
assert not loaded() and "sympy" not in sys.modules and not isinstance(model, OptimizedModule)
optimizer = Adam(model.parameters())
optimizer.state_dict()
assert not loaded()
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
assert loaded()  # the step of torch's own optimizer asks for it
torch.compile(Adam(model.parameters()).step, backend="eager")()
import torch._dynamo
assert torch._dynamo.__file__ and torch._dynamo.config and torch._dynamo.is_compiling() is False
assert not any("StandIn" in type(module).__name__ for module in [*sys.modules.values()])
compiled = torch.compile(model, backend="eager", fullgraph=True)
assert torch.equal(compiled(torch.ones(1, 2)), model(torch.ones(1, 2)))
assert isinstance(compiled, OptimizedModule) and not isinstance(model, OptimizedModule)
assert _unwrap_compiled(compiled)[0] is model
done = Optimizer.add_param_group.__wrapped__.__dict__["__dynamo_disable"]
assert done is not Optimizer.add_param_group.__wrapped__ and torch._dynamo.eval_frame.innermost_fn(done)

class Fitted(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def training_step(self, batch, number):
        loss = self.layer(batch).square().mean()
        return loss
    def configure_optimizers(self):
        return Adam(self.parameters())

settings = dict(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu",
                enable_model_summary=False)
trainer = L.Trainer(**settings)
trainer.fit(torch.compile(Fitted(), backend="eager"), torch.utils.data.DataLoader(torch.ones(4, 2)))
assert trainer.global_step == 8
print("whole")
"""
WANTS_MORE = """
import sys
import stride.utils.lean_lightning
import torch
import lightning.pytorch
assert "torch._dynamo" in sys.modules and sys.modules["torch._dynamo"].__file__
assert isinstance(torch.compile(torch.nn.Identity()), lightning.pytorch.seen)
print("whole")
"""
METRICS = """
import sys
import stride.utils.lean_lightning
import lightning.pytorch, torchmetrics
from torchmetrics import Metric, MetricCollection
assert torchmetrics.__version__ and MetricCollection([]) is not None
loaded = sorted(name for name in sys.modules if name.startswith(("torchmetrics.functional", "scipy", "torchvision")))
print("loaded:", *loaded)
{after}
assert issubclass(torchmetrics.SumMetric, Metric) and torchmetrics.functional.accuracy
assert "lean_lightning" not in type(torchmetrics).__module__
"""


def printed(program, *path):
    done = run(program, *path, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    return done.stdout


def lightning_of(folder, code):
    """A Lightning that is only this."""
    (folder / "lightning" / "pytorch").mkdir(parents=True)
    (folder / "lightning" / "__init__.py").touch()
    (folder / "lightning" / "pytorch" / "__init__.py").write_text(code)
    return folder


@pytest.mark.slow
def test_who_compiles_gets_all_of_it():
    assert printed(COMPILED).endswith("whole\n")


@pytest.mark.slow
@pytest.mark.parametrize("wanted", ["from torch._dynamo import explain", "import torch._dynamo.config"])
def test_a_lightning_that_wants_more_of_it_gets_it(tmp_path, wanted):
    code = f"{wanted}\nfrom torch._dynamo import OptimizedModule as seen"
    assert printed(WANTS_MORE, lightning_of(tmp_path, code)) == "whole\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "after", ["", "from torchmetrics.classification import BinaryAccuracy", "from torchmetrics import *"]
)
def test_lightning_loads_two_classes_of_torchmetrics_and_another_name_loads_the_rest(after):
    assert printed(METRICS.format(after=after)) == "loaded:\n"
