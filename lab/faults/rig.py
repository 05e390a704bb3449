"""Shared by the fault scripts: tiny configurations, the real command in its own process, comparisons of runs.

The process is forked from one that has trained before, so imports and compiled kernels are already loaded. It runs
`train.command` with the words a person would type, and its exit code is what a shell would report.

Many functions here and in the scripts return a problem as text, "" if all is right.
"""

import contextlib
import io
import math
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from lab.faults.record import Report as Report
from stride.agents.trained.loading import load_run, read_checkpoint
from stride.commands import run_play, run_publish, train
from stride.commands.plain_tree import fingerprint
from stride.inspector.runs import Runs
from stride.runstore import checkpoint_set
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir
from stride.utils import entry

SMALL = (
    "-q", "max_timesteps=1280", "log_freq_epochs=1", "eval_freq_epochs=2", "eval_episodes=2", "eval_warmup_epochs=0",
    "early_stop_on_eval_threshold=false", "checkpoint_freq_epochs=2", "checkpoint_keep_last=3",
)  # fmt: skip
TINY = (
    "CartPole-v1:ppo", *SMALL, "n_envs=4", "n_steps=16", "batch_size=0.5", "n_epochs=4", "normalize_obs=true",
    "normalize_reward=true",
)  # fmt: skip
REPLAY = (
    "CartPole-v1:dqn", *SMALL, "n_envs=4", "train_freq=16", "gradient_steps=4", "batch_size=8", "buffer_size=400",
    "learning_starts=100", "epoch_iterations=1", "hidden_dims=32", "prioritised=true", "n_step=3",
    "replay_storage=memmap", "normalize_obs=true",
)  # fmt: skip
T = TypeVar("T")
Part = tuple[str, bool]  # one line of a scenario's report, and whether all was as it should be
Call = Callable[..., object]
SAVED = ("state_dict", "optimizer_states", "stride", "callbacks")  # keys of a checkpoint that must be equal


class Ended(NamedTuple):
    """How a process ended: exit code as in a shell (128 + signal), its output (`said`), and how long it took."""

    code: int
    said: str
    seconds: float


