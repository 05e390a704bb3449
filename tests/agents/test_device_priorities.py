"""Priorities on a device against those of the CPU: the same rows are drawn, whatever was told of them before."""

import pytest
import torch

from stride.agents.experience.priorities import DevicePriorities, Priorities

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("rows", "worlds", "steps", "reach"), [(1, 1, 0, 0), (7, 1, 1, 0), (16, 3, 3, 0), (20, 4, 2, 3)]
)
def test_both_forms_draw_the_same_rows(rows, worlds, steps, reach):
    generator = torch.Generator().manual_seed(rows)
    near, far = Priorities(rows, worlds, steps, reach, 0.7), DevicePriorities(rows, worlds, steps, reach, 0.7, CPU)
    written = steps + reach + 1
    for turn in range(40):
        for each in (near, far):
            each.follow(written)
        uniforms = torch.rand(12, generator=generator, dtype=torch.float64)
        drawn = near.draw(uniforms)
        assert torch.equal(drawn, far.draw(uniforms))
        assert torch.equal(near.weights(drawn, 0.4), far.weights(drawn, 0.4))
        if turn % 3 == 2:  # rows that were drawn are overwritten before their errors are told
            written += turn % 5
            near.follow(written), far.follow(written)
        errors = torch.randn(12, generator=generator) * 3
        near.update(drawn, errors), far.update(drawn, errors)
        assert far.highest.item() == near.highest
        leaves = near.state_dict()["leaves"]
        assert torch.equal(leaves, far.state_dict()["leaves"]) and leaves.any()
        written += 1 + turn % 2


def test_a_state_goes_on_in_the_other_form():
    near, far = Priorities(8, 2, 1, 0, 0.5), DevicePriorities(8, 2, 1, 0, 0.5, CPU)
    near.follow(11)
    near.update(near.draw(torch.rand(6, dtype=torch.float64)), torch.rand(6) * 9)
    far.load_state_dict(near.state_dict())
    again = Priorities(8, 2, 1, 0, 0.5)
    again.load_state_dict(far.state_dict())
    uniforms = torch.rand(20, dtype=torch.float64)
    assert torch.equal(far.draw(uniforms), near.draw(uniforms))
    assert torch.equal(again.draw(uniforms), near.draw(uniforms)) and again.highest == near.highest


def test_an_error_that_is_no_number_is_not_the_highest():
    far = DevicePriorities(8, 1, 1, 0, 0.5, CPU)
    far.follow(8)
    far.update(torch.tensor([1, 2]), torch.tensor([float("nan"), 0.1]))
    assert far.highest == 1.0
