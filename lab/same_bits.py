"""Runs the same trainings in two checkouts and compares their results to the last bit: did a code change change them?

    git clone -q . ../before && git -C ../before checkout -q HASH
    python -m lab.same_bits ../before                  every algorithm on every engine it has
    python -m lab.same_bits ../before --only dqn sac --threads 1 2 3

Each configuration is trained by both checkouts, with 1 thread and with 2. Then the checkout before makes half of the
training, and both resume it. Each training is `python train.py` of a checkout in its own process. The SHA-256 of the
last checkpoint's state (weights, optimizer, environments, counters) and of metrics.csv without its columns of wall time
must be equal. The rows of a replay memory are compared only by what was learnt from them, because their division into
files depends on the clock. Exit code 1: something differs.
"""

import csv
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from lab.bench.pairs import is_checkout
from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.provenance import PROJECT
from stride.utils.user_error import UserError

ROLLOUT = ("n_envs=4", "n_steps=16", "batch_size=32")
HOST_GPU = (
    "n_envs=4", "n_steps=8", "batch_size=16", "n_epochs=2", "hidden_dims=[16,16]", "max_episode_steps=20",
    "max_timesteps=320",
)  # fmt: skip
WORLD_MODEL = (
    "n_envs=4", "train_freq=16", "batch_size=16", "batch_length=6", "train_ratio=4", "buffer_size=1000",
    "learning_starts=100", "deter=16", "stoch=3", "width=16", "horizon=4", "max_timesteps=640",
)  # fmt: skip
PICTURES = ("obs=pixels", "resize_obs=36", "frame_stack=2", "policy=cnn", "max_timesteps=320")
REPLAY = ("train_freq=16", "gradient_steps=2", "batch_size=16", "buffer_size=2000", "learning_starts=100")
PRIORITISED = ("prioritised=true", "n_step=3", "replay_storage=memmap", "normalize_obs=true", "buffer_size=512")
CONFIGS: dict[str, tuple[str, ...]] = {  # name -> config, overrides; all other keys are as shipped
    "ppo fused": ("CartPole-v1:ppo", *ROLLOUT, "engine=fused_cpu", "normalize_obs=true", "normalize_reward=true"),
    "ppo eager": ("CartPole-v1:ppo", *ROLLOUT, "engine=eager", "policy_lr=lin_0.001", "clip_range=lin_0.2"),
    "ppo gym, gaussian": ("Pendulum-v1:ppo", *ROLLOUT, "engine=fused_cpu", "env_backend=gym", "normalize_obs=true"),
    "ppo lstm": ("CartPole-v1:ppo_lstm", "n_envs=4", "n_steps=16", "n_epochs=2"),
    "ppo workers": ("CartPole-v1:ppo", *ROLLOUT, "env_backend=gym", "workers=2"),
    "ppo gpu": ("CartPole-v1:ppo", *HOST_GPU, "engine=eager"),  # engine: fused_gpu, as PROGRAMS says
    "ppo cnn": ("CartPole-v1:ppo_pixels", "n_envs=2", "n_steps=8", "batch_size=8", "n_epochs=1", "max_timesteps=320"),
    "ppo dict, masks": ("Taxi-v4:ppo", *ROLLOUT, "max_episode_steps=20"),
    "reinforce fused": ("CartPole-v1:reinforce", "n_envs=4", "n_steps=16", "engine=fused_cpu"),
    "reinforce eager": ("CartPole-v1:reinforce", "n_envs=4", "n_steps=16", "engine=eager", "normalize_obs=true"),
    "dqn fused": ("CartPole-v1:dqn", *REPLAY, "engine=fused_cpu", "target_freq=160", "normalize_obs=true"),
    "dqn eager, memmap": ("CartPole-v1:dqn", *REPLAY, *PRIORITISED, "engine=eager"),
    "dqn pictures": ("CartPole-v1:dqn", *REPLAY, *PICTURES, "batch_size=8", "learning_starts=32"),
    "sac fused": ("Pendulum-v1:sac", *REPLAY, "engine=fused_cpu", "max_episode_steps=30"),
    "sac eager": ("Pendulum-v1:sac", *REPLAY, "engine=eager", "noise_correlation=0.5", "normalize_obs=true"),
    "td3 fused": ("Pendulum-v1:td3", *REPLAY, "engine=fused_cpu", "max_episode_steps=30", "actor_every=3"),
    "td3 eager": ("Pendulum-v1:td3", *REPLAY, *PRIORITISED, "noise_correlation=0.5"),
    "tqc fused": ("Pendulum-v1:tqc", *REPLAY, "engine=fused_cpu", "max_episode_steps=30"),
    "tqc eager": ("Pendulum-v1:tqc", *REPLAY, "engine=eager", "n_step=3", "normalize_obs=true"),
    "pqn": ("CartPole-v1:pqn", "n_envs=4", "n_steps=16", "batch_size=32"),
    "dreamer fused": ("CartPole-v1:dreamer", *WORLD_MODEL, "imagined_starts=8", "engine=fused_cpu"),
    "dreamer eager": ("CartPole-v1:dreamer", *WORLD_MODEL, "imagined_starts=8", "engine=eager"),
    "planet": ("CartPole-v1:planet", *WORLD_MODEL, "candidates=8", "elites=3"),
    "q_learning": ("FrozenLake-v1:q_learning", "n_envs=8", "n_steps=16", "visits_power=0.6"),
}
# train.py with environments and kernels of fused_gpu, which tests/host_kernels.py compiles for this processor
ON_HOST = """\
import sys
from importlib import import_module
from importlib.util import find_spec
from tests.host_kernels import compile_host

prefix = "stride." if find_spec("stride") and find_spec("stride.agents") else ""
chooser = "agents.engines.choice" if find_spec(prefix + "agents.engines.choice") else "agents.algorithms"
train = import_module("stride.commands.train" if prefix else "train")
algorithms, engine, backend, cuda_env, registry = (import_module(prefix + name) for name in (
    chooser, "agents.engines.fused_gpu.engine", "envs_gym.backend_fast", "envs_fast.cuda_env",
    "envs_fast.registry"))

def make(config, num_envs, device):
    world, limit = registry.WORLDS[config.env_id], config.max_episode_steps
    return cuda_env.CudaEnv(world, num_envs, limit, device, compile_host, **config.env_kwargs)

def choose(config, agent):
    return engine.fused_gpu(algorithms.RECIPES[type(agent)], agent, None, None)

backend.make, algorithms.choose_on_cpu = make, choose
sys.exit(train.command(sys.argv[1:]))
"""
PROGRAMS = {"ppo gpu": ("-c", ON_HOST)}  # all others: train.py
SHORT: tuple[str, ...] = ("max_timesteps=1280", "epoch_iterations=1", "log_freq_epochs=1", "test_episodes=4")
SHORT += ("eval_freq_epochs=5", "eval_episodes=4", "eval_warmup_epochs=0", "early_stop_on_eval_threshold=false")


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("before", type=Path, help="the checkout to compare with")
    parser.add_argument("now", type=Path, nargs="?", default=PROJECT, help="the other one (default: this)")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="configurations whose name begins so")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], metavar="N", help="threads to train with")
    options = parser.parse_args(argv)
    names = [name for name in CONFIGS if name.startswith(tuple(options.only))]
    if not names:
        raise UserError(f"no configuration begins with {' or '.join(options.only)}; there are {', '.join(CONFIGS)}")
    for checkout in (options.before, options.now):
        is_checkout(checkout)
    different = 0
    print("| configuration | threads | straight | half resumed | |\n|---|---|---|---|---|")
    for name in names:
        for threads in options.threads:
            before, now = compared(name, threads, options.before.resolve(), options.now.resolve())
            different += before != now
            hashes = [" -> ".join(dict.fromkeys(both)) for both in zip(before, now, strict=True)]
            cells = [name, str(threads), *hashes, "equal" if before == now else "DIFFERENT"]
            print(f"| {' | '.join(cells)} |", flush=True)
    print(f"{len(names) * len(options.threads) - different} of {len(names) * len(options.threads)} equal")
    return int(different > 0)


