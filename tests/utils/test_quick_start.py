"""A command loads what it needs and leaves at once; what was registered for its end is done all the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# pages, pictures, trackers, peers, GPU, physics: none of them is needed to train CartPole
NOT_NEEDED = {
    "gradio", "fastapi", "starlette", "uvicorn", "httpx", "huggingface_hub", "safetensors", "playwright", "websockets",
    "wandb", "tensorboard", "tensorboardX", "mlflow", "pandas", "matplotlib", "scipy", "sklearn", "av", "imageio",
    "moviepy", "pygame", "Box2D", "mujoco", "ale_py", "cv2", "stable_baselines3", "jax", "cupy", "torchvision",
    "pytest", "inspector", "publishing", "torch._inductor.compile_fx", "torch.utils.tensorboard",
}  # fmt: skip
TRAINED = """
import gc, sys, train
assert gc.isenabled() and gc.get_freeze_count() > 100_000
assert train.main(["CartPole-v1:ppo", "-q", "max_timesteps=512", "eval_freq_epochs=1", "eval_warmup_epochs=0"]) == 0
print("LOADED:", *sys.modules)
"""
LEFT = """
import atexit, utils.quick_start
atexit.register(lambda: print("registered", flush=False))
print("said", end=" ")
utils.quick_start.leave({code})
print("not reached")
"""


def run(program, **environment):
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_a_training_imports_no_more_than_it_needs(tmp_path):
    done = run(TRAINED, STRIDE_RUNS=str(tmp_path), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.rpartition("LOADED: ")[2].split()
    assert {"train", "torch", "agents.ppo"} <= {*loaded}
    assert NOT_NEEDED & {*loaded, *(name.split(".")[0] for name in loaded)} == set()


@pytest.mark.parametrize("code", [0, 3])
def test_leaving_does_what_was_registered_and_says_what_was_said(code):
    done = run(LEFT.format(code=code))
    assert (done.returncode, done.stdout, done.stderr) == (code, "said registered\n", "")
