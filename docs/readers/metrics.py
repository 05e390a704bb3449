"""The newest numbers of a run: python metrics.py runs/RUN/metrics.mmap (docs/metrics_file.md says what is read)."""

import struct
import sys
import zlib

with open(sys.argv[1], "rb") as file:
    data = file.read()
if data[:8] != b"\x89STRIDE\n" or struct.unpack_from("=I", data, 8) != (1,):
    sys.exit("not a metrics.mmap of version 1")
record_bytes, _, records = struct.unpack_from("=I2Q", data, 36)
whole = []
for start in (records, records + record_bytes):
    sequence, check, names, again = struct.unpack_from("=QIIQ", data, start)
    if sequence == again and check == zlib.crc32(data[start + 12 : start + 416 + 24 * names]):
        whole.append((sequence, start, names))
if not whole:
    sys.exit("no record is whole: read again")
_, start, names = max(whole)
print(f"env_steps {struct.unpack_from('=q', data, start + 32)[0]}")
for number in range(names):
    name = data[4160 + 104 * number :][:96].rstrip(b"\0").decode()
    value, step, count = struct.unpack_from("=ddQ", data, start + 416 + 24 * number)
    print(f"{name} {value:.9g} at {step:.15g}, {count} values")