def compared(name: str, threads: int, before: Path, now: Path) -> tuple[list[str], list[str]]:
    """Train in both checkouts; return [hash of the straight, hash of the resumed one] of before and of now."""
    config_id, *own_overrides = CONFIGS[name]
    program = PROGRAMS.get(name, ("train.py",))
    overrides = {word.partition("=")[0]: word for word in (*SHORT, *own_overrides, f"threads={threads}")}
    steps = int(overrides.pop("max_timesteps").partition("=")[2])
    with tempfile.TemporaryDirectory(prefix="same-bits-") as folder:
        root = Path(folder)
        arguments = [config_id, *overrides.values()]
        straight = [trained(checkout, root / f"straight-{n}", program, *arguments, f"max_timesteps={steps}")
                    for n, checkout in enumerate((before, now))]  # fmt: skip
        half = trained(before, root / "half", program, *arguments, f"max_timesteps={steps // 2}")
        resumed = []
        for n, checkout in enumerate((before, now)):
            copy = Path(shutil.copytree(half.parent, root / f"resumed-{n}", symlinks=True)) / half.name
            resumed.append(trained(checkout, copy.parent, program, "--resume", half.name, f"max_timesteps={steps}"))
        first, second = ([digest_of(run[n]) for run in (straight, resumed)] for n in (0, 1))
        return first, second


def trained(checkout: Path, root: Path, program: Sequence[str], *words: str) -> Path:
    """Run the `program` in a checkout with its runs under `root`; return the folder of its only run."""
    environment = {**os.environ, "STRIDE_RUNS": str(root), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *program, *words, "-q"]
    ended = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        said = ended.stderr.strip()[-200:]
        raise UserError(f"{' '.join(words)} in {checkout}: exit code {ended.returncode}: {said}")
    [run] = [path for path in root.iterdir() if not path.is_symlink() and (path / "config.json").is_file()]
    return run


def digest_of(run: Path) -> str:
    """Return the first twelve digits of the SHA-256 of a run's last checkpoint and its rows."""
    state = torch.load(run / "checkpoints" / "last.ckpt", map_location="cpu", weights_only=True)
    digest = hashlib.sha256()
    for part in ("state_dict", "optimizer_states", "stride"):
        feed(digest, state[part])
    with (run / "metrics.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            feed(digest, {name: cell for name, cell in sorted(row.items()) if "/time/" not in name})
    return digest.hexdigest()[:12]


def feed(digest: "hashlib._Hash", value: object) -> None:
    """Add each value of a nested structure with its name: a tensor by its bytes, others by their repr."""
    if isinstance(value, torch.Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.contiguous().numpy().tobytes())
    elif isinstance(value, dict):
        for key in (key for key in value if key != "segments"):
            digest.update(str(key).encode())
            feed(digest, value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            feed(digest, item)
    else:
        digest.update(repr(value).encode())


if __name__ == "__main__":
    entry.run(main)
