"""A memory's rows as segments: which are on disk already, which are new, and how they come back.

The files themselves are segments.py's; when they are written is a checkpoint's business.
"""

from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from agents.experience.nouns import Final, Row, leaves
from agents.experience.segments import PIECE, Segment, read_segment, take, write_segment


class Ring(Protocol):
    """What is read of a Memory, and written when its rows come back."""

    table: Row
    final: Final
    slot: Tensor
    rows: int
    bytes: int
    written: int
    keep_terminal: bool


class SavedRows:
    """Knows the segments of one memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.segments: list[Segment] = []

    def save(self, memory: Ring) -> list[Segment]:
        """Write what is new; -> the segments that hold every row remembered, in order."""
        oldest = max(0, memory.written - memory.rows)
        self.segments = [each for each in self.segments if each["last"] > oldest]
        first = max(oldest, self.segments[-1]["last"] if self.segments else 0)
        step = max(1, PIECE * memory.rows // memory.bytes)
        for start in range(first, memory.written, step):
            stop = min(start + step, memory.written)
            self.segments.append(write_segment(self.folder, start, stop, _tensors(memory, start, stop)))
        return [Segment(**each) for each in self.segments]

    def load(self, memory: Ring, segments: list[Segment]) -> None:
        """Put the rows where they were; UserError where a file is missing or damaged."""
        columns, finals = _columns(memory), leaves(memory.final)
        for segment in segments:
            data, places = read_segment(self.folder, segment), _places(memory, segment["first"], segment["last"])
            for column in columns:
                values, data = take(data, (len(places), *column.shape[1:]), column)
                column[places] = values.to(column.device)
            slot, world = _cuts(memory, places)
            for column in finals:
                values, data = take(data, (len(slot), *column.shape[2:]), column)
                column[slot, world] = values.to(column.device)
        self.segments = [Segment(**each) for each in segments]


def _columns(memory: Ring) -> list[Tensor]:
    """Without extras, which may be rewritten."""
    return leaves(memory.table._replace(extras=()))


def _places(memory: Ring, first: int, last: int) -> Tensor:
    return torch.arange(first, last, device=memory.slot.device) % memory.rows


def _cuts(memory: Ring, places: Tensor) -> tuple[Tensor, Tensor]:
    """(slot, world) of the final observations that these rows left."""
    table = memory.table
    cut = table.truncated[places]
    if memory.keep_terminal:
        cut = cut | table.terminated[places]
    row, world = cut.nonzero(as_tuple=True)
    return table.slot[places][row, world], world


def _tensors(memory: Ring, first: int, last: int) -> list[Tensor]:
    places = _places(memory, first, last)
    slot, world = _cuts(memory, places)
    return [column[places] for column in _columns(memory)] + [column[slot, world] for column in leaves(memory.final)]
