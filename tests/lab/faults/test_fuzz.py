"""The fuzzers themselves: what they watch is noticed."""

import os
import time
from pathlib import Path

import pytest

from lab.faults import fuzz
from lab.faults.fuzz import Watch


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
