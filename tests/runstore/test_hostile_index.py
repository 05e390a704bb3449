"""An index that anybody may have written: `runs list` answers rightly, whatever lies in its place.

STRIDE_DAMAGED=200 damages it in so many ways."""

import os
import random
import sqlite3
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
COUNT = int(os.environ.get("STRIDE_DAMAGED", "40"))
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
HOSTILE = ("\x1b]0;owned\x07", "\x1b[31mred", "two\nlines", "\u202egnp.exe")
JOURNAL = bytes.fromhex("d9d505f920a163d7")
WRONG = {"TEXT": (None, b"x"), "INTEGER": ("x", "", b"x", 0.5, 1e308), "REAL": ("x", "", b"x")}
FOREIGN = (
    f"DROP TABLE checksums; CREATE VIEW checksums AS {ENDLESS} SELECT x AS runs FROM c",
    "DROP TABLE runs; CREATE VIEW runs AS SELECT 'id' AS id, hex(zeroblob(4e8)) AS seen",
    f"CREATE TRIGGER slow AFTER DELETE ON runs BEGIN DELETE FROM details WHERE id IN ({ENDLESS} SELECT x FROM c); END",
    "ALTER TABLE details ADD COLUMN more BLOB AS (hex(zeroblob(1e8)))",
    "CREATE INDEX more ON runs (hex(zeroblob(1e6)))",
    "DROP TABLE details",
    "CREATE VIRTUAL TABLE more USING fts5 (told)",
)


@pytest.fixture(autouse=True)
def runs_there(root, monkeypatch):
    monkeypatch.setattr(run_index, "SETTLED", -1)  # as if the runs had been made long ago
    make(root, RUNS)


def said(capsys, *words):
    assert entry.ended(runs.main, ["list", *words]) == 0
    out, err = capsys.readouterr()
    assert (out + err).replace("\n", "").isprintable()
    return out


def in_file(file, statements):
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.executescript(statements)


EDITS = (
    "UPDATE runs SET variant = 'x'", "DELETE FROM runs WHERE seed = 3", "DELETE FROM checksums",
    "UPDATE details SET contents = replace(contents, 'policy_lr', 'gamma')",
    "DELETE FROM details WHERE id LIKE '%-s3-%'",
)  # fmt: skip


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


def circle(file, draw):
    """The tree of a table of which each page has itself for its children, twenty deep."""
    name = draw.choice(("runs", "details", "checksums"))
    with closing(sqlite3.connect(file)) as database:
        page = database.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [name]).fetchone()[0]
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
    size = draw.choice((10**5, 10**6, 5 * 10**7))
    changes = [
        "contents = hex(zeroblob(1e6))",
        "id = id || hex(zeroblob(1e6))",
        f"contents = hex(zeroblob({size})) WHERE id = (SELECT min(id) FROM details)",
    ]
    if draw.random() < 0.3:
        os.truncate(file, 1 << 40)
    else:
        in_file(file, f"UPDATE details SET {draw.choice(changes)}")


def sealed(file, *statements):
    """Changed by somebody who knows how checksums are made, and does not ask SQLite whether a type is right."""
    loose = "UPDATE sqlite_master SET sql = replace(replace(sql, ' STRICT', ''), ' NOT NULL', '')"
    in_file(file, f"PRAGMA writable_schema = ON; {loose}")
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        for text, values in statements:
            database.execute(text, values)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("PRAGMA writable_schema = ON")
        database.executemany("UPDATE sqlite_master SET sql = ? WHERE name = ?", [row[::-1] for row in TABLES.items()])
    with closing(sqlite3.connect(file)) as database:
        database.execute("ATTACH ':memory:' AS copy")
        try:
            checksum = zlib.crc32(_copied(database, "copy")[HEAD:])
        except sqlite3.Error:  # of a wrong type, which is looked at first
            return
        database.execute("UPDATE checksums SET runs = ?", [checksum])
        details = database.execute("SELECT id, seen, contents FROM details").fetchall()
        sums = [(_checksum_of(*row), row[0]) for row in details]
        database.executemany("UPDATE details SET checksum = ? WHERE id = ?", sums)
        database.commit()


