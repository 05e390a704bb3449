"""An index that anybody may have written: `runs list` answers soon and rightly, whatever lies in its place.

STRIDE_DAMAGED=200 damages it in so many ways."""

import os
import random
import sqlite3
import time
import zlib
from contextlib import closing

import pytest

from lab.bench.runs import make
from stride.commands import runs
from stride.runstore import run_index
from stride.runstore.run_brief import COLUMNS, TEXT
from stride.runstore.run_index import RunIndex
from stride.runstore.run_shelf import HEAD, NAME, TABLES, OwnSqlite, _checksum_of, _copied
from stride.utils import entry

RUNS = 60
COUNT = int(os.environ.get("STRIDE_DAMAGED", "48"))
LONG = 10.0  # seconds: an index that is never done with
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
HOSTILE = ("\x1b]0;owned\x07", "\x1b[31mred", "two\nlines", "\u202egnp.exe", "\ud800", "x" * 10**6, "\x9b2J")
WRONG = (None, 5, -(2**63), 1e308, "x", "", b"x", 0.5)
FOREIGN = (
    f"DROP TABLE checksums; CREATE VIEW checksums AS {ENDLESS} SELECT x AS runs FROM c",
    f"DROP TABLE runs; CREATE VIEW runs AS {ENDLESS} SELECT x AS id, x AS seen FROM c",
    "DROP TABLE runs; CREATE VIEW runs AS SELECT 'id' AS id, hex(zeroblob(4e8)) AS seen",
    f"CREATE VIEW more AS {ENDLESS} SELECT x FROM c",
    f"CREATE TRIGGER slow AFTER INSERT ON runs BEGIN INSERT INTO checksums (runs) {ENDLESS} SELECT x FROM c; END",
    f"CREATE TRIGGER slow AFTER DELETE ON runs BEGIN DELETE FROM details WHERE id IN ({ENDLESS} SELECT x FROM c); END",
    "ALTER TABLE details ADD COLUMN more BLOB AS (hex(zeroblob(1e8)))",
    "ALTER TABLE details RENAME COLUMN contents TO said",
    "CREATE INDEX more ON runs (hex(zeroblob(1e6)))",
    "DROP TABLE details; CREATE TABLE details (id, seen, contents, checksum, CHECK (id < zeroblob(1e8)))",
    "DROP TABLE details",
    "CREATE VIRTUAL TABLE more USING fts5 (told)",
)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    monkeypatch.setattr(run_index, "SETTLED", -1)  # as if the runs had been made long ago
    make(tmp_path, RUNS)
    return tmp_path


def said(capsys, *words):
    assert entry.ended(runs.main, ["list", *words]) == 0
    told, wrong = capsys.readouterr()
    assert told.replace("\n", "").isprintable() and wrong.replace("\n", "").isprintable()
    return told


def in_file(file, *statements, **more):
    with closing(sqlite3.connect(file, isolation_level=None)) as found:
        for each in statements:
            found.executescript(each)
        for text, values in more.items():
            found.execute(text, values)


def flipped(file, draw):
    text = bytearray(file.read_bytes())
    for _ in range(draw.choice((1, 3, 30, 300))):
        place = draw.randrange(draw.choice((100, 4096, len(text))))
        text[place] = draw.randrange(256)
    file.write_bytes(text)


def cut(file, draw):
    text = file.read_bytes()
    first, last = sorted(draw.randrange(len(text)) for _ in range(2))
    file.write_bytes(draw.choice((text[:first], text[first:], text[:first] + text[last:], text + text[:first])))


def crossed(file, draw):
    """Pages in the place of others: trees with circles."""
    text = bytearray(file.read_bytes())
    pages = len(text) // 4096
    for _ in range(draw.choice((1, 2, 5))):
        to, of = 4096 * draw.randrange(1, pages), 4096 * draw.randrange(1, pages)
        text[to : to + 4096] = text[of : of + 4096]
    file.write_bytes(text)


def circle(file, draw):
    """The tree of a table of which each page has itself for its children, twenty deep."""
    name = draw.choice(("runs", "details", "checksums"))
    with closing(sqlite3.connect(file)) as found:
        page = found.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [name]).fetchone()[0]
    text = bytearray(file.read_bytes())
    kind, count = 2 if name == "runs" else 5, 200
    head = bytes([kind, 0, 0]) + count.to_bytes(2, "big") + (4096 - 5 * count).to_bytes(2, "big") + b"\0"
    head += page.to_bytes(4, "big") + b"".join((4096 - 5 * (n + 1)).to_bytes(2, "big") for n in range(count))
    cells = b"".join(page.to_bytes(4, "big") + bytes([n % 128]) for n in range(count))
    text[4096 * (page - 1) : 4096 * page] = head.ljust(4096 - len(cells), b"\0") + cells
    file.write_bytes(text)


def foreign(file, draw):
    in_file(file, draw.choice(FOREIGN))


def large(file, draw):
    if draw.random() < 0.3:
        return os.truncate(file, 1 << 40)
    column, where = draw.choice(
        (("contents", "true"), ("contents", "id = (SELECT min(id) FROM details)"), ("id", "true"))
    )
    size = draw.choice((10**5, 10**6, 5 * 10**7)) if where != "true" else 10**6
    with closing(sqlite3.connect(file)) as found, found:
        made = "hex(zeroblob(?))" if column == "contents" else "id || hex(zeroblob(?))"
        found.execute(f"UPDATE details SET {column} = {made} WHERE {where}", [size])


