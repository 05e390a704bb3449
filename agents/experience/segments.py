"""The rows of a memory on disk: append-only files, each written once and named by its hash.

A segment is a stretch of consecutive rows in one file. A checkpoint lists the segments of its memory, so it writes only
rows that are newer than the last checkpoint. Rows never change once written; data that changes (extras, priorities) is
in the checkpoint itself.

A file holds the raw bytes of the columns [T, N, ...] of its rows, one column after the other (all but `extras`, in the
order of `leaves`), then, for each column of final observations, the entries [cuts, ...] that these rows left.
"""

import hashlib
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Protocol, TypedDict

import torch
from torch import Tensor

from stride.agents.experience.nouns import Final, Row, leaves, rebuild, tree_map
from stride.runstore import run_files, run_names
from stride.utils.user_error import UserError

SEGMENT_BYTES = 64 << 20  # approximate size of a file


class Segment(TypedDict):
    """The rows [first, last) in one file, by absolute number; a checkpoint stores these keys."""

    file: str
    first: int
    last: int
    bytes: int
    sha256: str


class Ring(Protocol):
    """The part of a Memory that is needed to save and restore its rows."""

    table: Row
    final: Final
    slot: Tensor
    rows: int
    slots: int
    written: int

    @property
    def bytes(self) -> int: ...
    @property
    def oldest(self) -> int: ...
    def cut(self, row: Row) -> Tensor: ...


class SavedRows:
    """Saves and restores the rows of one memory; knows which segments are on disk already."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.segments: list[Segment] = []

    def save(self, memory: Ring) -> list[Segment]:
        """Write the new rows; return the segments of all stored rows, in order."""
        oldest_row = memory.oldest
        self.segments = [segment for segment in self.segments if segment["last"] > oldest_row]
        first_row = max(oldest_row, self.segments[-1]["last"] if self.segments else 0)
        rows_per_file = max(1, SEGMENT_BYTES * memory.rows // memory.bytes)
        for start_row in range(first_row, memory.written, rows_per_file):
            stop_row = min(start_row + rows_per_file, memory.written)
            self.segments.append(write_segment(self.folder, start_row, stop_row, _tensors(memory, start_row, stop_row)))
        return list(self.segments)

    def load(self, memory: Ring, segments: list[Segment]) -> None:
        """Restore the rows; raises UserError if a file is missing or damaged.

        Starts with the newest segment: a row's slot is the current slot minus the cuts since the row. The slot in the
        file may be wrong, because the memory may have had fewer slots when the file was written.
        """
        slots_after = memory.slot.clone()  # [N]: the slot after the rows that are not restored yet
        for segment in reversed(segments):
            slots_after = _restore(memory, segment, read_segment(self.folder, segment), slots_after)
        self.segments = list(segments)


def _restore(memory: Ring, segment: Segment, data: memoryview, slots_after: Tensor) -> Tensor:
    """Write one segment's rows and final observations into the memory; return the slots [N] before its first row."""
    stored_table = memory.table._replace(extras=())
    row_count = segment["last"] - segment["first"]
    column_values = []
    for table_column in leaves(stored_table):
        column_value, data = take(data, (row_count, *table_column.shape[1:]), table_column)
        column_values.append(column_value.to(table_column.device))
    restored_rows = rebuild(stored_table, iter(column_values))
    cut_flags = memory.cut(restored_rows)
    cuts_from = cut_flags.long().flip(0).cumsum(0).flip(0)  # cuts of each row and of later rows of this segment
    restored_rows = restored_rows._replace(slot=(slots_after - cuts_from) % memory.slots)
    skipped_rows = max(0, memory.oldest - segment["first"])  # rows that newer ones have replaced
    row_indices = _indices(memory, segment["first"] + skipped_rows, segment["last"])
    for table_column, column_value in zip(leaves(stored_table), leaves(restored_rows), strict=True):
        table_column[row_indices] = column_value[skipped_rows:]
    cut_steps, cut_worlds = cut_flags.nonzero(as_tuple=True)
    final_slots = restored_rows.slot[cut_steps, cut_worlds]
    is_stored = cut_steps >= skipped_rows
    for table_column in leaves(memory.final):
        column_value, data = take(data, (len(cut_steps), *table_column.shape[2:]), table_column)
        table_column[final_slots[is_stored], cut_worlds[is_stored]] = column_value.to(table_column.device)[is_stored]
    return slots_after - cuts_from[0]


