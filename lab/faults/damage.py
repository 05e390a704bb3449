"""Flipped bytes and cut files: is every damaged checkpoint noticed, and is the one before it taken?

python -m lab.faults damage --flips 500 --cuts 200
"""

import random
from pathlib import Path

from lab.faults.rig import TINY, finish, last_run
from stride.agents.trained.loading import load_run, read_checkpoint
from stride.runstore import checkpoint_set
from stride.utils.user_error import UserError


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    ended = finish(TINY, folder / "runs")
    run = last_run(folder / "runs")
    assert ended.code == 0 and run is not None, ended.said
    path = run.checkpoints / f"{checkpoint_set.target(run.checkpoints / 'last.ckpt')}.ckpt"
    whole, before = path.read_bytes(), checkpoint_set.names(run.checkpoints)[-2]
    flips, cuts = counts["flips"], counts["cuts"]
    refused = fell_back = 0
    for trial in range(flips + cuts):
        if trial < flips:
            data = bytearray(whole)
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        else:
            data = bytearray(whole[: draw.randrange(len(whole))])
        path.write_bytes(bytes(data))
        try:
            read_checkpoint(path)
            print(f"trial {trial}: loaded")
        except UserError:
            refused += 1
        chosen = checkpoint_set.select(run.checkpoints, "last", run.id)
        fell_back += chosen.path.stem == before and any("damaged" in note for note in chosen.notes)
    loaded = load_run(str(run.path), "last")  # the whole way once: what play, inspect and publish do
    again = finish(["--resume", "@last", "--max-timesteps", "2560"], folder / "runs")
    resumed = again.code == 0 and f"taking {before}" in again.said and bool(loaded.notes)
    total = flips + cuts
    lines = [
        f"**{refused} of {total}** damaged files ({flips} with one bit flipped, {cuts} cut) refused unread",
        f"{fell_back} of {total} times the checkpoint before it was taken, and that was said",
        f"train.py --resume and load_run (play, inspect, publish) {'did' if resumed else 'DID NOT'} go on from there",
    ]
    return lines, refused == fell_back == total and resumed
