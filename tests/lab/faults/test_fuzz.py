"""The fuzzers themselves: what they watch is noticed, and small counts of words pass. (Large ones are run by hand.)"""

import os
import random
import time
from pathlib import Path

import pytest

from lab.faults import fuzz
from lab.faults.fuzz import Watch, any_words, any_yaml, words


@pytest.fixture
def watch(tmp_path, monkeypatch):
    for name in ("mine", "secret", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret" / "key").write_text("x")
    monkeypatch.chdir(tmp_path)
    return Watch((tmp_path / "mine",), tmp_path / "secret")


def refuse():
    print("error: no")
    return 2


@pytest.mark.parametrize(("act", "wrong"), [
    (refuse, ""),
    (lambda: 0, ""),
    (lambda: Path("mine/x").write_text(""), ""),
    (lambda: print("error: no") or print("error: twice") or 2, "2 lines"),
    (lambda: print("error: " + "x" * 300) or 2, "too long"),
    (lambda: 3, "exit code 3"),
    (lambda: [][0], "IndexError"),
    (lambda: Path("elsewhere/x").write_text("x"), "write"),
    (lambda: Path("mine/link").symlink_to("../elsewhere/x") or Path("mine/link").write_text("x"), "write"),
    (lambda: Path("mine/link").symlink_to("../secret/key") or Path("mine/link").read_text(), "read"),
    (lambda: os.rename("secret/key", "mine/key"), "os.rename"),
    (lambda: os.mkdir("elsewhere/y"), "os.mkdir"),
    (lambda: os.symlink("x", "elsewhere/y"), "os.symlink"),
    (lambda: os.system("true"), "os.system"),
    (lambda: time.sleep(600), "hangs"),
])  # fmt: skip
def test_what_should_not_be_is_seen(act, wrong, watch, monkeypatch):
    monkeypatch.setattr(fuzz, "LIMIT", 0.3 if wrong == "hangs" else 60)
    result = watch.call(act)
    assert wrong in result.wrong if wrong else result.wrong == ""


def test_words_are_taken_or_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    line, good = words(100, random.Random(7), tmp_path)
    assert good, line
    assert sorted(os.listdir(tmp_path)) == ["Fuzzed-v0.yaml", "secret"]


def test_the_same_seed_gives_the_same_words():
    draws = [random.Random(3), random.Random(3), random.Random(4)]
    one, same, other = ([(any_words(draw), any_yaml(draw)) for _ in range(20)] for draw in draws)
    assert one == same != other
