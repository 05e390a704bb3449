"""Read metrics.mmap of a run at any time, even while it is written or replaced, or after its writer died.

The monitor and run_state use it. The file is read, not mapped: if somebody shortens a mapped file, the
reading process is killed (SIGBUS); with reads that is an ordinary error.
"""

import json
import os
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

from stride.runstore import metrics_layout as at
from stride.runstore import run_files
from stride.runstore.run_facts import mapping
from stride.runstore.run_lock import identity
from stride.utils.user_error import UserError

MAX_TRIES = 50  # attempts to find a complete record; after that the file counts as damaged
NANOSECOND = 1e-9


class WriterOrigin(NamedTuple):
    """The process that writes the file, and when it started."""

    run: str
    pid: int
    boot: str
    started: int
    """its start in clock ticks of the boot; pid, boot and start identify the process"""
    wall: float
    """when the file was created, in seconds since 1970"""
    monotonic: float
    """the same instant, in seconds of the monotonic clock"""
    facts: dict[str, Any]
    """what the writer says about the run: config_id, goal, first_step, .."""


class Latest(NamedTuple):
    """The newest value of a metric, its step in env steps, and how many values there were."""

    value: float
    step: float
    times: int


class Snapshot(NamedTuple):
    """One record of the file; all its values belong to the same moment."""

    sequence: int
    written: float
    """when it was written, in seconds of the monotonic clock"""
    env_steps: int
    max_timesteps: int
    """the budget in env steps; 0 if unknown"""
    iterations: int
    updates: int
    rows: int
    state: str
    """begun, training, paused or ended, as the writer states it; a killed writer cannot state anything"""
    alerts_open: int
    alerts: int
    doing: str
    """what it does besides training: evaluation, test; "" otherwise"""
    result: str
    """how it ended: solved, not_solved, not_tested, trained, interrupted, failed; finished for a user's own loop"""
    line: str
    values: dict[str, Latest]


class MetricsReader:
    """Reads a run's metrics.mmap; UserError if it is not one. If the file is replaced, the new one is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file, self.origin, self._layout = _open(path)
        self._names: list[str] = []

    def close(self) -> None:
        self._file.close()

    def read(self) -> Snapshot:
        """Return the newest complete record."""
        self._reopen_if_replaced()
        for attempt in range(MAX_TRIES):
            start, length = self._layout.records, self._layout.record_bytes
            both_records = self._bytes(start, 2 * length)
            records = (_checked_record(both_records[:length]), _checked_record(both_records[length:]))
            complete = [record for record in records if record]
            if complete:
                return self._snapshot(*max(complete))
            time.sleep(attempt * 1e-5)
        raise UserError(f"{self.path} is damaged: both of its records are incomplete")

    def history(self, name: str) -> list[tuple[float, float]]:
        """Return (step, value) of a metric's last points, oldest first; [] if the file does not have the metric."""
        if name not in self._names:
            self.read()
        if name not in self._names:
            return []
        start = self._layout.point(self._names.index(name), 1)
        ring = self._bytes(start, self._layout.points * at.POINT_BYTES)
        ring_points = []
        for offset in range(0, len(ring), at.POINT_BYTES):
            step, value, number = at.POINT.unpack_from(ring, offset)
            (checksum,) = at.CRC.unpack_from(ring, offset + at.POINT.size)
            # another checksum: the point is being written just now, or was never written
            if checksum == crc32(ring[offset : offset + at.POINT.size]):
                ring_points.append((number, step, value))
        newest = max((number for number, _, _ in ring_points), default=0)
        ring_points.sort(key=lambda point: (point[0] - newest - 1) & 0xFFFFFFFF)  # numbers wrap around at 2**32
        return [(step, value) for _, step, value in ring_points]

    def silence(self) -> float:
        """Return seconds since the writing process's last sign of life; infinity if the machine was rebooted since."""
        if self.origin.boot != _boot():
            return float("inf")
        heartbeat = int.from_bytes(self._bytes(at.HEARTBEAT, 8), sys.byteorder)
        return max(0.0, time.monotonic() - heartbeat * NANOSECOND)

    def lives(self) -> bool:
        """Whether the process that writes the file is still running."""
        origin = self.origin
        return origin.pid > 0 and identity(origin.pid) == {
            "pid": origin.pid,
            "boot": origin.boot,
            "started": origin.started,
        }

    def _reopen_if_replaced(self) -> None:
        """Open the file again if another one now has its path; a deleted one stays readable."""
        try:
            current = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return
        if not os.path.samestat(current, os.fstat(self._file.fileno())):
            file, self.origin, self._layout = _open(self.path)
            self._file.close()
            self._file, self._names = file, []

    def _bytes(self, start: int, length: int) -> bytes:
        data = os.pread(self._file.fileno(), length, start)
        if len(data) < length:
            raise UserError(f"{self.path} was shortened while it was read")
        return data

    def _snapshot(self, sequence: int, record: bytes) -> Snapshot:
        """Unpack a complete record."""
        count, _, written, *clock, state, alerts_open, alerts, doing, result, line = at.RECORD.unpack_from(
            record, at.CHECKED
        )
        env_steps, max_timesteps, iterations, updates, rows = clock
        self._read_names(count)
        values = at.VALUE.iter_unpack(record[at.VALUES : at.VALUES + count * at.VALUE.size])
        latest = {name: Latest(*value) for name, value in zip(self._names[:count], values, strict=True)}
        return Snapshot(
            sequence, written * NANOSECOND, env_steps, max_timesteps, iterations, updates, rows,
            at.STATES.get(state, "unknown"), alerts_open, alerts, _text(doing), _text(result), _text(line), latest,
        )  # fmt: skip

    def _read_names(self, count: int) -> None:
        """Read names until `count` are known. A name is written before a record counts it, and never changes."""
        name_count = len(self._names)
        if count > name_count:
            data = self._bytes(at.NAMES + name_count * at.NAME_BYTES, (count - name_count) * at.NAME_BYTES)
            for start in range(0, len(data), at.NAME_BYTES):
                text = data[start : start + at.NAME_TEXT]
                if at.CRC.unpack_from(data, start + at.NAME_TEXT)[0] != crc32(text):
                    raise UserError(f"{self.path} is damaged: the name of metric {len(self._names) + 1} is incomplete")
                self._names.append(_text(text))


