"""TensorBoard's event files, byte by byte: records with checksums, and the few messages of theirs that a run needs.

A record is the length of its data (8 bytes, little endian), a checksum of that, the data, a checksum of the data. The
data is a message in Protocol Buffers' encoding: fields, each a number and a kind, then the value. TensorBoard itself is
not needed to write them; its own reader reads them in tests.
"""

import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

import numpy as np

VERSION = b"brain.Event:2"
START = 1  # SessionLog: what was written with this step or a later one before is void
STRING = 7  # TensorProto
POLYNOMIAL, MASK, WORD = 0x82F63B78, 0xA282EAD8, 0xFFFFFFFF  # CRC-32C, reflected; what Google's formats add to it

LARGEST = 3.4028234e38  # of four bytes
BLOCK = 1024  # bytes


@cache
def tables() -> np.ndarray:
    """What a byte adds to the checksum of a block from each place of it: [from the block's end, byte]."""
    byte: np.ndarray = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        byte = byte >> 1 ^ np.where(byte & 1, np.uint32(POLYNOMIAL), np.uint32(0))
    places = [byte]
    while len(places) < BLOCK:
        places.append(places[-1] >> 8 ^ byte[places[-1] & 0xFF])
    return np.stack(places)


def checksum(data: bytes) -> int:
    """CRC-32C, a block at a time: it is linear, so a block's is the sum, without carry, of what each byte adds."""
    state = WORD
    while len(data) >= 4:
        block, data = data[:BLOCK], data[BLOCK:]
        head = int.from_bytes(block[:4], "little") ^ state  # what came before counts like the first four bytes
        numbers = np.frombuffer(head.to_bytes(4, "little") + block[4:], np.uint8)
        state = int(np.bitwise_xor.reduce(tables()[np.arange(len(block) - 1, -1, -1), numbers]))
    return _loop(data, state) ^ WORD


def _loop(data: bytes, state: int) -> int:
    """The plain way, for less than four bytes."""
    for byte in data:
        state = int(tables()[0][(state ^ byte) & 0xFF]) ^ state >> 8
    return state


def masked(data: bytes) -> bytes:
    """Rotated and shifted: a checksum of data that holds checksums would be weak."""
    value = checksum(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + MASK) & WORD)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; negative numbers as if of 64 bits."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def whole(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def single(number: int, value: float) -> bytes:
    """What four bytes cannot hold is infinite to them."""
    value = math.copysign(math.inf, value) if LARGEST < abs(value) < math.inf else value
    return varint(number << 3 | 5) + struct.pack("<f", value)


def part(number: int, data: bytes) -> bytes:
    """Text, bytes, or a message in a message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def event(seconds: float, step: int, content: bytes) -> bytes:
    """An Event as a record."""
    return record(double(1, seconds) + whole(2, step) + content)


def beginning(seconds: float) -> bytes:
    """The first record of a file."""
    return record(double(1, seconds) + part(3, VERSION))


def session(seconds: float, step: int) -> bytes:
    """From this step on nothing counts that earlier files hold."""
    return event(seconds, step, part(7, whole(1, START)))


def summary(seconds: float, step: int, values: Iterable[bytes]) -> bytes:
    return event(seconds, step, part(5, b"".join(part(1, value) for value in values)))


def scalars(values: Mapping[str, float]) -> Iterator[bytes]:
    """A Summary.Value each."""
    for tag, value in values.items():
        yield part(1, tag.encode()) + single(2, value)


def text(tag: str, words: str) -> bytes:
    """A Summary.Value that the page shows as Markdown."""
    shape = part(2, part(2, whole(1, 1)))
    tensor = whole(1, STRING) + shape + part(8, words.encode())
    return part(1, tag.encode()) + part(9, part(1, part(1, b"text"))) + part(8, tensor)


def image(tag: str, height: int, width: int, encoded: bytes) -> bytes:
    """A Summary.Value of a PNG or a GIF, which moves."""
    return part(1, tag.encode()) + part(4, whole(1, height) + whole(2, width) + whole(3, 3) + part(4, encoded))
