"""What the fault scripts share: a tiny run, the real command in a process of its own, and what a run amounts to.

The process is forked from one that has trained before: what a first training imports and loads, kernels among it, is
there. It runs `train.command` with the words a person would type, and its exit code is the shell's.
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

from lab.faults.record import Told as Told
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
Part = tuple[str, bool]  # of a scenario: its line, and whether all was as it should be
Call = Callable[..., object]
SAVED = ("state_dict", "optimizer_states", "stride", "callbacks")  # of a checkpoint, what is ours


class Ended(NamedTuple):
    """How a process ended: its exit code as a shell gives it, what it said, and how long it took."""

    code: int
    said: str
    seconds: float


class Child(NamedTuple):
    pid: int
    began: float
    log: Path

    def lives(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self, patience: float = math.inf) -> Ended:
        """Its end, or that of its group where it does not end in so many seconds."""
        while self.lives() and time.monotonic() < self.began + patience < math.inf:
            time.sleep(0.002)
        if patience < math.inf and self.lives():
            os.killpg(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        said = self.log.read_text(errors="replace")
        return Ended(code if code >= 0 else 128 - code, said, time.monotonic() - self.began)


def last_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """The last of each key, as a key may be given once."""
    return tuple({word.partition("=")[0]: word for word in words}.values())


class Tally:
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


def together(*parts: Part) -> Told:
    return [line for line, _ in parts], all(good for _, good in parts)


def evenly(cases: Sequence[T], count: int) -> list[T]:
    count = min(count, len(cases))
    return [cases[place * len(cases) // count] for place in range(count)]


@cache
def warm() -> None:
    """A training in this process, whose run is thrown away; by one thread, as threads are not forked."""
    torch.set_num_threads(1)
    kept = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.environ["STRIDE_RUNS"] = folder
        code = train.command([*TINY, "threads=1"])
    os.environ.clear()
    os.environ.update(kept)
    assert code == 0


def start(
    words: Sequence[str],
    root: Path,
    prepare: Callable[[], object] = lambda: None,
    main: Callable[[list[str]], int] = train.command,
) -> Child:
    """`train.py WORDS` (or another `main`) with its runs under `root`; `prepare` may plant a fault in the process."""
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
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored
        os.setpgid(0, 0)
        write_into(log)
        sys.stdout = os.fdopen(1, "w", closefd=False)  # in a test it leads elsewhere
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
    """A bare process that does this and ends, whatever becomes of it."""
    pid = os.fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def write_into(log: Path) -> None:
    """What this process says from here on stands there."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def finish(words: Sequence[str], root: Path, prepare: Callable[[], object] = lambda: None) -> Ended:
    return start(words, root, prepare).wait()


def straight(words: Sequence[str], root: Path, prepare: Callable[[], object] = lambda: None) -> RunDir:
    """The run of a training that nothing happens to."""
    ended = finish(words, root, prepare)
    run = last_run(root)
    assert ended.code == 0 and run is not None, ended.said
    return run


def resumed(root: Path, wanted: Mapping[str, object], begun: Sequence[str] = ()) -> str:
    """What is wrong with the last run once it went on to its end, "" where it is as wanted.

    Begun anew where there is not even a folder; one that was stopped after its last word is finished.
    """
    ended = finish(["--resume", "@last", "-q"] if last_run(root) else begun, root)
    run = last_run(root)
    if run is None or (ended.code and " is finished: " not in ended.said):
        return f"resume ended with {ended.code}: {ended.said[-400:]}"
    return unlike(run, wanted)


def unlike(run: RunDir, wanted: Mapping[str, object]) -> str:
    """In what a finished run is not as wanted, or not whole; "" for nothing."""
    amount = amounts_to(run)
    wrong = [name for name in wanted if amount[name] != wanted[name]]
    litter = [name for name in leftovers(run.path.parent) if "damaged" not in name]
    if wrong:
        return f"differs in {', '.join(wrong)}"
    return f"broken {faults(run)}, leftovers {litter}" if faults(run) or litter else ""


