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


def run(program, *path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT])), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(words, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
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
    assert run(COMPILED).endswith("whole\n")


@pytest.mark.slow
@pytest.mark.parametrize("wanted", ["from torch._dynamo import explain", "import torch._dynamo.config"])
def test_a_lightning_that_wants_more_of_it_gets_it(tmp_path, wanted):
    code = f"{wanted}\nfrom torch._dynamo import OptimizedModule as seen"
    assert run(WANTS_MORE, lightning_of(tmp_path, code)) == "whole\n"


@pytest.mark.slow
def test_lightning_loads_no_scipy_and_whoever_wants_it_gets_it(tmp_path):
    pytest.importorskip("scipy")
    assert run(SCIPY.format(before="")) == "loaded:\n"
    assert "scipy.signal" in run(SCIPY.format(before="import scipy.special")), "who had it first keeps it as it was"
    wants = lightning_of(tmp_path, "from scipy.signal import lfilter\nfrom torch._dynamo import OptimizedModule")
    assert "scipy.signal" in run(SCIPY.format(before="").replace(", torchmetrics", ""), wants)