class Child(NamedTuple):
    """A process that `start` has started; it leads its own process group and writes its output to `log`."""

    pid: int
    began: float
    log: Path

    def lives(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self, patience: float = math.inf) -> Ended:
        """Wait for its end and return it; after `patience` seconds since its start kill its process group."""
        while self.lives() and time.monotonic() < self.began + patience < math.inf:
            time.sleep(0.002)
        if patience < math.inf and self.lives():
            os.killpg(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        said = self.log.read_text(errors="replace")
        return Ended(code if code >= 0 else 128 - code, said, time.monotonic() - self.began)


def last_of_each_key(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the overrides without those that a later one of the same key replaces: a key may be given once."""
    return tuple({word.partition("=")[0]: word for word in words}.values())


class Tally:
    """Counts trials and those that went right, prints each problem, and is printed as `**3 of 4**`."""

    def __init__(self) -> None:
        self.right = self.total = 0
        self.problems: list[str] = []

    def add(self, name: object, problem: str) -> None:
        self.total += 1
        self.right += not problem
        if problem:
            self.problems.append(f"{name}: {problem}")
            print(self.problems[-1], flush=True)

    @property
    def good(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        return f"**{self.right:,} of {self.total:,}**"


def joined(*parts: Part) -> Report:
    """Join the parts of a scenario to its report."""
    return [line for line, _ in parts], all(good for _, good in parts)


def evenly(cases: Sequence[T], count: int) -> list[T]:
    """Return `count` of the cases, at equal distances in the list; all if there are fewer."""
    count = min(count, len(cases))
    return [cases[index * len(cases) // count] for index in range(count)]


@cache
def warm() -> None:
    """Train once in this process and discard the run; with one thread, because a fork does not copy threads."""
    torch.set_num_threads(1)
    variables = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.environ["STRIDE_RUNS"] = folder
        code = train.command([*TINY, "threads=1"])
    os.environ.clear()
    os.environ.update(variables)
    assert code == 0


def start(
    words: Sequence[str],
    root: Path,
    prepare: Callable[[], object] = lambda: None,
    main: Callable[[list[str]], int] = train.command,
) -> Child:
    """Start `train.py WORDS` (or another `main`) in a forked process, with its runs under `root`.

    `prepare` is called in that process before the command; it may plant a fault.
    """
    warm()
    root.mkdir(parents=True, exist_ok=True)
    log = root.parent / f"{root.name}.said"
    began = time.monotonic()
    pid = os.fork()
    if pid:
        return Child(pid, began, log)
    code = 70
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup makes a process ignore it
        os.setpgid(0, 0)
        write_into(log)
        sys.stdout = os.fdopen(1, "w", closefd=False)  # pytest has replaced it
        sys.stderr = os.fdopen(2, "w", closefd=False)
        os.environ["STRIDE_RUNS"] = str(root)
        torch.set_num_threads(1)
        prepare()
        code = main(list(words))
    except BaseException:
        traceback.print_exc()
        code = 1
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def forked(work: Callable[[], object]) -> int:
    """Fork a process that does `work` and ends with code 0, even if the work fails; return its process id."""
    pid = os.fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def write_into(log: Path) -> None:
    """Send the output and errors of this process to the file `log` from now on."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def finish(words: Sequence[str], root: Path, prepare: Callable[[], object] = lambda: None) -> Ended:
    return start(words, root, prepare).wait()


def undisturbed(words: Sequence[str], root: Path, prepare: Callable[[], object] = lambda: None) -> RunDir:
    """Train without any fault and return the run."""
    ended = finish(words, root, prepare)
    run = last_run(root)
    assert ended.code == 0 and run is not None, ended.said
    return run


def resumed(root: Path, wanted: Mapping[str, object], restart: Sequence[str] = ()) -> str:
    """Resume the last run under `root`, and return how it differs from `wanted` at its end; "" if it is equal.

    If the fault came before there was a run, the training is started again with the words `restart`. A run that was
    stopped after its last iteration is already finished, which is right, too.
    """
    ended = finish(["--resume", "@last", "-q"] if last_run(root) else restart, root)
    run = last_run(root)
    if run is None or (ended.code and " is finished: " not in ended.said):
        return f"resume ended with {ended.code}: {ended.said[-400:]}"
    return difference(run, wanted)


def difference(run: RunDir, wanted: Mapping[str, object]) -> str:
    """Return how a finished run differs from `wanted`, or which of its files are damaged; "" if it is right."""
    amount = comparable(run)
    wrong = [name for name in wanted if amount[name] != wanted[name]]
    litter = [name for name in leftovers(run.path.parent) if "damaged" not in name]
    if wrong:
        return f"differs in {', '.join(wrong)}"
    return f"broken {faults(run)}, leftovers {litter}" if faults(run) or litter else ""


def wait_until(holds: Callable[[], object], patience: float = 120.0, pause: float = 0.01) -> None:
    """Wait until `holds` returns something true; AssertionError after `patience` seconds."""
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, "it never came to it"
        time.sleep(pause)


def plant(owner: object, name: str, function: object) -> None:
    """Replace owner.name and never restore it: only for a process of `start`, called by its `prepare`."""
    setattr(owner, name, function)


def at_call(owner: object, name: str, number: int, change: Call) -> None:
    """In the `number`th call of owner.name, call `change(function, *arguments)` instead of the function.

    This is never undone: only for a process of `start`, called by its `prepare`.
    """
    function, calls = getattr(owner, name), 0

    def counted(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == number:
            return change(function, *arguments, **options)
        return function(*arguments, **options)

    setattr(owner, name, counted)


def message_lines(said: str) -> list[str]:
    """Return the lines of a command's output without its machine-readable result line."""
    return [line for line in said.strip().split("\n") if not line.startswith("result=")]


def refused_in_a_line(said: str) -> bool:
    """Whether the output is one line that says what is wrong, and nothing else."""
    lines = message_lines(said)
    return len(lines) == 1 and lines[0].startswith("error: ")


def last_run(root: Path) -> RunDir | None:
    """Return the run that @last names under `root`; None if there is none yet."""
    link = root / "@last"
    return RunDir(root / os.readlink(link)) if link.is_symlink() else None


def comparable(run: RunDir) -> dict[str, object]:
    """Return a finished run in comparable form: state, rows without wall time, links, files.

    For example {"state": "3f..", "rows": "a1..", "increasing": True, "links": {"last": "epoch=40"}, ..}.
    """
    table = read_csv(run.metrics_csv)
    rows = [{name: repr(cell) for name, cell in row.items() if "/time/" not in name} for row in table]
    steps = [row["train/clock/env_steps"] for row in table if "train/clock/iterations" in row]
    links = {link: checkpoint_set.target(run.checkpoints / f"{link}.ckpt") for link in checkpoint_set.LINKS}
    return {
        "state": fingerprint(state_of(run)), "rows": fingerprint(rows), "increasing": steps == sorted(set(steps)),
        "links": links, "files": sorted(path.name for path in run.checkpoints.iterdir()),
        "report": run.report.is_file(),
    }  # fmt: skip


def state_of(run: RunDir) -> dict[str, object]:
    """Return the parts of its last checkpoint that are compared (SAVED)."""
    path = run.checkpoints / f"{checkpoint_set.target(run.checkpoints / 'last.ckpt')}.ckpt"
    state = read_checkpoint(path)
    return {name: state[name] for name in SAVED}


def leftovers(root: Path) -> list[str]:
    """Return files that should have been deleted: temporary files, incomplete checkpoints, old locks, unused rows."""
    litter = [path for path in root.rglob("*") if re.search(r"\.tmp$|^\.(?!lock)|^\.lock$", path.name)]
    for folder in (path for path in root.glob("*/checkpoints") if not path.parent.is_symlink()):
        for path in folder.glob("*=*"):
            partner = path.with_suffix(".json" if path.suffix == ".ckpt" else ".ckpt")
            litter += [] if partner.exists() else [path]
        used = {name for path in folder.glob("*.json") for name in checkpoint_set.facts_of(path).get("segments", [])}
        litter += [path for path in (folder / checkpoint_set.SEGMENTS).glob("*.rows") if path.name not in used]
    return [str(path.relative_to(root)) for path in litter]


def faults(run: RunDir) -> list[str]:
    """Return the names of damaged checkpoints and of links that lead nowhere."""
    folder = run.checkpoints
    stems = checkpoint_set.names(folder)
    broken = [stem for stem in stems if checkpoint_set.fault(folder / f"{stem}.ckpt", remembering=True)]
    return broken + [path.name for path in folder.iterdir() if path.is_symlink() and not path.exists()]


def inspect_run(argv: list[str]) -> int:
    """Do what the inspector does with a run that was typed there or chosen."""
    Runs().find(argv[0])
    load_run(argv[0])
    return 0


def run_captured(command: Callable[[str], int], word: str) -> tuple[int, str]:
    """Call the command in this process; return its exit code and its output."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        code = command(word)
    return code, said.getvalue().strip()


MORE = ("-q", "--max-timesteps", "2560")
OPENING: dict[str, Callable[[str], int]] = {  # every command that opens the run of this id
    "train": lambda run: train.command(["--resume", run, *MORE]),
    "fork": lambda run: train.command(["--resume", run, "--checkpoint", "best", *MORE]),
    "play": lambda run: run_play.command(["--run-id", run, "--headless", "--episodes", "1"]),
    "publish": lambda run: run_publish.command(["--run-id", run, "--dry-run"]),
    "inspect": lambda run: entry.ended(inspect_run, [run]),
}