def wait_until(holds: Callable[[], object], patience: float = 120.0, pause: float = 0.01) -> None:
    """AssertionError where it never comes to it."""
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, "it never came to it"
        time.sleep(pause)


def plant(owner: object, name: str, function: object) -> None:
    """owner.name for good, as mypy would not have it assigned: only for a process of `start`, by its `prepare`."""
    setattr(owner, name, function)


def at_call(owner: object, name: str, number: int, change: Call) -> None:
    """In the `number`th call of owner.name, `change` is given the function and its arguments in its place.

    For good: only for a process of `start`, by its `prepare`.
    """
    function, calls = getattr(owner, name), 0

    def watched(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == number:
            return change(function, *arguments, **options)
        return function(*arguments, **options)

    setattr(owner, name, watched)


def told(said: str) -> list[str]:
    return [line for line in said.strip().split("\n") if not line.startswith("result=")]


def refused_in_a_line(said: str) -> bool:
    """Whether nothing was said but what is wrong."""
    lines = told(said)
    return len(lines) == 1 and lines[0].startswith("error: ")


def last_run(root: Path) -> RunDir | None:
    """What @last means under another root, None where there is no run yet."""
    link = root / "@last"
    return RunDir(root / os.readlink(link)) if link.is_symlink() else None


def amounts_to(run: RunDir) -> dict[str, object]:
    """A finished run in comparable form: state, rows without wall time, links."""
    rows = [{k: repr(v) for k, v in row.items() if "/time/" not in k} for row in read_csv(run.metrics_csv)]
    steps = [row["train/clock/env_steps"] for row in read_csv(run.metrics_csv) if "train/clock/iterations" in row]
    links = {link: checkpoint_set.target(run.checkpoints / f"{link}.ckpt") for link in checkpoint_set.LINKS}
    return {
        "state": fingerprint(state_of(run)), "rows": fingerprint(rows), "increasing": steps == sorted(set(steps)),
        "links": links, "files": sorted(path.name for path in run.checkpoints.iterdir()),
        "report": run.report.is_file(),
    }  # fmt: skip


def state_of(run: RunDir) -> dict[str, object]:
    """What its last checkpoint holds of ours."""
    path = run.checkpoints / f"{checkpoint_set.target(run.checkpoints / 'last.ckpt')}.ckpt"
    state = read_checkpoint(path)
    return {name: state[name] for name in SAVED}


def leftovers(root: Path) -> list[str]:
    """Files nobody will ever want again: temporaries, halves of sets, locks of the dead."""
    found = [path for path in root.rglob("*") if re.search(r"\.tmp$|^\.(?!lock)|^\.lock$", path.name)]
    for folder in (path for path in root.glob("*/checkpoints") if not path.parent.is_symlink()):
        for path in folder.glob("*=*"):
            other = path.with_suffix(".json" if path.suffix == ".ckpt" else ".ckpt")
            found += [] if other.exists() else [path]
        named = {name for path in folder.glob("*.json") for name in checkpoint_set.facts_of(path).get("segments", [])}
        found += [path for path in (folder / checkpoint_set.SEGMENTS).glob("*.rows") if path.name not in named]
    return [str(path.relative_to(root)) for path in found]


def faults(run: RunDir) -> list[str]:
    folder = run.checkpoints
    stems = checkpoint_set.names(folder)
    broken = [stem for stem in stems if checkpoint_set.fault(folder / f"{stem}.ckpt", remembering=True)]
    return broken + [path.name for path in folder.iterdir() if path.is_symlink() and not path.exists()]


def looked_at(argv: list[str]) -> int:
    """What the inspector does with a run that was typed there or chosen."""
    Runs().find(argv[0])
    load_run(argv[0])
    return 0


def heard(command: Callable[[str], int], word: str) -> tuple[int, str]:
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
    "inspect": lambda run: entry.ended(looked_at, [run]),
}
