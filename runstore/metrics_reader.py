"""Reads metrics.mmap of a run at any moment, even while it is written or replaced, or after its writer died.

The file is read and never mapped: one that somebody cuts short is an error here and not the end of the process.
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

MAX_TRIES = 50  # to catch a record that is whole; one that is not there then is damaged
NANOSECOND = 1e-9


class WriterOrigin(NamedTuple):
    """The process that writes the file, and its start."""

    run: str
    pid: int
    boot: str
    started: int
    """clock ticks of the boot at which the process began; with pid and boot it is that process and no other"""
    wall: float
    """seconds since 1970 at which the file was made"""
    monotonic: float
    """the same instant, in seconds of the monotonic clock"""
    facts: dict[str, Any]
    """whatever the writer tells of the run: config_id, goal, first_step, .."""


class Latest(NamedTuple):
    """The newest value of a metric."""

    value: float
    step: float
    times: int
    """how often there was one"""


class Snapshot(NamedTuple):
    """One record of the file: all of it belongs to one instant."""

    sequence: int
    written: float
    """when, in seconds of the monotonic clock"""
    env_steps: int
    max_timesteps: int
    """0 where nobody knows"""
    iterations: int
    updates: int
    rows: int
    state: str
    """begun, training, paused or ended: in the writer's own words; a killed one has none left"""
    alerts_open: int
    alerts: int
    doing: str
    """beside training: evaluation, test"""
    result: str
    """how it ended: solved, not_solved, not_tested, trained, interrupted, failed; finished in a loop of one's own"""
    line: str
    values: dict[str, Latest]


class MetricsReader:
    """A run's metrics.mmap; UserError where it is none. Follows the file that takes its place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file, self.origin, self._layout = _open(path)
        self._names: list[str] = []

    def close(self) -> None:
        self._file.close()

    def read(self) -> Snapshot:
        """The newest whole record."""
        self._reopen_if_replaced()
        for attempt in range(MAX_TRIES):
            start, length = self._layout.records, self._layout.record_bytes
            both_records = self._bytes(start, 2 * length)
            complete = [
                record
                for record in (_checked_record(both_records[:length]), _checked_record(both_records[length:]))
                if record
            ]
            if complete:
                return self._snapshot(*max(complete))
            time.sleep(attempt * 1e-5)
        raise UserError(f"{self.path} is damaged: both of its records are incomplete")

    def history(self, name: str) -> list[tuple[float, float]]:
        """(step, value) of its last points, oldest first; [] for a metric it does not know."""
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
            if checksum == crc32(ring[offset : offset + at.POINT.size]):  # else it is being written, or never was
                ring_points.append((number, step, value))
        newest = max((number for number, _, _ in ring_points), default=0)
        ring_points.sort(key=lambda point: (point[0] - newest - 1) & 0xFFFFFFFF)  # numbers begin anew after 2**32
        return [(step, value) for _, step, value in ring_points]

    def silence(self) -> float:
        """Seconds since the writing process last gave a sign of life; infinite before a reboot."""
        if self.origin.boot != _boot():
            return float("inf")
        heartbeat = int.from_bytes(self._bytes(at.HEARTBEAT, 8), sys.byteorder)
        return max(0.0, time.monotonic() - heartbeat * NANOSECOND)

    def lives(self) -> bool:
        """Whether the very process that writes it is still there."""
        origin = self.origin
        return origin.pid > 0 and identity(origin.pid) == {
            "pid": origin.pid,
            "boot": origin.boot,
            "started": origin.started,
        }

    def _reopen_if_replaced(self) -> None:
        """Open the file that lies there now, where it is another one; a deleted one is read on."""
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
        """The names a record counts: they were there before it, and stay."""
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
    """A record that is whole, and its sequence."""
    (sequence,) = at.SEQUENCE.unpack_from(data)
    (checksum,) = at.CRC.unpack_from(data, at.SEQUENCE.size)
    name_count_read, second_sequence, *_ = at.RECORD.unpack_from(data, at.CHECKED)
    used = at.VALUES + name_count_read * at.VALUE.size
    if not sequence or sequence != second_sequence or used > len(data) or checksum != crc32(data[at.CHECKED : used]):
        return None
    return sequence, data


def _text(data: bytes) -> str:
    """Up to its first zero; what is not printable is not shown on anybody's terminal."""
    text = data.partition(b"\0")[0].decode("utf-8", "replace")
    return "".join(character if character.isprintable() else "?" for character in text)


@cache
def _boot() -> str:
    return str(identity(os.getpid())["boot"])
