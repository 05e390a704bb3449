"""Means on the device: what comes out, and that adding never reads a number back."""

import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from stride.agents.metric_sums import Metrics


class NoSync(TorchDispatchMode):
    """Refuses to bring a number to the host."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default:
            raise AssertionError("a number was read on the host")
        return func(*args, **(kwargs or {}))


def scalar(x):
    return torch.tensor(float(x))


def test_means_and_last_values():
    metrics = Metrics()
    for x in (1.0, 2.0, 6.0):
        metrics.add({"a": scalar(x), "b": scalar(-x)})
        metrics.set({"last": scalar(x), "number": x})
    assert metrics.flush() == {"a": 3.0, "b": -3.0, "last": 6.0, "number": 6.0}
    assert metrics.flush() == {}


def test_names_may_appear_at_different_times_and_in_different_company():
    metrics = Metrics()
    metrics.add({"a": scalar(1), "b": scalar(10)})
    metrics.add({"b": scalar(20)})
    metrics.add({"c": scalar(5), "a": scalar(3)})
    metrics.add({})
    assert metrics.flush() == {"a": 2.0, "b": 15.0, "c": 5.0}


def test_nan_stays_with_its_name():
    metrics = Metrics()
    metrics.add({"bad": scalar(math.nan), "good": scalar(1)})
    metrics.add({"bad": scalar(0), "good": scalar(3)})
    out = metrics.flush()
    assert math.isnan(out["bad"]) and out["good"] == 2.0


def test_integers_and_flags_count_as_numbers_and_long_sums_stay_exact():
    metrics = Metrics()
    metrics.add({"flag": torch.tensor(True), "count": torch.tensor(3), "x": scalar(2**24)})
    metrics.add({"flag": torch.tensor(False), "count": torch.tensor(4), "x": scalar(1)})
    assert metrics.flush() == {"flag": 0.5, "count": 3.5, "x": (2**24 + 1) / 2}


def test_values_are_taken_when_given():
    metrics = Metrics()
    value = torch.tensor(1.0, requires_grad=True)
    buffer = torch.tensor(1.0)
    metrics.add({"loss": value * 2})
    metrics.set({"x": buffer})
    buffer.fill_(9)
    assert metrics.flush() == {"loss": 2.0, "x": 1.0}


def test_adding_does_not_synchronise():
    metrics = Metrics()
    values = {"a": scalar(1), "b": scalar(2)}
    with NoSync():
        for _ in range(3):
            metrics.add(values)
            metrics.set({"c": scalar(1)})
        with pytest.raises(AssertionError, match="host"):
            scalar(1).item()  # the guard itself works
    assert metrics.flush() == {"a": 1.0, "b": 2.0, "c": 1.0}


def test_one_name_cannot_be_both_a_mean_and_a_last_value():
    metrics = Metrics()
    metrics.add({"a": scalar(1)})
    metrics.set({"a": 2.0})
    with pytest.raises(ValueError, match="both added and set: a"):
        metrics.flush()


def test_state_survives_a_checkpoint_between_flushes(tmp_path):
    metrics, other = Metrics(), Metrics()
    metrics.add({"a": scalar(1), "b": scalar(2)})
    metrics.set({"c": scalar(7), "d": 8})
    torch.save(metrics.state_dict(), tmp_path / "state.pt")
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for each in (metrics, other):
        each.add({"a": scalar(3), "b": scalar(4)})
    assert other.flush() == metrics.flush() == {"a": 2.0, "b": 3.0, "c": 7.0, "d": 8.0}


def test_many_samples_at_once_are_the_same_as_one_after_the_other():
    one, many = Metrics(), Metrics()
    samples = [{"a": torch.tensor(float(k)), "b": torch.tensor(2.0 * k)} for k in range(5)]
    for sample in samples:
        one.add(sample)
    many.add_all(samples[:2])
    many.add_all([])
    many.add_all(samples[2:])
    assert many.flush() == one.flush() == {"a": 2.0, "b": 4.0}


def test_sums_that_stay_are_the_same_means_at_the_same_addresses():
    """What a graph does: it adds to the tensors it knows, and the host counts what it did not see."""
    plain, metrics = Metrics(), Metrics()
    metrics.stay = True
    assert metrics.flush() == {}
    for k in range(3):
        for each in (plain, metrics):
            each.add({"a": scalar(k), "b": scalar(2 * k)})
            if k:
                each.add({"later": scalar(k)})
        places = [sums.data_ptr() for sums in metrics._sums.values()]
        saved = [[group["names"] for group in each.state_dict()["groups"]] for each in (metrics, plain)]
        assert saved[0] == saved[1]
        assert metrics.flush() == plain.flush()
        assert [sums.data_ptr() for sums in metrics._sums.values()] == places
    assert metrics.flush() == plain.flush() == {}


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


def test_what_is_told_later_is_told_once_before_anybody_is_answered():
    metrics, tells = Metrics(), []

    def tell():
        tells.append(1)
        metrics.add_sums(("a",), np.array([6.0]), 3)

    metrics.later(tell)
    assert not tells
    metrics.later(tell)
    assert len(tells) == 1, "the one before, as something else is due"
    assert metrics.state_dict()["groups"] == [{"names": ["a"], "sums": torch.tensor([12.0]).double(), "count": 6}]
    metrics.later(tell)
    assert metrics.flush() == {"a": 2.0} and len(tells) == 3
    assert metrics.flush() == {}
