"""Did a change of the code change a training? The same trainings in two checkouts, compared to the last bit.

    git clone -q . ../before && git -C ../before checkout -q HASH
    python -m scripts.same_bits ../before                  every algorithm on every engine it has
    python -m scripts.same_bits ../before --only dqn sac --threads 1 2 3

Each configuration is trained for at least 20 iterations by both checkouts; then half of such a training, made by the
checkout before, is resumed by both. Equal are SHA-256 of all a checkpoint holds (weights, optimizer, worlds, counters)
and metrics.csv without its columns of wall time. A replay memory's rows are compared by what was learnt from them: how
they are cut into files depends on the clock. Exit code 1: something differs.
"""

import csv
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from agents.playing.loading import read_checkpoint
from scripts.usage import parser_of
from utils import entry
from utils.provenance import PROJECT
from utils.user_error import UserError

ROLLOUT = ("n_envs=4", "n_steps=32", "batch_size=32")
REPLAY = ("train_freq=16", "gradient_steps=4", "batch_size=16", "buffer_size=2000", "learning_starts=100")
PRIORITISED = ("prioritised=true", "n_step=3", "replay_storage=memmap", "normalize_obs=true", "buffer_size=512")
CONFIGS: dict[str, tuple[str, ...]] = {  # name: config, overrides; what is not named is shipped
    "ppo fused": ("CartPole-v1:ppo", *ROLLOUT, "engine=fused_cpu", "normalize_obs=true", "normalize_reward=true"),
    "ppo eager": ("CartPole-v1:ppo", *ROLLOUT, "engine=eager", "policy_lr=lin_0.001", "clip_range=lin_0.2"),
    "ppo gym, gaussian": ("Pendulum-v1:ppo", *ROLLOUT, "engine=fused_cpu", "env_backend=gym", "normalize_obs=true"),
    "ppo lstm": ("CartPole-v1:ppo_lstm", "n_envs=4", "n_steps=32", "n_epochs=2"),
    "ppo cnn": ("CartPole-v1:ppo_pixels", "n_envs=2", "n_steps=8", "batch_size=8", "n_epochs=1", "max_timesteps=320"),
    "ppo dict, masks": ("Taxi-v4:ppo", *ROLLOUT, "max_episode_steps=20"),
    "reinforce fused": ("CartPole-v1:reinforce", "n_envs=4", "n_steps=32", "engine=fused_cpu"),
    "reinforce eager": ("CartPole-v1:reinforce", "n_envs=4", "n_steps=32", "engine=eager", "normalize_obs=true"),
    "dqn fused": ("CartPole-v1:dqn", *REPLAY, "engine=fused_cpu", "target_freq=160", "normalize_obs=true"),
    "dqn eager, memmap": ("CartPole-v1:dqn", *REPLAY, *PRIORITISED, "engine=eager"),
    "sac fused": ("Pendulum-v1:sac", *REPLAY, "engine=fused_cpu", "max_episode_steps=30"),
    "sac eager": ("Pendulum-v1:sac", *REPLAY, "engine=eager", "noise_correlation=0.5", "normalize_obs=true"),
    "pqn": ("CartPole-v1:pqn", "n_envs=4", "n_steps=32", "batch_size=32"),
    "q_learning": ("FrozenLake-v1:q_learning", "n_envs=8", "n_steps=16", "visits_power=0.6"),
}
SHORT: tuple[str, ...] = (
    "max_timesteps=2560",
    "eval_freq_epochs=5",
    "eval_episodes=4",
    "early_stop_on_eval_threshold=false",
)
SHORT += ("epoch_iterations=1", "log_freq_epochs=1", "eval_warmup_epochs=0")


