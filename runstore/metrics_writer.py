"""Write metrics.mmap during a training: its state and newest numbers, for monitors. A row costs microseconds.

Readers never wait for the writer nor the writer for readers: of the two records, one is always complete. No torch.
"""

import json
import logging
import mmap
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

from stride.runstore import metrics_layout as at
from stride.runstore import run_files
from stride.runstore.run_lock import identity

log = logging.getLogger("stride")
HEART_SECONDS = 1.0  # between two heartbeats
WORD_BYTES = 8  # the file is also mapped as 8-byte words, which are written in one step


class MetricsWriter:
    """Creates the file, replacing an older one, and writes into it until `end`. Any thread may call any method.

    `facts` are stored in the header: plain data of at most 3.8 kB as JSON. Metrics beyond the first `metrics` are left
    out. `points`: points stored of each metric.
    """

    def __init__(self, path: Path, run: str, facts: Mapping[str, object], metrics: int = 64, points: int = 128) -> None:
        self._layout, self._lock = at.Layout(metrics, points), threading.Lock()
        self._indices: dict[str, int] = {}
        self._counts: list[int] = []
        self._record = bytearray(self._layout.record_bytes)
        self._sequence = 0
        self.env_steps = self.max_timesteps = self.iterations = self.updates = self.rows = 0
        self._state, self._alerts, self._texts = at.BEGUN, (0, 0), (b"", b"", b"")
        self._pid = os.getpid()
        with run_files.replacing(path, sync_name=False) as file:
            file.write(self._initial_bytes(run, facts))
        with run_files.open_to_write(path) as file:
            self._map = mmap.mmap(file.fileno(), self._layout.size)
        self._words = memoryview(self._map).cast("Q")
        self._publish()
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._heart.start()

    def row(self, step: float, values: Mapping[str, float]) -> None:
        """Store a row of metrics at this env step; NaN is allowed."""
        with self._lock:
            self._state, self._texts = at.TRAINING, (b"", *self._texts[1:])
            self.env_steps, self.rows = int(step), self.rows + 1
            self._write(step, values)
            self._publish()

    def progress(self, env_steps: int, iterations: int, updates: int, doing: str = "") -> None:
        """Store the clock between two rows, and what the process does besides training ("evaluation")."""
        with self._lock:
            self.env_steps, self.iterations, self.updates = env_steps, iterations, updates
            self._texts = (at.text_bytes(doing, 32), *self._texts[1:])
            self._publish()

    def say(self, line: str, state: int = 0, alerts: tuple[int, int] | None = None) -> None:
        """Store a line about the state, and, if given, a new state and (open alerts, all alerts)."""
        with self._lock:
            self._texts = (*self._texts[:2], at.text_bytes(line, 264))
            self._state, self._alerts = state or self._state, alerts or self._alerts
            self._publish()

    def end(self, result: str, line: str) -> None:
        """Store the result and a last line, and close the file, which stays on disk."""
        if self._ended.is_set():
            return
        self._ended.set()
        if os.getpid() == self._pid:  # a forked process does not have the thread
            self._heart.join()
        with self._lock:
            self._state = at.ENDED
            self._texts = (b"", at.text_bytes(result, 32), at.text_bytes(line, 264))
            self._publish()
            self._words.release()
            self._map.close()

    def _beat(self) -> None:
        while not self._ended.wait(HEART_SECONDS):
            self._words[at.HEARTBEAT // WORD_BYTES] = time.monotonic_ns()

    def _initial_bytes(self, run: str, facts: Mapping[str, object]) -> bytearray:
        """Return the bytes of the whole file, with header, first record and heartbeat."""
        data = bytearray(self._layout.size)
        facts_json = json.dumps(facts).encode()
        if at.FACTS + len(facts_json) > at.HEADER_BYTES:
            raise ValueError(f"facts of {len(facts_json):,} bytes do not fit into the header")
        process = identity(self._pid)
        writer_values = (
            self._pid,
            process["started"],
            process["boot"].encode(),
            at.text_bytes(run, 104),
            time.time(),
            time.monotonic_ns(),
        )
        at.HEADER.pack_into(data, at.PREFIX.size, *self._layout.offsets, *writer_values, len(facts_json))
        data[at.FACTS : at.FACTS + len(facts_json)] = facts_json
        checksum = crc32(memoryview(data)[at.PREFIX.size : at.HEADER_BYTES])
        at.PREFIX.pack_into(data, 0, at.MAGIC, at.VERSION, checksum)
        sequence = self._fill_record()
        start = self._layout.record(sequence)
        data[start : start + len(self._record)] = self._record
        at.SEQUENCE.pack_into(data, start, sequence)
        at.SEQUENCE.pack_into(data, at.HEARTBEAT, time.monotonic_ns())
        return data

    def _add_metric(self, metric_name: str) -> int:
        """Store a metric's name and return its index, -1 if the file is full. The next record counts the name."""
        metric_index = len(self._counts)
        name_bytes = metric_name.encode()
        if metric_index == self._layout.metrics or len(name_bytes) > at.NAME_TEXT:
            log.warning(f"{at.NAME} is full: monitors will not show {metric_name}")
            self._indices[metric_name] = -1
            return -1
        name_bytes = name_bytes.ljust(at.NAME_TEXT, b"\0")
        start = at.NAMES + metric_index * at.NAME_BYTES
        self._map[start : start + at.NAME_TEXT + at.CRC.size] = name_bytes + at.CRC.pack(crc32(name_bytes))
        self._indices[metric_name] = metric_index
        self._counts.append(0)
        return metric_index

    def _write(self, step: float, values: Mapping[str, float]) -> None:
        """Write points into their rings, and the newest values into the next record. Fast, as rows are many."""
        # local names are faster than attributes
        indices, counts = self._indices, self._counts
        ring_size, rings_start, point_bytes = self._layout.points, self._layout.rings, at.POINT_BYTES
        pack_point, pack_value_into, pack_checksum = at.POINT.pack, at.VALUE.pack_into, at.CRC.pack
        for metric_name, value in values.items():
            metric_index = indices[metric_name] if metric_name in indices else self._add_metric(metric_name)
            if metric_index < 0:
                continue
            value_count = counts[metric_index] = counts[metric_index] + 1
            point = pack_point(step, value, value_count & 0xFFFFFFFF)
            start = rings_start + (metric_index * ring_size + (value_count - 1) % ring_size) * point_bytes
            self._map[start : start + point_bytes] = point + pack_checksum(crc32(point))
            pack_value_into(self._record, at.VALUES + metric_index * at.VALUE.size, value, step, value_count)

    def _fill_record(self) -> int:
        """Complete the next record, except for its first word, the sequence number, which is returned."""
        self._sequence += 2
        numbers = (self.env_steps, self.max_timesteps, self.iterations, self.updates, self.rows)
        head_values = (len(self._counts), self._sequence, time.monotonic_ns(), *numbers, self._state, *self._alerts)
        at.RECORD.pack_into(self._record, at.CHECKED, *head_values, *self._texts)
        used = at.VALUES + at.VALUE.size * len(self._counts)
        at.CRC.pack_into(self._record, at.SEQUENCE.size, crc32(memoryview(self._record)[at.CHECKED : used]))
        return self._sequence

    def _publish(self) -> None:
        """Copy the record over the older one in the file. Its first word is odd while the copy is incomplete."""
        if os.getpid() != self._pid:  # in a forked process: the file belongs to the parent
            return
        sequence = self._fill_record()
        start = self._layout.record(sequence)
        self._words[start // WORD_BYTES] = sequence + 1
        used = at.VALUES + at.VALUE.size * len(self._counts)
        self._map[start + WORD_BYTES : start + used] = self._record[WORD_BYTES:used]
        self._words[start // WORD_BYTES] = sequence
        self._words[at.HEARTBEAT // WORD_BYTES] = time.monotonic_ns()
