"""Runs that no training left: each kind of damage as a function of the folder of a sound run. Light: no torch.

What a hostile or broken disk can put there: wrong types and sizes in config.json, numbers that are none in metrics.csv,
links, FIFOs and folders in the place of files.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path], None]
HUGE = 10**400
DEEP = "[" * 100_000
TEXT = "<script>alert(1)</script>${x}{{y}}\x1b[31m\n"
CONFIG: dict[str, list[object]] = {  # keys of config.json and what is wrong with them
    "goal": [HUGE, "x", [], {}, float("nan"), float("inf"), True, 1e300],
    "env_id": [5, None, [], {}, "", "x" * 10_000, "Nope-v0", TEXT],
    "variant": [5, None, ["ppo"], TEXT],
    "status": [5, None, [], "running", TEXT],
    "group": [5, [], {"a": 1}],
    "seed": [HUGE, -1, "x", None],
    "versions": [5, "x", {"a": {"b": [1]}}],
    "outcome": [5, [], {"solved": "no"}],
    "resumed": [5, [5]],
    "command": [5, ["a", "b"], {"a": HUGE}],
}
KEYS: dict[str, list[object]] = {  # of config in it
    "gamma": [HUGE, "x", None],
    "max_timesteps": [HUGE, float("inf"), -1, True],
    "hidden_dims": [[[[64]]], 64, "big"],
    "algo_id": ["nope", 5, []],
    "env_id": ["Nope-v0", "../x", 5],
    "policy_kwargs": [5, {"hidden_size": "x"}],
    "description": [5, "x" * 100_000, TEXT],
    "spec": [5, {"goal": HUGE}, {"observations": 5}],
    "frame_stack": [0, "x"],
    "env_kwargs": [5, {"render_mode": "human"}],
}
CELLS = ("inf", "nan", "-1", "1e300", "1e308", "-1e308", "x", "1_0", "\0")
COLUMNS = ("train/clock/env_steps", "train/clock/epoch", "train/roll/ep_rew/mean", "val/roll/ep_rew/mean")


def kinds(secret: Path) -> dict[str, Damage]:
    """All of them by name; links lead to `secret`, outside of the run."""
    found: dict[str, Damage] = {}
    for key, values in CONFIG.items():
        found |= {f"config.json {key} {number}": _in_config(key, value) for number, value in enumerate(values)}
    for key, values in KEYS.items():
        found |= {f"config.{key} {number}": _in_config(key, value, True) for number, value in enumerate(values)}
    for column in COLUMNS:
        found |= {f"metrics.csv {column} {cell!r}": _in_csv(column, cell) for cell in CELLS}
    for name in ("config.json", "metrics.csv", "run.log", "report.md", "checkpoints/best.json", "checkpoints/best.ckpt",
                 "checkpoints/last.ckpt", "checkpoints", "videos", "logs", "videos/epoch=02.mp4"):  # fmt: skip
        found |= {f"{name} {kind}": _in_place(name, make) for kind, make in places(secret).items()}
    found |= {f"{name} {kind}": _bytes(name, data) for name in ("config.json", "metrics.csv", "checkpoints/best.json")
              for kind, data in contents().items()}  # fmt: skip
    return found | tables()


def places(secret: Path) -> dict[str, Damage]:
    """What may lie where a file should."""
    return {
        "missing": lambda path: None,
        "folder": lambda path: path.mkdir(),
        "link loop": lambda path: path.symlink_to(path.name),
        "link elsewhere": lambda path: path.symlink_to(secret),
        "FIFO": lambda path: os.mkfifo(path),
    }


def contents() -> dict[str, bytes]:
    return {
        "empty": b"",
        "null": b"null",
        "list": b"[]",
        "garbage": bytes(range(256)) * 40,
        "zero bytes": bytes(5000),
        "deep": DEEP.encode(),
        "digits": b'{"score": ' + b"9" * 5000 + b"}",
        "huge number": b'{"score": 1' + b"0" * 400 + b"}",
        "half": b'{"env_id": "CartPole-v1", "vari',
    }


def tables() -> dict[str, Damage]:
    """Files of metrics that are no tables, or more of one than is good."""
    head = "train/clock/env_steps,val/roll/ep_rew/mean"
    rows = "".join(f"{number},{number % 500}\n" for number in range(400_000))
    texts = {
        "header only": f"{head}\n",
        "header of a megabyte": "x" * 1_000_000,
        "5,000 columns": ",".join([head, *(f"c{n}" for n in range(5000))]) + "\n" + ",".join(["1"] * 5002) + "\n",
        "the same column twice": f"{head},{head}\n1,2,3,4\n5,6,7,8\n",
        "no clock": "a,b\n1,2\n",
        "torn end": f"{head}\n1,2\n3,",
        "backwards": f"{head}\n9,2\n3,4\n1,8\n",
        "CRLF": f"{head}\r\n1,2\r\n3,4\r\n",
        "wrong number of cells": f"{head}\n1\n1,2,3\n",
        "long line": f"{head}\n1,2\n{'1' * 3_000_000},2\n3,4\n",
        "large": f"{head}\n{rows}",
        "zeros inside": f"{head}\n1,2\n{chr(0) * 100_000}\n3,4\n",
        # one bit apart: an axis of no length to whoever rounds
        "almost equal": f"{head}\n1,1\n2,{1 + 2**-52!r}\n3,{1 - 2**-53!r}\n",
        "subnormal": f"{head}\n0,5e-324\n1,1e-323\n",
    }
    return {f"metrics.csv {name}": _bytes("metrics.csv", text.encode()) for name, text in texts.items()}


def _in_config(key: str, value: object, inside: bool = False) -> Damage:
    def damage(folder: Path) -> None:
        facts = json.loads((folder / "config.json").read_text())
        (facts["config"] if inside else facts)[key] = value
        (folder / "config.json").write_text(json.dumps(facts))

    return damage


def _in_csv(column: str, cell: str) -> Damage:
    def damage(folder: Path) -> None:
        head, *rows = (folder / "metrics.csv").read_text().splitlines()
        place = head.split(",").index(column)
        changed = [",".join(cell if n == place else each for n, each in enumerate(row.split(","))) for row in rows]
        (folder / "metrics.csv").write_text("\n".join([head, *rows[:1], *changed[1:], ""]))

    return damage


def _in_place(name: str, make: Damage) -> Damage:
    def damage(folder: Path) -> None:
        _clear(folder / name)
        make(folder / name)

    return damage


def _bytes(name: str, data: bytes) -> Damage:
    def damage(folder: Path) -> None:
        _clear(folder / name)
        (folder / name).write_bytes(data)

    return damage


def _clear(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