def sealed(file, *statements):
    """Changed by somebody who knows how checksums are made, and does not ask SQLite whether a type is right."""
    with closing(sqlite3.connect(file)) as found, found:
        found.execute("PRAGMA writable_schema = ON")
        found.execute("UPDATE sqlite_master SET sql = replace(replace(sql, ' STRICT', ''), ' NOT NULL', '')")
    with closing(sqlite3.connect(file)) as found:
        found.execute("PRAGMA ignore_check_constraints = ON")
        with found:
            for text, values in statements:
                found.execute(text, values)
    with closing(sqlite3.connect(file)) as found, found:
        found.execute("PRAGMA writable_schema = ON")
        for name, text in TABLES.items():
            found.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", [text, name])
    with closing(sqlite3.connect(file)) as found:
        found.execute("ATTACH ':memory:' AS copy")
        try:
            checksum = zlib.crc32(_copied(found, "copy")[HEAD:])
        except sqlite3.Error:  # of a wrong type, which is looked at first
            return
        found.execute("UPDATE checksums SET runs = ?", [checksum])
        details = found.execute("SELECT id, seen, contents FROM details").fetchall()
        found.executemany(
            "UPDATE details SET checksum = ? WHERE id = ?", [(_checksum_of(*row), row[0]) for row in details]
        )
        found.commit()


def typed(file, draw):
    name, value = draw.choice([*COLUMNS]), draw.choice(WRONG)
    kind = COLUMNS[name]
    while right(kind, value):
        value = draw.choice(WRONG)
    where = (
        draw.choice(("true", "id = (SELECT max(id) FROM runs)")) if name != "id" else "id = (SELECT max(id) FROM runs)"
    )
    sealed(file, (f"UPDATE runs SET [{name}] = ? WHERE {where}", [value]))


def right(kind, value):
    """Whether a column takes it."""
    if kind.startswith("TEXT"):
        return isinstance(value, str | int | float)  # a number becomes its text
    if kind.startswith("INTEGER"):
        return isinstance(value, int) or (value is None and "NOT NULL" not in kind)
    return isinstance(value, int | float | None)


def nested(file, draw):
    """Details that no decoder comes to the end of, or of other types than are written."""
    depth = draw.choice((10**3, 10**5, 10**6))
    value = draw.choice(("[" * depth + "]" * depth, "[1", '{"a": 1}', "true", "1e999", str(10**40), "nul"))
    sealed(
        file,
        ("UPDATE details SET contents = replace(contents, '\"policy_lr\": ', ?)", [f'"policy_lr": {value}, "x": ']),
    )


def spoken(file, draw):
    """Texts for a terminal."""
    text = draw.choice(HOSTILE[:4])
    names = [name for name, kind in COLUMNS.items() if kind == TEXT and name not in ("folder", "config", "metrics")]
    chosen = draw.sample([name for name in names if name != "checkpoints"], 3)
    sealed(file, *((f"UPDATE runs SET [{name}] = ? WHERE seed > 3", [text]) for name in chosen))


def beside(file, draw):
    side = f"{file}{draw.choice(('-journal', '-wal', '-shm'))}"
    kind = draw.choice(("fifo", "folder", "garbage", "link", "large"))
    if kind == "fifo":
        os.mkfifo(side)
    elif kind == "folder":
        os.mkdir(side)
    elif kind == "link":
        os.symlink("/dev/zero", side)
    else:
        with open(side, "wb") as out:
            out.write(bytes.fromhex("d9d505f920a163d7") + os.urandom(5000))
            out.truncate(1 << (40 if kind == "large" else 13))


def replaced(file, draw):
    file.unlink()
    kind = draw.choice(("fifo", "folder", "empty", "device", "zeros", "database"))
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "database":
        in_file(file, f"CREATE VIEW runs AS {ENDLESS} SELECT x AS id, x AS seen FROM c")
    else:
        file.write_bytes(b"\0" * (kind == "zeros") * 10**6)


WAYS = (flipped, cut, crossed, circle, foreign, large, typed, nested, spoken, beside, replaced, flipped)


@pytest.mark.parametrize("number", range(COUNT))
def test_whatever_lies_there_a_list_is_soon_right_and_harmless(root, number, capsys):
    draw = random.Random(number)
    said(capsys)
    file = root / NAME
    file.unlink()
    right = said(capsys)
    by_key = said(capsys, "--filter", "policy_lr<1", "--columns", "id,policy_lr")
    way = WAYS[number % len(WAYS)]
    way(file, draw)
    for words, answer in (((), right), (("--filter", "policy_lr<1", "--columns", "id,policy_lr"), by_key), ((), right)):
        began = time.perf_counter()
        told = said(capsys, *words)
        took = time.perf_counter() - began
        assert took < LONG, way.__name__
        assert told == answer, way.__name__
        with capsys.disabled():
            if COUNT > 48:
                print(f"\n{number} {way.__name__} {' '.join(words)} {took:.2f} s", end="")


def test_what_another_has_changed_is_not_sealed_by_who_writes_next(root):
    index = RunIndex()
    first = index.all()
    index.save()
    early = RunIndex()
    early.refresh()
    with sqlite3.connect(root / NAME) as found:
        found.execute("UPDATE runs SET variant = replace(variant, 'CartPole', 'Acrobot')")
    (root / first[0].id).rename(root / "20270101-000000-moved")
    for index in (early, RunIndex(), RunIndex()):
        assert [line.variant for line in index.all()] == [line.variant for line in first]
        index.save()


def test_a_question_that_comes_to_no_end_is_given_up(tmp_path):
    shelf = OwnSqlite(tmp_path / NAME, TABLES)
    with pytest.raises(sqlite3.OperationalError, match="interrupted"), shelf.opened(0.01) as file:
        file.execute(f"{ENDLESS} SELECT max(x) FROM c")
