"""Kernels are compiled once on a machine, elsewhere: cold and warm give the same weights, whoever waits is told so."""

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import run_command

from stride.agents.engines.fused_cpu import warm as warming
from stride.agents.engines.fused_cpu.warm import warm
from stride.agents.trained.loading import load_run
from stride.envs_fast import registry
from stride.utils.kernel_folder import FEATURES
from stride.utils.places import program
from stride.utils.user_error import UserError

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["max_timesteps=2048", "eval_freq_epochs=4", "eval_warmup_epochs=0", "eval_episodes=4"]
# of a processor of 2013, as Numba calls it
AVX2 = "+64bit,+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+bmi,+bmi2,+f16c"
LEFT_OUT = shutil.ignore_patterns(".*", "runs", "docs", "tests", "build", "__pycache__")
COUNTED = """
import os, sys
from numba.core import event
from stride.commands import train
here = os.getpid()
compiled = []
class Listener(event.Listener):
    def on_start(self, what): compiled.append(str(what.data["dispatcher"])) if os.getpid() == here else None
    def on_end(self, what): pass
event.register("numba:compile", Listener())
code = train.main(sys.argv[1:])
print("COMPILED:", *compiled)
sys.exit(code)
"""


def begin(cache, runs, *words, variant="CartPole-v1:ppo", **environment):
    """train.py with a kernel cache of its own."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "STRIDE_RUNS": str(runs), "OMP_NUM_THREADS": "1", **environment}
    command = [*program("train"), variant, *SMALL, *words]
    return subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process):
    said = process.communicate(timeout=1200)[0]
    assert process.returncode == 0, said
    return said


def free(lock):
    with open(lock) as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def weights(runs):
    (run,) = (path for path in runs.iterdir() if (path / "config.json").is_file() and not path.is_symlink())
    state = load_run(str(run), "last").agent.policy.state_dict()
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in state.values())).hexdigest()


@pytest.fixture(scope="module")
def cold(tmp_path_factory):
    """Two trainings that begin at once with nothing compiled."""
    folder = tmp_path_factory.mktemp("cold")
    both = [begin(folder / "cache", folder / f"runs{i}") for i in range(2)]
    said = [ended(process) for process in both]
    return SimpleNamespace(folder=folder, said=said, weights=[weights(folder / f"runs{i}") for i in range(2)])


@pytest.mark.slow
def test_of_two_cold_processes_one_compiles_and_the_other_says_that_it_waits(cold):
    first, second = sorted(cold.said, key=lambda said: "waiting for another process" in said)
    assert "compiling kernels for CartPole-v1" in first and "compiled in" in first
    assert "waiting for another process that compiles kernels" in second and "compiling kernels" not in second
    assert cold.weights[0] == cold.weights[1]


@pytest.mark.slow
def test_a_warm_cache_gives_the_weights_of_a_cold_one(cold, tmp_path):
    said = ended(begin(cold.folder / "cache", tmp_path / "runs"))
    assert "compiling" not in said and "waiting" not in said
    assert weights(tmp_path / "runs") == cold.weights[0]
    other = ended(begin(cold.folder / "cache", tmp_path / "other", "seed=2"))
    assert "compiling" not in other and weights(tmp_path / "other") != cold.weights[0]


@pytest.mark.slow
def test_what_trains_compiles_nothing_itself(cold):
    cache = cold.folder / "cache"
    (stamp,) = cache.glob("*/*.ready")
    kernels = [*cache.rglob("*.nbi")]
    assert len(kernels) > 30
    assert [path.name for path in kernels if path.stat().st_mtime > stamp.stat().st_mtime] == []


@pytest.mark.slow
def test_a_body_whose_own_steps_are_tried_first_has_these_weights_too(cold, tmp_path):
    pytest.importorskip("mujoco", reason="pip install 'stride-rl[mujoco]'")
    shutil.copytree(cold.folder / "cache", tmp_path / "cache")
    kinds = {"variant": "InvertedPendulum-v5:ppo"}
    said = [ended(begin(tmp_path / "cache", tmp_path / name, "n_envs=2", **kinds)) for name in ("cold", "warm")]
    assert "compiling kernels for InvertedPendulum-v5" in said[0] and "compiling" not in said[1]
    assert weights(tmp_path / "cold") == weights(tmp_path / "warm")


@pytest.mark.slow
def test_a_signal_ends_the_compiling_and_lets_others_begin(tmp_path):
    process = begin(tmp_path / "cache", tmp_path / "runs")
    assert any("compiling kernels" in line for line in process.stdout)  # below the first lines of the header
    deadline = time.monotonic() + 600
    while not [*(tmp_path / "cache").rglob("*.nbi")] and time.monotonic() < deadline:  # the first kernel
        time.sleep(0.05)
    (lock,) = (tmp_path / "cache").glob("*/compiling.lock")
    assert not free(lock)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=300)[0] == "stopped by Ctrl-C before there was anything to save\n"
    assert process.returncode == 130 and not [*(tmp_path / "cache").glob("*/*.ready")]
    assert free(lock), "a child that lived on would hold it"


def test_a_folder_that_cannot_be_written_is_named(monkeypatch):
    monkeypatch.setattr(warming, "FOLDER", Path("/proc/nowhere"))
    with pytest.raises(UserError, match=r"cannot store compiled kernels in /proc/nowhere: .*NUMBA_CACHE_DIR"):
        warm(registry.make("CartPole-v1", 1, seed=0), "ppo", "tanh", quiet=True)


@pytest.mark.slow
@pytest.mark.skipif("avx512f" not in FEATURES, reason="every test of kernels shows it on a processor with AVX2 alone")
def test_the_kernels_are_right_with_avx2_alone(tmp_path):
    """The block of another shape: gradients, updates, rollouts and threads, as on the processor we run on."""
    env = {**os.environ, "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": AVX2, "NUMBA_CACHE_DIR": str(tmp_path)}
    shape = "from stride.agents.engines.fused_cpu.kernels import lanes; print(lanes.ROWS, lanes.COLUMNS)"
    shown = subprocess.run([sys.executable, "-c", shape], env=env, cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["6", "1"]
    files = [f"tests/agents/test_{name}.py" for name in ("fused_cpu", "same_as_eager", "threads")]
    core = (
        "fused_cpu_on_policy and (CartPole or Pendulum) or fused_cpu and long or gym or was_learnt and fused and wide"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *files, "-m", "not slow", "-k", core]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("config", ["CartPole-v1:ppo", "CartPole-v1:dqn learning_starts=256"])
def test_a_copied_and_moved_clone_compiles_nothing(tmp_path, config):
    env = {**os.environ, "STRIDE_RUNS": str(tmp_path / "runs"), "OMP_NUM_THREADS": "1"}
    words = [*config.split(), "max_timesteps=1024", "eval_freq_epochs=1", "eval_warmup_epochs=0", "eval_episodes=1"]
    shutil.copytree(ROOT, tmp_path / "copy", ignore=LEFT_OUT)
    first = run_command("train.py", *words, cwd=tmp_path / "copy", env=env)  # may compile
    assert first.returncode == 0, first.stderr
    (tmp_path / "copy").rename(tmp_path / "moved")
    (tmp_path / "moved" / "counted.py").write_text(COUNTED)
    done = run_command("counted.py", *words, cwd=tmp_path / "moved", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rpartition("COMPILED:")[2].split() == []
    assert "compiling" not in done.stdout.rpartition("COMPILED:")[0]
