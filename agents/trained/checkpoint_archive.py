"""Checks the format of a checkpoint file before torch reads it: a zip with tensors and one small pickle.

torch.save writes an uncompressed zip. Files made to attack the reader have compressed entries (zip bombs), a name
twice, links, TorchScript, or entries with other names.
"""

import re
import stat
import zipfile
from typing import BinaryIO

from stride.utils.user_error import UserError

ENTRY_NAME = re.compile(
    r"(?P<top>[^/\\]{1,200})/(data\.pkl|byteorder|version|\.format_version|\.storage_alignment|"
    r"data/\d{1,9}|\.data/serialization_id)"
)
MAX_ENTRIES, MAX_PICKLE_BYTES = 200_000, 64 << 20


def check_archive(file: BinaryIO, name: str) -> None:
    """UserError, beginning with `name`, unless the file is a zip as torch.save writes it."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, OverflowError) as error:
        raise UserError(f"{name} is damaged: {' '.join(str(error).split())[:100]}") from error
    # entries are not compressed, so their sizes together exceed the file's only if they overlap or are false
    file_bytes = file.seek(0, 2)
    if len(entries) > MAX_ENTRIES or sum(entry.file_size for entry in entries) > file_bytes:
        raise UserError(f"{name} declares more than its {file_bytes:,} bytes and was not loaded")
    entry_names: set[str] = set()
    folder_names: set[str] = set()
    for entry in entries:
        # external_attr has the Unix mode in its upper 16 bits; flag bit 1 means encryption
        name_match = ENTRY_NAME.fullmatch(entry.filename)
        if not name_match or entry.filename in entry_names or stat.S_ISLNK(entry.external_attr >> 16):
            raise UserError(f"{name} has {entry.filename[:60]!r}, which no checkpoint has, and was not loaded")
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise UserError(f"{name} is compressed or encrypted, unlike a checkpoint, and was not loaded")
        entry_names.add(entry.filename)
        folder_names.add(name_match["top"])
        if entry.filename.endswith("/data.pkl") and entry.file_size > MAX_PICKLE_BYTES:
            raise UserError(f"{name} has an index of {entry.file_size:,} bytes and was not loaded")
    if len(folder_names) != 1 or f"{next(iter(folder_names))}/data.pkl" not in entry_names:
        raise UserError(f"{name} is not a checkpoint: it has no index")
