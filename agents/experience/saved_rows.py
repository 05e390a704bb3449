"""A memory's rows as segments: which are on disk already, which are new, and how they come back.

The files themselves are segments.py's; when they are written is a checkpoint's business.
"""

from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from stride.agents.experience.nouns import Final, Row, leaves, rebuild, tree_map
from stride.agents.experience.segments import PIECE, Segment, read_segment, take, write_segment


class Ring(Protocol):
    """What is read of a Memory, and written when its rows come back."""

    table: Row
    final: Final
    slot: Tensor
    rows: int
    slots: int
    written: int
    keep_terminal: bool

    @property
    def bytes(self) -> int: ...


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
        """Put the rows where they were; UserError where a file is missing or damaged.

        The newest first: a row's slot is told by how many cuts came since. The one in its file is of the day it was
        written, when there may have been fewer slots.
        """
        form, finals, behind = memory.table._replace(extras=()), leaves(memory.final), memory.slot.clone()
        oldest = max(0, memory.written - memory.rows)
        for segment in reversed(segments):
            data, values = read_segment(self.folder, segment), []
            for column in leaves(form):
                value, data = take(data, (segment["last"] - segment["first"], *column.shape[1:]), column)
                values.append(value.to(column.device))
            row = rebuild(form, iter(values))
            cut = _cut(row, memory.keep_terminal)
            since = cut.long().flip(0).cumsum(0).flip(0)
            slot = (behind - since) % memory.slots
            behind -= since[0]
            gone = max(0, oldest - segment["first"])  # rows in whose places newer ones lie
            places = _places(memory, segment["first"] + gone, segment["last"])
            for column, value in zip(leaves(form), leaves(row._replace(slot=slot)), strict=True):
                column[places] = value[gone:]
            step, world = cut.nonzero(as_tuple=True)
            kept = step >= gone
            for column in finals:
                value, data = take(data, (len(step), *column.shape[2:]), column)
                column[slot[step, world][kept], world[kept]] = value.to(column.device)[kept]
        self.segments = [Segment(**each) for each in segments]


def _places(memory: Ring, first: int, last: int) -> Tensor:
    return torch.arange(first, last, device=memory.slot.device) % memory.rows


def _cut(row: Row, keep_terminal: bool) -> Tensor:
    """Which of these rows left a final observation."""
    return row.truncated | row.terminated if keep_terminal else row.truncated


def _tensors(memory: Ring, first: int, last: int) -> list[Tensor]:
    row = tree_map(lambda column: column[_places(memory, first, last)], memory.table._replace(extras=()))
    step, world = _cut(row, memory.keep_terminal).nonzero(as_tuple=True)
    return leaves(row) + [column[row.slot[step, world], world] for column in leaves(memory.final)]
