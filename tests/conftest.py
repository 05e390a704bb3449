"""Before any test: a shell's `&` and nohup have the processes they start ignore signals, which is tested here, and
random numbers are a test's own, whatever ran before it in its process.

Sentences and screens are snapshots: `assert text == snapshot` compares with __snapshots__/ beside the test file;
`pytest --snapshot-update FILE` writes them anew, to be reviewed in the diff.
"""

import atexit
import gc
import os
import random
import shutil
import signal
import tempfile

import numpy as np
import pytest
import torch
from hypothesis import settings

# drawn inputs are the same in each run, and a slow machine fails no test
settings.register_profile("stride", derandomize=True, deadline=None, database=None)
settings.load_profile("stride")

os.environ.setdefault("STRIDE_CORES", "1")  # a process for each core is at work already
LONGEST = ("test_resume.py", "test_faults.py", "test_browser.py", "test_recurrent.py", "test_fused_gpu_learn.py")
LONGEST += ("test_probes_models.py", "test_wheel.py", "test_notebooks.py", "test_fused_gpu_play.py", "test_variants.py")

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


def pytest_configure(config: pytest.Config) -> None:
    if config.option.update_snapshots and os.environ.get("CI"):
        raise pytest.UsageError("--snapshot-update: snapshots are written by hand and reviewed, never by CI")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The files that take longest begin first: else one of them is alone at the end, and other processes wait."""
    if not config.getoption("--in-order"):
        items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(1)
