"""The layout of metrics.mmap: offsets and sizes of its parts. The writer and the reader use it (docs/metrics_file.md).

The file has a header, the names of the metrics, two records (the newest numbers; one of them is always complete), and a
ring of the last points of each metric. Numbers are in the byte order of the machine that writes; on another one the
version does not match, and the reader refuses the file.
"""

import struct
from typing import NamedTuple

NAME = "metrics.mmap"
MAGIC, VERSION = b"\x89STRIDE\n", 1
BEGUN, TRAINING, PAUSED, ENDED = 1, 2, 3, 4  # states in a record
STATES = {BEGUN: "begun", TRAINING: "training", PAUSED: "paused", ENDED: "ended"}
MAX_METRICS, MAX_POINTS = 4096, 65536  # a reader refuses a header with more

PREFIX = struct.Struct("=8sII")  # magic, version, CRC of the rest of the header
# file size, metrics, points per metric, bytes of a name, bytes of a record; offsets of names, records and rings; pid,
# its start in clock ticks of the boot, boot, run; seconds since 1970, nanoseconds of the monotonic clock; facts' bytes
HEADER = struct.Struct("=Q4I3QqQ40s104sdQI4x")
FACTS = PREFIX.size + HEADER.size  # offset of the facts, JSON
HEADER_BYTES = 4096
HEARTBEAT = HEADER_BYTES  # offset of an 8-byte word: the last sign of life, in nanoseconds of the monotonic clock
NAMES = HEADER_BYTES + 64  # offset of the names
NAME_TEXT, CRC = 96, struct.Struct("=I")  # bytes of a name's text; a checksum
NAME_BYTES = NAME_TEXT + 8  # text, checksum, padding

SEQUENCE = struct.Struct("=Q")
CHECKED = 12  # offset in a record after sequence and CRC; the CRC is of the bytes from here on
# number of names, sequence again, time written; env steps, budget, iterations, updates, rows; state, open alerts,
# all alerts; current activity, result, line
RECORD = struct.Struct("=IQQ5q3I4x32s32s264s")
VALUES = CHECKED + RECORD.size  # offset in a record of the metrics' newest values
VALUE = struct.Struct("=ddQ")  # value, its step, number of values so far
POINT = struct.Struct("=ddI")  # step, value, number of the point modulo 2**32; the CRC of these follows
POINT_BYTES = POINT.size + CRC.size


class Layout(NamedTuple):
    """Offsets in bytes in a file with room for `metrics` metrics and `points` points of each."""

    metrics: int
    points: int

    @property
    def record_bytes(self) -> int:
        return _aligned(VALUES + VALUE.size * self.metrics)

    @property
    def records(self) -> int:
        return _aligned(NAMES + NAME_BYTES * self.metrics)

    @property
    def rings(self) -> int:
        return self.records + 2 * self.record_bytes

    @property
    def size(self) -> int:
        return self.rings + self.metrics * self.points * POINT_BYTES

    def record(self, sequence: int) -> int:
        """Return the offset of the record with this (even) sequence number; the two records take turns."""
        return self.records + (sequence // 2 % 2) * self.record_bytes

    def point(self, metric: int, number: int) -> int:
        """Return the offset of a metric's point; `number` counts from 1 and wraps around in the ring."""
        return self.rings + (metric * self.points + (number - 1) % self.points) * POINT_BYTES

    @property
    def offsets(self) -> tuple[int, ...]:
        """The numbers that the header contains, in its order."""
        section_offsets = (NAMES, self.records, self.rings)
        return (self.size, self.metrics, self.points, NAME_BYTES, self.record_bytes, *section_offsets)


def text_bytes(text: str, most: int) -> bytes:
    """Return the text as UTF-8, cut after a whole character so that a zero byte still fits into `most` bytes."""
    return text.encode("utf-8", "replace")[: most - 1].decode("utf-8", "ignore").encode()


def _aligned(size: int) -> int:
    """Round up to a multiple of 64 bytes, a cache line."""
    return -(-size // 64) * 64
