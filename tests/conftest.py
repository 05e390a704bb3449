"""Before any test: a shell's `&` and nohup have the processes they start ignore signals, which is tested here, and
random numbers and threads of torch are a test's own, whatever ran before it in its process.

Two flags write files, to be reviewed in the diff:

    pytest --snapshot-update FILE    __snapshots__/ beside the test file, which `assert text == snapshot` compares with
    pytest --record-durations        durations.json: seconds of each file, by which the longest begin first
"""

import atexit
import gc
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Container, Generator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

# drawn inputs are the same in each run, and a slow machine fails no test
settings.register_profile("stride", derandomize=True, deadline=None, database=None)
settings.load_profile("stride")

# commands in messages begin with `python`, as a shell in this environment takes it
os.environ["PATH"] = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))
os.environ.setdefault("STRIDE_CORES", "1")  # a process for each core is at work already
PROJECT = Path(__file__).resolve().parent.parent
DURATIONS = PROJECT / "tests" / "durations.json"

os.environ["XDG_STATE_HOME"] = state = tempfile.mkdtemp(prefix="stride-tests-")  # and not where the user's own runs are
atexit.register(shutil.rmtree, state, ignore_errors=True)

# a forked process never takes apart what it inherits: a film, say, would wait there for threads of its parent
os.register_at_fork(after_in_child=gc.freeze)

for number, usual in {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}.items():
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--in-order", action="store_true", help="run files as they are named, not the longest first")
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and the tests of each, in a random order")
    parser.addoption("--record-durations", action="store_true", help="write how long files took to durations.json")


def pytest_configure(config: pytest.Config) -> None:
    written = {
        "--snapshot-update": config.option.update_snapshots,
        "--record-durations": config.option.record_durations,
    }
    for flag, given in written.items():
        if given and os.environ.get("CI"):
            raise pytest.UsageError(f"{flag}: this file is written by hand and reviewed, never by CI")
    if config.option.record_durations and not hasattr(config, "workerinput"):  # pytest-xdist's first process hears all
        config.pluginmanager.register(Recorder())


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Meanwhile pytest leaves out what `-m` does not want, and puts tests with the same parameter side by side."""
    if config.option.shuffle is not None:
        shuffle(items, config.option.shuffle)
    yield
    if config.option.shuffle is None and not config.option.in_order:
        longest_first(items, json.loads(DURATIONS.read_text()))


def shuffle(items: list[pytest.Item], seed: int) -> None:
    draw = random.Random(seed)
    draw.shuffle(items)
    places = {path: draw.random() for path in sorted({item.path for item in items})}
    items.sort(key=lambda item: places[item.path])


def longest_first(items: list[pytest.Item], recorded: dict[str, int]) -> None:
    """By files: where a long one began last, other processes would wait for it. One not recorded is taken for quick."""
    groups = {group_of(item.nodeid, item.keywords) for item in items}
    seconds: Counter[str] = Counter()
    for group in groups:
        seconds[group.split()[0]] += recorded.get(group, 1)
    items.sort(key=lambda item: -seconds[item.nodeid.partition("::")[0]])


def group_of(test: str, marks: Container[str]) -> str:
    """What is recorded together: a file's slow tests apart, since `make test` leaves them out."""
    return test.partition("::")[0] + (" slow" if "slow" in marks else "")


class Recorder:
    """Adds up the seconds of each file; those of files that did not run stay as they are in durations.json."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[group_of(report.nodeid, report.keywords)] += report.duration

    def pytest_sessionfinish(self) -> None:
        seconds = json.loads(DURATIONS.read_text()) | {group: round(total) for group, total in self.seconds.items()}
        here = {group: seconds[group] for group in sorted(seconds) if (PROJECT / group.split()[0]).is_file()}
        DURATIONS.write_text(json.dumps(here, indent=0) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(1)
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="module")
def as_before() -> Generator[None]:
    """What a file leaves in its process is put back: variables, where imports look, handlers of signals."""
    variables, path = dict(os.environ), [*sys.path]
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    yield
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:] = path
    for number, handler in handlers.items():
        if handler is not None and signal.getsignal(number) is not handler:  # None: not one of Python
            signal.signal(number, handler)
