"""Tables of addresses: what they declare of a world model's kernels is true, and a missing array is refused by name."""

import pytest
import torch

from stride.agents.engines.fused_cpu.kernels import laprop, model_dream, model_recall, model_scan, model_tables
from stride.agents.engines.fused_cpu.kernels.address_table import HOST

TABLES = {
    model_tables.DreamTable: model_dream,
    model_tables.RecallTable: model_recall,
    model_tables.ScanTable: model_scan,
    laprop.LaPropTable: laprop,
}


def names_used(function, visited):
    """All attributes that a kernel or a function below it asks for."""
    visited.add(function)
    names = {*function.__code__.co_names}
    for name in function.__code__.co_names:
        inner = getattr(function.__globals__.get(name), "py_func", None)
        if inner and inner not in visited:
            names |= names_used(inner, visited)
    return names


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_a_kernel_uses_every_array_that_is_declared_for_it(table):
    for name in {user for entry in table.entries.values() for user in entry.users if user != HOST}:
        declared = {entry for entry, of in table.entries.items() if name in of.users}
        assert declared <= names_used(getattr(TABLES[table], name).py_func, set()), name


def test_arrays_that_kernels_write_are_made_and_others_must_be_given():
    sizes = {"T": 3, "B": 16, "B/16": 1, "D": 4, "F": 6, "W": 5, "W+D": 9, "residuals": 7, "scratch": 8}
    given = {name: torch.zeros(3, 16, 1) for name in ("prepared", "tokens", "keep")}
    table = model_tables.ScanTable(sizes, steps=3, model=1, **given)
    assert table["joined"].shape == (3, 16, 9) and table["residuals"].shape == (1, 3, 7, 16)
    assert table.values.joined == table["joined"].data_ptr() and table.values.steps == 3
    with pytest.raises(RuntimeError, match="ScanTable has no uniforms, which the kernel forward uses"):
        table.check("forward")
