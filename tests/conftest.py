"""Before any test: a shell's `&` and nohup have the processes they start ignore signals, which is tested here, and
random numbers are a test's own, whatever ran before it in its process."""

import os
import random
import signal

import numpy as np
import pytest
import torch

os.environ.setdefault("STRIDE_CORES", "1")  # a process for each core is at work already

for number, usual in {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}.items():
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(1)
