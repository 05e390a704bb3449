"""torch's compiler is not loaded by a training that does not compile; who compiles gets all of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILED = """
import sys
import stride.utils.late_dynamo
import lightning as L
import torch
from lightning.fabric.wrappers import OptimizedModule, _unwrap_compiled
from torch.optim import Adam, Optimizer

def loaded():
    return "torch._dynamo" in sys.modules

def trained(compiled):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = Adam(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    assert loaded() or not compiled
    def step(x):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    for _ in range(3):
        (torch.compile(step, backend="eager") if compiled else step)(torch.ones(3, 4))
    return model.weight.detach()

model = torch.nn.Linear(2, 2)
assert not loaded() and "sympy" not in sys.modules and not isinstance(model, OptimizedModule)
Adam(model.parameters()).state_dict()
assert not loaded()
plain = trained(False)
assert loaded()  # the step of torch's own optimizer asks for it
import torch._dynamo
assert torch._dynamo.__file__ and torch._dynamo.config and torch._dynamo.is_compiling() is False
assert not any("StandIn" in type(module).__name__ for module in [*sys.modules.values()])
assert torch.allclose(plain, trained(True))
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
import stride.utils.late_dynamo
import torch
import lightning.pytorch
assert "torch._dynamo" in sys.modules and sys.modules["torch._dynamo"].__file__
assert isinstance(torch.compile(torch.nn.Identity()), lightning.pytorch.seen)
print("whole")
"""
SCIPY = """
import sys
{before}
import stride.utils.late_dynamo
import lightning.pytorch, torchmetrics
loaded = sorted(name for name in sys.modules if name.partition(".")[0] == "scipy")
from scipy.signal import lfilter
import scipy.stats
assert sys.modules["scipy"].signal.lfilter is lfilter and scipy.stats.norm.cdf(0) == 0.5
print("loaded:", *loaded)
"""
WANTS_SCIPY = "from scipy.signal import lfilter\nfrom torch._dynamo import OptimizedModule"


def run(program, *path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT])), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=env, cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_who_compiles_gets_all_of_it():
    done = run(COMPILED)
    assert done.returncode == 0 and done.stdout.endswith("whole\n"), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "wanted",
    ["from torch._dynamo import explain, OptimizedModule as seen",
     "import torch._dynamo.config\nfrom torch._dynamo import OptimizedModule as seen"],
    ids=["a name", "a module"],
)  # fmt: skip
def test_a_lightning_that_wants_more_of_it_gets_it(tmp_path, wanted):
    (tmp_path / "lightning" / "pytorch").mkdir(parents=True)
    (tmp_path / "lightning" / "__init__.py").touch()
    (tmp_path / "lightning" / "pytorch" / "__init__.py").write_text(wanted)
    done = run(WANTS_MORE, tmp_path)
    assert done.returncode == 0 and done.stdout == "whole\n", done.stderr


@pytest.mark.slow
def test_lightning_loads_no_scipy_and_whoever_wants_it_gets_it(tmp_path):
    pytest.importorskip("scipy")
    done = run(SCIPY.format(before=""))
    assert (done.returncode, done.stdout) == (0, "loaded:\n"), done.stderr
    done = run(SCIPY.format(before="import scipy.special"))
    assert done.returncode == 0 and "scipy.signal" in done.stdout, done.stderr  # who had it first keeps it as it was
    (tmp_path / "lightning" / "pytorch").mkdir(parents=True)
    (tmp_path / "lightning" / "__init__.py").touch()
    (tmp_path / "lightning" / "pytorch" / "__init__.py").write_text(WANTS_SCIPY)
    done = run(SCIPY.format(before="").replace(", torchmetrics", ""), tmp_path)
    assert done.returncode == 0 and "scipy.signal" in done.stdout, done.stderr