def typed(file, draw):
    name = draw.choice([*COLUMNS])
    kind = COLUMNS[name].split()[0]
    one = "id = (SELECT max(id) FROM runs)"
    where = one if name == "id" else draw.choice(("true", one))
    sealed(file, (f"UPDATE runs SET [{name}] = ? WHERE {where}", [draw.choice(WRONG.get(kind, WRONG["REAL"]))]))


def nested(file, draw):
    """Details that no decoder comes to the end of, or of other types than are written."""
    depth = draw.choice((10**3, 10**5, 10**6))
    value = draw.choice(("[" * depth + "]" * depth, "[1", '{"a": 1}', "true", "1e999", str(10**40), "nul"))
    change = "UPDATE details SET contents = replace(contents, '\"policy_lr\": ', ?)"
    sealed(file, (change, [f'"policy_lr": {value}, "x": ']))


def spoken(file, draw):
    """Texts for a terminal."""
    text = draw.choice(HOSTILE)
    others = ("folder", "config", "metrics", "checkpoints")
    names = draw.sample([name for name, kind in COLUMNS.items() if kind == TEXT and name not in others], 3)
    sealed(file, *((f"UPDATE runs SET [{name}] = ? WHERE seed > 3", [text]) for name in names))


def special(path, kind):
    """What is no file of ours, in its place."""
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        os.mkdir(path)
    elif kind == "device":
        os.symlink("/dev/zero", path)
    elif kind == "database":
        in_file(path, f"CREATE VIEW runs AS {ENDLESS} SELECT x AS id, x AS seen FROM c")
    elif kind == "large":
        path.write_bytes(JOURNAL)
        os.truncate(path, 1 << 40)
    else:
        path.write_bytes({"empty": b"", "zeros": bytes(10**6), "journal": JOURNAL * 999}[kind])


def beside(file, draw):
    side = draw.choice(("-journal", "-wal", "-shm"))
    special(file.with_name(file.name + side), draw.choice(("fifo", "folder", "journal", "device", "large")))


def replaced(file, draw):
    file.unlink()
    special(file, draw.choice(("fifo", "folder", "empty", "device", "zeros", "database")))


WAYS = (flipped, cut, circle, foreign, large, typed, nested, spoken, beside, replaced)


@pytest.mark.parametrize("case", [*range(COUNT), *EDITS])
def test_whatever_lies_there_a_list_is_right_and_harmless(root, case, capsys):
    """A question that came to no end would hang here."""
    by_key = ("--filter", "policy_lr<1", "--columns", "id,policy_lr")
    said(capsys)
    (root / NAME).unlink()
    answers = [(words, said(capsys, *words)) for words in ((), by_key, ())]
    if case in EDITS:
        in_file(root / NAME, case)
    else:
        WAYS[case % len(WAYS)](root / NAME, random.Random(case))
    for words, answer in answers:
        assert said(capsys, *words) == answer


def test_what_another_has_changed_is_not_sealed_by_who_writes_next(root):
    index = RunIndex()
    first = index.all()
    index.save()
    early = RunIndex()
    early.refresh()
    in_file(root / NAME, "UPDATE runs SET variant = replace(variant, 'CartPole', 'Acrobot')")
    (root / first[0].id).rename(root / "20270101-000000-moved")
    for index in (early, RunIndex(), RunIndex()):
        assert [line.variant for line in index.all()] == [line.variant for line in first]
        index.save()


def test_a_question_that_comes_to_no_end_is_given_up(tmp_path):
    shelf = OwnSqlite(tmp_path / NAME, TABLES)
    with pytest.raises(sqlite3.OperationalError, match="interrupted"), shelf.opened(0.01) as file:
        file.execute(f"{ENDLESS} SELECT max(x) FROM c")
