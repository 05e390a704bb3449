"""The bytes of metrics.mmap, as docs/metrics_file.md tells them: where each thing lies, and how large it is.

Numbers are in the byte order of the machine that writes; elsewhere the version is not readable, and the file refused.
"""

import struct
from typing import NamedTuple

NAME = "metrics.mmap"
MAGIC, VERSION = b"\x89STRIDE\n", 1
BEGUN, TRAINING, PAUSED, ENDED = 1, 2, 3, 4
STATES = {BEGUN: "begun", TRAINING: "training", PAUSED: "paused", ENDED: "ended"}
MAX_METRICS, MAX_POINTS = 4096, 65536  # what a reader believes a header

PREFIX = struct.Struct("=8sII")  # magic, version, CRC of the rest of the header
# file's size, metrics, points, a name's bytes, a record's bytes; where names, records and rings begin; pid, when it
# started in clock ticks of the boot, boot, run; seconds since 1970 and nanoseconds of the monotonic clock; facts' bytes
HEADER = struct.Struct("=Q4I3QqQ40s104sdQI4x")
FACTS = PREFIX.size + HEADER.size
HEADER_BYTES = 4096
HEARTBEAT = HEADER_BYTES  # a word of its own, in nanoseconds of the monotonic clock
NAMES = HEADER_BYTES + 64
NAME_TEXT, CRC = 96, struct.Struct("=I")
NAME_BYTES = NAME_TEXT + 8

SEQUENCE = struct.Struct("=Q")
CHECKED = 12  # of a record: from here on the CRC counts; it stands before, behind the sequence
# names, sequence again, when it was told; env steps, most of them, iterations, updates, rows; state, alerts open and
# so far; what it is doing, result, line
RECORD = struct.Struct("=IQQ5q3I4x32s32s264s")
VALUES = CHECKED + RECORD.size
VALUE = struct.Struct("=ddQ")  # value, its step, how often there was one
POINT = struct.Struct("=ddI")  # step, value, its number modulo 2**32; then the CRC of these
POINT_BYTES = POINT.size + CRC.size


class Layout(NamedTuple):
    """Offsets in a file with space for `metrics` metrics and `points` points of each."""

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
        """Where the record of this (even) sequence lies: they take turns."""
        return self.records + (sequence // 2 % 2) * self.record_bytes

    def point(self, metric: int, number: int) -> int:
        """Where the point of this number, from 1, of this metric lies."""
        return self.rings + (metric * self.points + (number - 1) % self.points) * POINT_BYTES

    @property
    def offsets(self) -> tuple[int, ...]:
        """As the header tells them."""
        section_offsets = (NAMES, self.records, self.rings)
        return (self.size, self.metrics, self.points, NAME_BYTES, self.record_bytes, *section_offsets)


def text_bytes(text: str, most: int) -> bytes:
    """As much of it, in whole characters, as fits with a zero behind it."""
    return text.encode("utf-8", "replace")[: most - 1].decode("utf-8", "ignore").encode()


def _aligned(size: int) -> int:
    """The next multiple of 64: a cache line."""
    return -(-size // 64) * 64
