"""A checkpoint counts when its bytes have the hash of its sidecar; else the one before it does."""

import math
import os
from itertools import chain, combinations

import pytest

from stride.runstore import checkpoint_set
from stride.runstore.checkpoint_set import digest, fault, names, prune, seal, select, sweep_orphans
from stride.utils.durable_file import read_json, replacing, write_json
from stride.utils.user_error import UserError


def make(folder, stem, iterations, score=None, links=("last",)):
    path = folder / f"{stem}.ckpt"
    path.write_bytes(f"weights of {stem}".encode() * 50)
    clock = {"epoch": iterations, "iterations": iterations, "env_steps": 64 * iterations, "exported": 64 * iterations}
    seal(path, {**clock, "score": score, **digest(path)}, links)
    return path


@pytest.fixture
def folder(tmp_path):
    """Three epochs, the second the best, and a step in the middle of the fourth."""
    make(tmp_path, "epoch=02", 2, 10.0, ("best", "last"))
    make(tmp_path, "epoch=04", 4, 30.0, ("best", "last"))
    make(tmp_path, "epoch=06", 6, 20.0)
    make(tmp_path, "step=448", 7)
    return tmp_path


def change(path, **facts):
    write_json(path.with_suffix(".json"), {**read_json(path.with_suffix(".json")), **facts})


def flip(path):
    data = bytearray(path.read_bytes())
    data[37] ^= 1
    path.write_bytes(data)


def test_links_and_numbers_lead_to_whole_checkpoints(folder):
    assert names(folder) == ["epoch=02", "epoch=04", "epoch=06", "step=448"]
    chosen = [select(folder, name, "run") for name in ("last", "best", "epoch=6", "epoch=06")]
    assert [choice.path.stem for choice in chosen] == ["step=448", "epoch=04", "epoch=06", "epoch=06"]
    assert not any(choice.notes for choice in chosen)


def test_a_damaged_one_gives_way_to_the_one_before_and_says_so(folder):
    flip(folder / "step=448.ckpt")
    assert select(folder, "last", "run") == (
        folder / "epoch=06.ckpt",
        ("run: step=448 is damaged: its hash has changed", "using epoch=06"),
    )
    (folder / "epoch=06.ckpt").write_bytes(b"cut")
    assert select(folder, "last", "run").path.stem == "epoch=04"
    flip(folder / "epoch=04.ckpt")
    assert select(folder, "best", "run").path.stem == "epoch=02", "the next best"
    with pytest.raises(
        UserError, match=r"epoch=04 is damaged.*it also has epoch=02, "
    ):  # what is named is not replaced
        select(folder, "epoch=04", "run")
    with pytest.raises(UserError, match="has no checkpoint epoch=5; it has epoch=02"):
        select(folder, "epoch=5", "run")
    flip(folder / "epoch=02.ckpt")
    with pytest.raises(UserError, match=r"^run has no checkpoint; run: step=448 is damaged.*epoch=02 is damaged"):
        select(folder, "last", "run")


NO_SIDECARS = [None, [], {}, {"sha256": 5}, {"sha256": "x", "size": "1"}, {"sha256": "x", "size": True}]


@pytest.mark.parametrize("facts", NO_SIDECARS)
def test_a_sidecar_that_is_none_vouches_for_nothing(folder, facts):
    sidecar = folder / "step=448.json"
    sidecar.unlink() if facts is None else write_json(sidecar, facts)
    assert "no sidecar" in fault(folder / "step=448.ckpt")
    assert select(folder, "last", "run").path.stem == "epoch=06"


def test_halves_are_no_checkpoints_and_are_swept(folder):
    (folder / "epoch=08.ckpt").write_bytes(b"whole, but its process died before the sidecar")
    (folder / "epoch=01.json").write_text("{}")
    assert names(folder)[-1] == "step=448" and select(folder, "last", "run").path.stem == "step=448"
    assert sweep_orphans(folder) == 2 and len(list(folder.iterdir())) == 12


def test_thinning_keeps_the_newest_the_best_and_what_is_linked(folder):
    make(folder, "epoch=08", 8, 5.0)
    prune(folder, keep_last=1, keep_best=2)
    assert names(folder) == ["epoch=04", "epoch=06", "epoch=08"], "best 2 are 04 and 06, newest is 08, no step stays"
    prune(folder, keep_last=1, keep_best=0)
    assert names(folder) == ["epoch=04", "epoch=08"], "best.ckpt points at 04"
    prune(folder, keep_last=None, keep_best=0)
    assert names(folder) == ["epoch=04", "epoch=08"]
    assert len(list(folder.iterdir())) == 8


