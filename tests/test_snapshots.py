"""Snapshots hold nothing that another machine, or the same one tomorrow, says otherwise."""

import pytest
from snapshots import shown

RUN = "20261126-110917-CartPole-v1-ppo-s12-ab3d"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"run {RUN} of group 20261126-110917-wxyz", "run <run> of group <group>"),
        (f"wrote /tmp/pytest-1/test_x0/{RUN}/config.json, not '/tmp/y/'", "wrote <path>/config.json, not '<path>'"),
        (f"in /tmp/x/runs/{RUN}: no run", "in <path>: no run"),
        ("left 2:26, 1:02:03 or 2d 03:04:05", "left <time>, <time> or <time>"),
        ("2026-11-26 11:09:17 and 2026-11-26T11:09+01:00 and 2026-11-26", "<date> and <date> and <date>"),
        ("torch 2.13.0+cpu, Python 3.12, 4f2a9c1", "torch <version>, Python <version>, <hash>"),
        ("4,812 steps/s, 1.2k env steps/s", "<rate> steps/s, <rate> env steps/s"),
        ("seconds=13.60 in 13.6 s, 5 ms", "seconds=<time> in <time> s, <time> ms"),
        ("python run_play.py --run-id @last; python train.py x", "stride play --run-id @last; stride train x"),
        ("next: ../.venv/bin/python ../train.py --resume @last", "next: stride train --resume @last"),
        ("/usr/bin/python3 -m stride.commands.monitor x", "stride monitor x"),
        ("\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b[?25lscreen  \n", "red screen"),
        ("|    0:27  |", "| <time> |"),
        ("process 4711 at http://127.0.0.1:8080/x", "process <pid> at http://<address>/x"),
    ],
)
def test_what_changes_is_a_word(text: str, expected: str) -> None:
    assert shown(text) == expected


@pytest.mark.parametrize(
    "text",
    ["31,250 / 100,000   val 243.1 / goal 475", "runs/x CartPole-v1:ppo and/or docs/events.md", "1.5 of 3 seeds, 50%"],
)
def test_what_is_meant_stays(text: str) -> None:
    assert shown(text) == text


def test_own_patterns_go_first() -> None:
    assert shown("port 8123 since 0:27", (r"port \d+", "<port>")) == "<port> since <time>"