def _indices(memory: Ring, first: int, last: int) -> Tensor:
    return torch.arange(first, last, device=memory.slot.device) % memory.rows


def _tensors(memory: Ring, first: int, last: int) -> list[Tensor]:
    """Return the tensors that a segment's file holds."""
    row_indices = _indices(memory, first, last)
    stored_rows = tree_map(lambda table_column: table_column[row_indices], memory.table._replace(extras=()))
    cut_steps, cut_worlds = memory.cut(stored_rows).nonzero(as_tuple=True)
    final_slots = stored_rows.slot[cut_steps, cut_worlds]
    return leaves(stored_rows) + [table_column[final_slots, cut_worlds] for table_column in leaves(memory.final)]


def write_segment(folder: Path, first: int, last: int, tensors: Iterable[Tensor]) -> Segment:
    """Write a file beside its final path, sync, rename; the same rows are the same file."""
    data = b"".join(to_bytes(tensor) for tensor in tensors)
    bytes_hash = hashlib.sha256(data).hexdigest()
    name = f"{first}-{last}-{bytes_hash[:16]}.rows"
    run_files.make_folder(folder)
    with run_files.replacing(folder / name) as file:  # also where a file of that name exists: it may be damaged
        file.write(data)
    return Segment(file=name, first=first, last=last, bytes=len(data), sha256=bytes_hash)


def read_segment(folder: Path, segment: Segment) -> memoryview:
    """Read a segment's file; raises UserError if it is missing or differs from its hash."""
    segment_path = folder / segment["file"]
    if segment_path.name != segment["file"] or not run_names.SEGMENT.fullmatch(segment_path.name):
        raise UserError(f"{segment_path.name[:80]!r} is not the name of a part of a replay memory")
    file_status = run_files.status(segment_path)
    if file_status is None:
        raise UserError(f"{segment_path} is missing: the replay memory of this checkpoint is incomplete")
    segment_bytes = run_files.read_bytes(segment_path) if file_status.st_size == segment["bytes"] else b""
    if len(segment_bytes) != segment["bytes"] or hashlib.sha256(segment_bytes).hexdigest() != segment["sha256"]:
        raise UserError(f"{segment_path} is damaged: its hash differs from the one in the checkpoint")
    return memoryview(bytearray(segment_bytes))


def to_bytes(tensor: Tensor) -> bytes:
    flat_tensor = tensor.detach().cpu().contiguous().view(-1)
    return flat_tensor.view(torch.uint8).numpy().tobytes() if flat_tensor.numel() else b""


def take(data: memoryview, shape: tuple[int, ...], like: Tensor) -> tuple[Tensor, memoryview]:
    """Split `data` into its first tensor, of this shape and `like`'s dtype, and the remaining bytes."""
    byte_count = prod(shape) * like.element_size()
    if not byte_count:
        return like.new_zeros(shape), data
    return torch.frombuffer(data[:byte_count], dtype=like.dtype).view(shape), data[byte_count:]


def delete_unnamed(folder: Path, named: Iterable[str]) -> list[str]:
    """Delete segments that no kept checkpoint refers to, and files of interrupted writes; return the deleted names."""
    unnamed = {name for name in run_files.list_names(folder) if run_names.SEGMENT.fullmatch(name)} - set(named)
    for name in sorted(unnamed):
        run_files.remove(folder / name)
    run_files.sweep(folder)
    return sorted(unnamed)