def test_a_nan_is_nobodys_best(folder):
    make(folder, "epoch=08", 8, float("nan"))
    make(folder, "epoch=10", 10, float("inf"))
    (folder / "best.ckpt").unlink(), (folder / "best.json").unlink()
    assert checkpoint_set._by_worth(folder, checkpoint_set.known(folder))[:2] == ["epoch=04", "epoch=06"]


def test_a_score_of_a_part_of_the_episodes_is_none(tmp_path):
    """Older versions wrote such scores: the row of the same env steps says how many episodes ended."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for iterations, score in ((2, 10.0), (4, 30.0), (6, 20.0), (8, 5.0)):
        path = make(folder, f"epoch=0{iterations}", iterations, score, ("best", "last")[score != 30.0 :])
        change(path, config={"eval_episodes": 10, "test_episodes": 100})
    head = "train/clock/env_steps,val/roll/episodes,test/roll/episodes\n"
    (tmp_path / "metrics.csv").write_text(f"{head}128,10,\n256,9,\n384,,\n384,,100\n512,,\n512,,99\n")
    scores = [checkpoint_set.score_of(folder / f"epoch=0{n}.ckpt") for n in (2, 4, 6, 8)]
    assert scores == [10.0, -math.inf, 20.0, -math.inf]
    notes = ("run: some episodes of the evaluation of epoch=04 did not end", "using epoch=06")
    assert select(folder, "best", "run") == (folder / "epoch=06.ckpt", notes)
    (tmp_path / "metrics.csv").write_text(head + "".join(f"{64 * n},0,0\n" for n in (2, 4, 6, 8)))
    notes = ("run has no evaluation in which every episode ended: using last",)
    assert select(folder, "best", "run") == (folder / "epoch=08.ckpt", notes)
    change(folder / "epoch=02.ckpt", score_episodes=10)  # as it is written now
    assert select(folder, "best", "run").path.stem == "epoch=02"


class Disk:
    """What a power cut could leave of a folder: what was synced, and any part of what was not."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.durable, self.pending, self.written = folder, self.contents(folder), [], set()
        for name in ("fsync", "replace", "unlink"):
            monkeypatch.setattr(os, name, self.watched(getattr(os, name), name))

    @staticmethod
    def contents(folder):
        return {path.name: os.readlink(path) if path.is_symlink() else path.read_bytes() for path in folder.iterdir()}

    def watched(self, function, name):
        def call(first, *others, **options):
            if name == "fsync":
                path = os.readlink(f"/proc/self/fd/{first}")
                self.written.add(path)
                if path == str(self.folder):
                    self.durable, self.pending = self.apply(self.pending), []
            elif name == "unlink":
                self.pending.append((os.path.basename(first), None))
            else:
                first_path = self.folder / first  # a name alone is one in the folder that is open
                linked = first_path.is_symlink()
                written = str(first_path) in self.written
                data = os.readlink(first_path) if linked else first_path.read_bytes() if written else b""
                self.pending.append((os.path.basename(others[0]), data))
            return function(first, *others, **options)

        return call

    def apply(self, changes):
        return {name: data for name, data in {**self.durable, **dict(changes)}.items() if data is not None}

    def cuts(self):
        """Every folder that could be there after a power cut now."""
        sizes = range(len(self.pending) + 1)
        return [self.apply(some) for some in chain.from_iterable(combinations(self.pending, n) for n in sizes)]


def test_whatever_a_power_cut_leaves_has_a_whole_checkpoint(folder, tmp_path_factory, monkeypatch):
    """At every sync of a save, with any of the names lost that were not synced, and bytes that were not."""
    disk, cuts = Disk(folder, monkeypatch), []
    synced, data = os.fsync, b"weights of epoch=08" * 50

    def cut_before(descriptor):
        cuts.extend(disk.cuts())
        synced(descriptor)

    monkeypatch.setattr(os, "fsync", cut_before)
    with replacing(folder / "epoch=08.ckpt", sync_name=False) as file:
        file.write(data)
    facts = {**digest(folder / "epoch=08.ckpt"), "epoch": 8, "iterations": 8, "env_steps": 512, "exported": 512}
    seal(folder / "epoch=08.ckpt", {**facts, "score": 40.0}, ("best", "last"))
    prune(folder, keep_last=1, keep_best=0)
    cuts.extend(disk.cuts())
    monkeypatch.undo()
    assert len(cuts) > 30
    for number, contents in enumerate(cuts):
        left = tmp_path_factory.mktemp(f"cut{number}")
        for name, there in contents.items():
            (left / name).symlink_to(there) if isinstance(there, str) else (left / name).write_bytes(there)
        for link in ("best", "last"):
            assert select(left, link, "run").path.read_bytes().startswith(b"weights of")
            assert not fault(left / os.readlink(left / f"{link}.ckpt")), "a link leads to what is whole"
