"""Numbers of a training: means on the device, and seconds by phase. That adding never waits: test_meta_device.py."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from replay_log import through_file

from stride.agents.metric_sums import Metrics
from stride.agents.stopwatch import MAX_UNREAD_SPANS, DeviceStopwatch, Stopwatch, stopwatch
from stride.utils.devices import driver_version, gpu_details


def scalar(x):
    return torch.tensor(float(x))


NUMBERS = st.sampled_from([0.0, 1.0, -2.0, 6.0, 2.0**24, math.nan, 3, True])
SAMPLES = st.lists(st.dictionaries(st.sampled_from("abc"), NUMBERS, max_size=3), max_size=8)


@given(SAMPLES, SAMPLES, st.integers(0, 8), st.booleans())
def test_means_and_last_values_whatever_comes_with_what(added, put, moved, stay):
    """Also where samples come at once, over a checkpoint, and where the sums stay where they are.

    Values are those of when they were given.
    """
    metrics = Metrics()
    metrics.stay = stay
    for turn in range(2):
        for k, sample in enumerate(added):
            if k == moved:
                other = Metrics()
                other.stay = stay
                other.load_state_dict(through_file(metrics.state_dict()))
                metrics = other
            tensors = {name: torch.tensor(x) for name, x in sample.items()}
            metrics.add(tensors) if k % 2 or not sample else metrics.add_all([tensors])
            for x in tensors.values():
                x.zero_()
        for sample in put:
            tensors = {f"last {name}": torch.tensor(float(x)) for name, x in sample.items()}
            metrics.set({**tensors, **{f"number {name}": x for name, x in sample.items()}})
            for x in tensors.values():
                x.zero_()
        values = {name: [float(sample[name]) for sample in added if name in sample] for name in "abc"}
        expected = {name: sum(column) / len(column) for name, column in values.items() if column}
        for sample in put:
            expected |= {f"{kind} {name}": float(x) for name, x in sample.items() for kind in ("last", "number")}
        assert metrics.flush() == pytest.approx(expected, nan_ok=True, rel=1e-15), turn
    assert metrics.flush() == {}


def test_a_gradient_is_not_held_by_what_is_added():
    metrics = Metrics()
    metrics.add({"loss": torch.tensor(1.0, requires_grad=True) * 2})
    assert metrics.flush() == {"loss": 2.0}


def test_one_name_cannot_be_both_a_mean_and_a_last_value():
    metrics = Metrics()
    metrics.add({"a": scalar(1)})
    metrics.set({"a": 2.0})
    with pytest.raises(ValueError, match="both added and set: a"):
        metrics.flush()


def test_what_is_loaded_lies_where_samples_come_from():
    metrics = Metrics()
    metrics.add({"a": scalar(3)})
    other = Metrics(torch.device("meta"))
    other.load_state_dict(metrics.state_dict())
    assert [sums.device.type for sums in other._sums.values()] == ["meta"]


def test_what_is_added_later_is_added_once_before_anybody_is_answered():
    metrics, calls = Metrics(), []

    def add():
        calls.append(1)
        metrics.add_sums(("a",), np.array([6.0]), 3)

    metrics.later(add)
    assert not calls
    metrics.later(add)
    assert len(calls) == 1, "the one before, as something else is due"
    assert metrics.state_dict()["groups"] == [{"names": ["a"], "sums": torch.tensor([12.0]).double(), "count": 6}]
    metrics.later(add)
    assert metrics.flush() == {"a": 2.0} and len(calls) == 3
    assert metrics.flush() == {}


# --- seconds, of the host's clock and of marks in a stream that are read late


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
def no_waits(monkeypatch):
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
    for _ in range(3 * MAX_UNREAD_SPANS):
        watch.end("learn", watch.begin())
    assert Mark.waits == 3 and watch.read() == {"learn": pytest.approx(3 * MAX_UNREAD_SPANS / 1000)}


def test_on_the_cpu_it_is_the_clock():
    watch = stopwatch(torch.device("cpu"), ("collect",))
    assert type(watch) is Stopwatch
    watch.end("collect", watch.begin() - 2.0)
    watch.read()["collect"] += 1.0
    assert watch.read()["collect"] >= 3.0


def test_the_driver_is_read_off_its_own_words():
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95  Release Build\n"
    assert [driver_version(text) for text in (line, "")] == ["580.95", "unknown"]
    assert gpu_details(torch.device("cpu")) == {}
