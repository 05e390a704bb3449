"""The first tensor in which two runs differ: checkpoints both have, in the order in which they were written."""

from collections.abc import Iterator

import torch
from torch import Tensor

from stride.agents.trained.loading import read_checkpoint
from stride.runstore.checkpoint_set import known
from stride.runstore.run_dir import RunDir

DEEPEST = 12  # dictionaries and lists within one another


def first_tensor(first: RunDir, second: RunDir) -> dict[str, object]:
    """Its name, the first place in it and both values; without a name where all are the same to the bit."""
    there = known(second.checkpoints)
    common = [name for name in known(first.checkpoints) if name in there]
    for name in common:
        both = [dict(tensors(read_checkpoint(run.checkpoints / f"{name}.ckpt"))) for run in (first, second)]
        apart = [each for each in {**both[0], **both[1]} if not same(both[0].get(each), both[1].get(each))]
        if apart:
            found = place_and_values(both[0].get(apart[0]), both[1].get(apart[0]))
            return {"checkpoint": name, "name": apart[0], "tensors": len({**both[0], **both[1]}),
                    "differing": len(apart), **found}  # fmt: skip
    return {"checkpoints": common}


def tensors(found: object, name: str = "", depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a checkpoint, weights first, by where it stands."""
    if isinstance(found, Tensor):
        yield name, found
    elif isinstance(found, dict | list | tuple) and depth < DEEPEST:
        pairs = [*found.items()] if isinstance(found, dict) else [*enumerate(found)]
        pairs.sort(key=lambda pair: pair[0] != "state_dict")
        for key, inner in pairs:
            yield from tensors(inner, f"{name}.{key}" if name else str(key), depth + 1)


def same(mine: Tensor | None, theirs: Tensor | None) -> bool:
    """To the bit, NaN included."""
    if mine is None or theirs is None or mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return False
    return bool(torch.equal(*(each.contiguous().reshape(-1).view(torch.uint8) for each in (mine, theirs))))


def place_and_values(mine: Tensor | None, theirs: Tensor | None) -> dict[str, object]:
    """Of two tensors of one shape the first place where they differ, both values, and the largest difference."""
    if mine is None or theirs is None or mine.shape != theirs.shape:
        shapes = ["none" if each is None else f"shape {[*each.shape]}" for each in (mine, theirs)]
        return {"place": [], "first": shapes[0], "second": shapes[1], "most": None}
    left, right = (each.reshape(-1).double() for each in (mine, theirs))
    apart = torch.nonzero((left != right) & ~(left.isnan() & right.isnan())).reshape(-1)
    at = int(apart[0]) if len(apart) else 0
    place = [int(each) for each in torch.unravel_index(torch.tensor(at), mine.shape)] if mine.dim() else []
    most = float((left - right).abs().nan_to_num(0.0).max())
    return {"place": place, "first": f"{float(left[at]):.9g}", "second": f"{float(right[at]):.9g}", "most": most}
