"""An index that anybody may have written: `runs list` answers soon and rightly, whatever lies in its place.

STRIDE_DAMAGED=200 damages it in so many ways."""

import json
import os
import random
import sqlite3
import time
from contextlib import closing

import pytest

from lab.bench.runs import make
from runstore import run_index, run_shelf
from runstore.own_sqlite import OwnSqlite
from runstore.run_columns import NAMES, checksum_of
from runstore.run_index import RunIndex
from runstore.run_shelf import NAME, TABLES
from scripts import runs
from utils import entry

RUNS = 60
COUNT = int(os.environ.get("STRIDE_DAMAGED", "48"))
LONG = 10.0  # seconds: an index that is never done with
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
HOSTILE = ("\x1b]0;owned\x07", "\x1b[31mred", "two\nlines", "\u202egnp.exe", "\ud800", "x" * 10**6, "\x9b2J")
WRONG = (None, True, 5, -(10**400), 1e308, "x", "", [], [[]], {}, {"a": 1}, [1, 2], [["a"], 7], [[7], ""])
TYPED = ("id", "seen", "number", "status", "variant", "keys")
FOREIGN = (
    f"DROP TABLE columns; CREATE VIEW columns AS {ENDLESS} SELECT x AS name, x AS told, x AS checksum FROM c",
    f"DROP TABLE lines; CREATE VIEW lines AS {ENDLESS} SELECT x AS number, x AS id, x AS seen FROM c",
    "DROP TABLE columns; CREATE VIEW columns AS SELECT 'id' AS name, hex(zeroblob(4e8)) AS told, 1 AS checksum",
    f"CREATE VIEW more AS {ENDLESS} SELECT x FROM c",
    f"CREATE TRIGGER slow AFTER INSERT ON lines BEGIN INSERT INTO columns (name) {ENDLESS} SELECT x FROM c; END",
    f"CREATE TRIGGER slow AFTER DELETE ON lines BEGIN DELETE FROM cells WHERE key IN ({ENDLESS} SELECT x FROM c); END",
    "ALTER TABLE columns ADD COLUMN more AS (hex(zeroblob(1e8)))",
    "ALTER TABLE columns RENAME COLUMN told TO said",
    "CREATE INDEX more ON lines (hex(zeroblob(1e6)))",
    "DROP TABLE cells; CREATE TABLE cells (key, line, value, PRIMARY KEY (key, line), CHECK (key < zeroblob(1e8)))",
    "DROP TABLE cells",
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
    name = draw.choice(("lines", "columns", "cells"))
    with closing(sqlite3.connect(file)) as found:
        page = found.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [name]).fetchone()[0]
    text = bytearray(file.read_bytes())
    kind, count = 2 if name == "cells" else 5, 200
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
    table, column, where = draw.choice(
        (
            ("columns", "told", "1"),
            ("lines", "rest", "1"),
            ("lines", "id", "number = 7"),
            ("cells", "value", "line = 3"),
        )
    )
    size = draw.choice((10**5, 10**6, 5 * 10**7)) if table == "columns" else 10**6
    made = draw.choice(("zeroblob(?)", "hex(zeroblob(?))"))
    with closing(sqlite3.connect(file)) as found, found:
        found.execute(f"UPDATE {table} SET {column} = {made} WHERE {where}", [size])


def sealed(file, name, change):
    """A column changed by somebody who knows how checksums are made."""
    with closing(sqlite3.connect(file)) as found, found:
        [told] = found.execute("SELECT told FROM columns WHERE name = ?", [name]).fetchone()
        text = change(json.loads(told))
        found.execute("UPDATE columns SET told = ?, checksum = ? WHERE name = ?", [text, checksum_of(text), name])


def typed(file, draw):
    name, value = draw.choice(names := (*NAMES, "keys", "keys")), draw.choice(WRONG)
    while value is None or (name not in TYPED and value in (5, 1e308, "x", "")):
        name, value = draw.choice(names), draw.choice(WRONG)
    few = draw.choice((1, RUNS))
    if name == "keys":
        sealed(file, name, lambda keys: json.dumps({**keys, "policy_lr": draw.choice((value, [1, 2**70], ["a", 1]))}))
    else:
        sealed(file, name, lambda values: json.dumps([*values[: RUNS - few], *[value] * few]))


def nested(file, draw):
    depth = draw.choice((10**3, 10**5, 10**6))
    sealed(file, draw.choice((*NAMES, "keys")), lambda values: "[" * depth + "]" * depth)


def spoken(file, draw):
    """Texts for a terminal, in all columns and in the rows."""
    text = draw.choice(HOSTILE[:5])
    for name in ("status", "variant", "fault", "reason", "group", "result", "id", "tail.fault"):
        if draw.random() < 0.5 or name == "status":
            sealed(file, name, lambda values: json.dumps([*values[:-1], text]))
    with closing(sqlite3.connect(file)) as found, found:
        for number, run_id, seen, told, rest in found.execute(
            f"SELECT number, id, seen, [{run_shelf.FORM}], rest FROM lines"
        ).fetchall():
            line, rest = json.loads(told), json.loads(rest)
            line[0] = line[1] = rest[5] = text
            kept = (run_id, seen, json.dumps(rest), json.dumps(line))
            values = [kept[2], kept[3], checksum_of(*kept), number]
            found.execute(f"UPDATE lines SET rest = ?, [{run_shelf.FORM}] = ?, checksum = ? WHERE number = ?", values)


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
        in_file(file, f"CREATE VIEW columns AS {ENDLESS} SELECT x AS name, x AS told FROM c")
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


def test_what_another_has_changed_in_a_row_is_not_put_into_the_columns(root):
    """The rows are read by who writes the columns anew."""
    index = RunIndex()
    first = index.all()
    index.save()
    with sqlite3.connect(root / NAME) as found:
        found.execute(f"UPDATE lines SET [{run_shelf.FORM}] = replace([{run_shelf.FORM}], 'CartPole', 'Acrobot')")
    (root / first[0].id).rename(root / "20270101-000000-moved")
    for _ in range(2):
        index = RunIndex()
        assert [line.variant for line in index.all()] == [line.variant for line in first]
        index.save()


def test_a_question_that_comes_to_no_end_is_given_up(tmp_path):
    shelf = OwnSqlite(tmp_path / NAME, TABLES)
    with pytest.raises(sqlite3.OperationalError, match="interrupted"), shelf.opened(0.01) as file:
        file.execute(f"{ENDLESS} SELECT max(x) FROM c")
