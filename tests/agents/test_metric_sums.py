"""Means on the device: what comes out, and that adding never reads a number back."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from replay_log import through_file
from tape import RefuseSync

from stride.agents.metric_sums import Metrics


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


def test_adding_does_not_synchronise():
    metrics = Metrics()
    with RefuseSync():
        for _ in range(3):
            metrics.add({"a": scalar(1), "b": scalar(2)})
            metrics.set({"c": scalar(1)})
    assert metrics.flush() == {"a": 1.0, "b": 2.0, "c": 1.0}


def test_one_name_cannot_be_both_a_mean_and_a_last_value():
    metrics = Metrics()
    metrics.add({"a": scalar(1)})
    metrics.set({"a": 2.0})
    with pytest.raises(ValueError, match="both added and set: a"):
        metrics.flush()


def test_sums_that_stay_are_at_the_same_addresses():
    """What a graph does: it adds to the tensors it knows, and the host counts what it did not see."""
    metrics, places = Metrics(), []
    metrics.stay = True
    assert metrics.flush() == {}
    for _ in range(3):
        metrics.add({"a": scalar(1), "b": scalar(2)})
        places.append([sums.data_ptr() for sums in metrics._sums.values()])
        metrics.flush()
    assert places[0] == places[1] == places[2] and metrics.state_dict()["groups"] == []


def test_what_a_graph_added_is_counted():
    metrics = Metrics()
    metrics.stay = True
    before = metrics.counts
    metrics.add({"a": scalar(3)})
    made = metrics.counts - before
    metrics.flush()
    (sums,) = metrics._sums.values()
    sums += 5.0
    metrics.count(made)
    assert metrics.flush() == {"a": 5.0}
    assert metrics.flush() == {}, "nothing was added"


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