def main(argv: list[str]) -> int:
    """A line per configuration and number of threads: what was hashed, and whether it is the same."""
    parser = parser_of(__doc__)
    parser.add_argument("before", type=Path, help="the checkout to compare with")
    parser.add_argument("now", type=Path, nargs="?", default=PROJECT, help="the other one (default: this)")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="configurations whose name begins so")
    parser.add_argument("--threads", nargs="+", type=int, default=[1], metavar="N", help="threads to train with")
    options = parser.parse_args(argv)
    names = [name for name in CONFIGS if name.startswith(tuple(options.only))]
    if not names:
        raise UserError(f"no configuration begins with {' or '.join(options.only)}; there are {', '.join(CONFIGS)}")
    for checkout in (options.before, options.now):
        if not (checkout / "train.py").is_file():
            raise UserError(f"{checkout} is no checkout: there is no train.py in it")
    different = 0
    print("| configuration | threads | straight | half resumed | |\n|---|---|---|---|---|")
    for name in names:
        for threads in options.threads:
            before, now = compared(name, threads, options.before.resolve(), options.now.resolve())
            same = before == now
            different += not same
            cells = [" -> ".join(dict.fromkeys(pair)) for pair in zip(before, now, strict=True)]
            print(f"| {name} | {threads} | {' | '.join(cells)} | {'equal' if same else 'DIFFERENT'} |", flush=True)
    print(f"{len(names) * len(options.threads) - different} of {len(names) * len(options.threads)} equal")
    return int(different > 0)


def compared(name: str, threads: int, before: Path, now: Path) -> tuple[list[str], list[str]]:
    """Hashes of the straight and of the resumed training, by the checkout before and by the one of now."""
    config_id, *own = CONFIGS[name]
    given = {word.partition("=")[0]: word for word in (*SHORT, *own, f"threads={threads}")}
    steps = int(given.pop("max_timesteps").partition("=")[2])
    with tempfile.TemporaryDirectory(prefix="same-bits-") as folder:
        root = Path(folder)
        words = [config_id, *given.values()]
        straight = [trained(each, root / f"straight-{n}", *words, f"max_timesteps={steps}")
                    for n, each in enumerate((before, now))]  # fmt: skip
        half = trained(before, root / "half", *words, f"max_timesteps={steps // 2}")
        resumed = []
        for n, each in enumerate((before, now)):
            copy = Path(shutil.copytree(half.parent, root / f"resumed-{n}", symlinks=True)) / half.name
            resumed.append(trained(each, copy.parent, "--resume", half.name, f"max_timesteps={steps}"))
        return [digest(straight[0]), digest(resumed[0])], [digest(straight[1]), digest(resumed[1])]


def trained(checkout: Path, root: Path, *words: str) -> Path:
    """The folder of the run that `train.py` of that checkout made, or went on with, under `root`."""
    environment = {**os.environ, "STRIDE_RUNS": str(root), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "train.py", *words, "-q"]
    ended = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        said = ended.stderr.strip()[-200:]
        raise UserError(f"{' '.join(words)} in {checkout}: exit code {ended.returncode}: {said}")
    [run] = [each for each in root.iterdir() if not each.is_symlink() and (each / "config.json").is_file()]
    return run


def digest(run: Path) -> str:
    """The first twelve letters of the SHA-256 of the last checkpoint and of the rows."""
    state = read_checkpoint((run / "checkpoints" / "last.ckpt").resolve())
    found = hashlib.sha256()
    for part in ("state_dict", "optimizer_states", "stride"):
        feed(found, state[part])
    with (run / "metrics.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            feed(found, {name: cell for name, cell in sorted(row.items()) if "/time/" not in name})
    return found.hexdigest()[:12]


def feed(found: "hashlib._Hash", value: object) -> None:
    """Every leaf with its name: tensors by their bytes, all else as Python writes it."""
    if isinstance(value, torch.Tensor):
        found.update(f"{value.dtype}{tuple(value.shape)}".encode())
        found.update(value.contiguous().numpy().tobytes())
    elif isinstance(value, dict):
        for key in (key for key in value if key != "segments"):
            found.update(str(key).encode())
            feed(found, value[key])
    elif isinstance(value, list | tuple):
        for each in value:
            feed(found, each)
    else:
        found.update(repr(value).encode())


if __name__ == "__main__":
    entry.run(main)