def _open(path: Path) -> tuple[BinaryIO, WriterOrigin, at.Layout]:
    file = run_files.open_file(path)
    try:
        return file, *_header(path, file.fileno())
    except BaseException:
        file.close()
        raise


def _header(path: Path, descriptor: int) -> tuple[WriterOrigin, at.Layout]:
    """Read and check the header; UserError if the file is not a metrics file, of another version or damaged."""
    data = os.pread(descriptor, at.HEADER_BYTES, 0)
    if len(data) < at.HEADER_BYTES or not data.startswith(at.MAGIC):
        raise UserError(f"{path} is not a metrics file")
    _, version, checksum = at.PREFIX.unpack_from(data)
    if version != at.VERSION:
        raise UserError(f"{path} has version {version}, but this Stride reads version {at.VERSION}")
    size, metrics, points, *rest = at.HEADER.unpack_from(data, at.PREFIX.size)
    layout = at.Layout(metrics, points)
    *offsets, pid, started, boot, run, wall, monotonic, length = rest
    sound = checksum == crc32(data[at.PREFIX.size :]) and 0 < metrics <= at.MAX_METRICS and 0 < points <= at.MAX_POINTS
    if not sound or (size, metrics, points, *offsets) != layout.offsets or os.fstat(descriptor).st_size != size:
        raise UserError(f"{path} is damaged: its header is incomplete")
    try:
        facts = mapping(json.loads(data[at.FACTS : at.FACTS + length]))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: its facts are not JSON") from error
    return WriterOrigin(_text(run), pid, _text(boot), started, wall, monotonic * NANOSECOND, facts), layout


def _checked_record(data: bytes) -> tuple[int, bytes] | None:
    """Return a record's sequence number and its bytes, None if it is not complete."""
    (sequence,) = at.SEQUENCE.unpack_from(data)
    (checksum,) = at.CRC.unpack_from(data, at.SEQUENCE.size)
    name_count_read, second_sequence, *_ = at.RECORD.unpack_from(data, at.CHECKED)
    used = at.VALUES + name_count_read * at.VALUE.size
    if not sequence or sequence != second_sequence or used > len(data) or checksum != crc32(data[at.CHECKED : used]):
        return None
    return sequence, data


def _text(data: bytes) -> str:
    """Return the text up to its first zero byte, with ? for what is not printable (it may reach a terminal)."""
    text = data.partition(b"\0")[0].decode("utf-8", "replace")
    return "".join(character if character.isprintable() else "?" for character in text)


@cache
def _boot() -> str:
    return str(identity(os.getpid())["boot"])
