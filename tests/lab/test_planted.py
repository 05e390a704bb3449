"""The faults that are planted by hand: each still fits the file it is for."""

import pytest

from lab.planted import read_faults
from stride.utils.places import PROJECT


@pytest.mark.parametrize("fault", read_faults(), ids=lambda fault: fault.name)
def test_a_fault_replaces_one_piece_of_its_file(fault):
    text = (PROJECT / fault.file).read_text()
    assert fault.planted(text) != text
    if fault.file.endswith(".py"):
        compile(fault.planted(text), fault.file, "exec")


def test_there_are_forty_of_different_names():
    assert len({fault.name for fault in read_faults()}) == len(read_faults()) >= 40
