"""What `engine: fused_gpu` leaves, in hashes that every machine must give, a GPU, too (lab/gpu/rollouts.py).

`PYTHONPATH=.:tests python tests/agents/test_fused_gpu_hashes.py` writes them, and what every launch of one iteration
changes, where something was changed on purpose.
"""

import numpy as np
import pytest
from host_kernels import compile_host

from lab.gpu import rollouts
from lab.gpu.parts import Machine
from stride.utils.durable_file import read_json, write_json

HOST = Machine("cpu", compile_host, small=True)


BY_HASHES = ("numbers, learnt",)  # the others by a trace, since each takes g++ ten seconds; the rest of both is soak


def learnt(those):
    """The cases that learn; of them those are in CI."""
    for name in rollouts.LEARNT:
        yield pytest.param(name, marks=[pytest.mark.slow] + [pytest.mark.soak] * (name not in those))


@pytest.mark.parametrize("name", [*rollouts.CASES, *learnt(BY_HASHES)])
def test_the_kernels_give_the_committed_hashes(name):
    assert rollouts.computed(HOST, name) == read_json(rollouts.FILE)[name]


def test_they_are_of_something():
    """No two of rows; and of weights three that stay, and twelve that are learnt."""
    golden = read_json(rollouts.FILE)
    assert golden.keys() == (rollouts.CASES | rollouts.LEARNT).keys()
    for what, number in (("table", 21), ("log-probabilities", 21), ("worlds", 21), ("window", 21), ("parameters", 15)):
        assert len({value for case in golden.values() for name, value in case.items() if what in name}) == number


def test_what_differs_is_named(monkeypatch, tmp_path):
    planted = read_json(rollouts.FILE)
    planted["choices"]["table after 2"] = "0" * 16
    write_json(tmp_path / "hashes.json", planted)
    monkeypatch.setattr(rollouts, "FILE", tmp_path / "hashes.json")
    monkeypatch.setattr(rollouts, "CASES", {"choices": rollouts.CASES["choices"]})
    monkeypatch.setattr(rollouts, "LEARNT", {})
    assert [*rollouts.rollouts(HOST, 60.0)][-1].wrong == ["choices: table after 2"]


@pytest.mark.parametrize("name", [*learnt(rollouts.LEARNT.keys() - BY_HASHES)])
def test_every_launch_changes_what_the_committed_trace_says(name):
    held = rollouts.read_trace(name)
    assert {"note_episodes", "judge", "worth", "weigh", "gradient", "reduce", "descend"} < {x.split()[1] for x in held}
    assert rollouts.apart_at(HOST, name) == ""


def test_the_first_kernel_and_element_that_differ_are_named():
    golden = {"000 rollout 9": np.arange(4, dtype="u4"), "001 gradient 15": np.arange(9, dtype="u4")}
    planted = {name: each.copy() for name, each in golden.items()}
    assert rollouts.first_difference(golden, planted) == ""
    planted["001 gradient 15"][[4, 7]] += 0x10
    line = "launch 1, gradient, argument 15: element 4 is 0x14, the host's 0x4; 2 of 9 differ"
    assert rollouts.first_difference(golden, planted) == line
    del planted["000 rollout 9"]
    assert rollouts.first_difference(golden, planted) == "launch 0, rollout, argument 9: changed by the host alone"


if __name__ == "__main__":
    write_json(rollouts.FILE, {name: rollouts.computed(HOST, name) for name in (*rollouts.CASES, *rollouts.LEARNT)})
    rollouts.write_traces({name: rollouts.traced(HOST, name) for name in rollouts.LEARNT})
