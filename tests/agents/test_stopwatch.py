"""Seconds by phase: of the host's clock, and of marks in a stream that are read late."""

import pytest
import torch

from stride.agents.stopwatch import MOST, DeviceStopwatch, Stopwatch, stopwatch
from stride.utils.devices import driver_version, gpu_details


class Mark:
    """An event of a stream that passes 1 ms between two marks."""

    made = waits = 0

    def __init__(self):
        Mark.made += 1
        self.at = Mark.made

    def synchronize(self):
        Mark.waits += 1

    def elapsed_time(self, end):
        return float(end.at - self.at)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(Mark, "waits", 0)


def test_on_a_device_nothing_waits_until_somebody_asks():
    watch = DeviceStopwatch(("collect", "learn"), Mark)
    for _ in range(3):
        watch.end("collect", watch.begin())
        start = watch.begin()
        watch.begin()
        watch.end("learn", start)
    assert Mark.waits == 0
    for _ in range(2):
        assert watch.read() == {"collect": pytest.approx(0.003), "learn": pytest.approx(0.006)} and Mark.waits == 1


def test_spans_that_nobody_asks_for_do_not_pile_up():
    watch = DeviceStopwatch(("learn",), Mark)
    for _ in range(3 * MOST):
        watch.end("learn", watch.begin())
    assert Mark.waits == 3 and watch.read() == {"learn": pytest.approx(3 * MOST / 1000)}


def test_on_the_cpu_it_is_the_clock():
    watch = stopwatch(torch.device("cpu"), ("collect",))
    assert type(watch) is Stopwatch
    watch.end("collect", watch.begin() - 2.0)
    watch.read()["collect"] += 1.0
    assert watch.read()["collect"] >= 3.0


KERNEL_MODULES = {
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC": "535.129.03",
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95  Release Build\n": "580.95",
    "": "unknown",
}


@pytest.mark.parametrize("text", KERNEL_MODULES)
def test_the_driver_is_read_off_its_own_words(text):
    assert driver_version(text) == KERNEL_MODULES[text]


def test_the_cpu_has_no_facts_of_a_gpu():
    assert gpu_details(torch.device("cpu")) == {}
