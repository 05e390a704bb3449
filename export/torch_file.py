"""Writes and runs the .pt2 file of a policy, the format of torch.export.

It needs torch but not Stride: `torch.export.load(path).module()(obs)`.
"""

import io
import json
from collections.abc import Mapping

import numpy as np
import torch

from stride.export.graph import Deployed, arguments, traced
from stride.export.ports import Face, Run, following

FACTS = "stride.json"  # a file inside the .pt2; torch.export.load(path, extra_files={FACTS: ""}) reads it


def content(policy: Deployed, facts: Mapping[str, object]) -> bytes:
    """Return the bytes of the file: the traced graph with its weights, and `facts` as JSON."""
    file = io.BytesIO()
    torch.export.save(traced(policy), file, extra_files={FACTS: json.dumps(facts)})
    return file.getvalue()


def runner(data: bytes, face: Face) -> Run:
    """Return a function that runs the file with torch alone."""
    torch_module = torch.export.load(io.BytesIO(data)).module()

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        with torch.inference_mode():
            answer = torch_module(*arguments(face, inputs))
        next_state = dict(zip((following(port.name) for port in face.state), answer.pop("state", ()), strict=True))
        return {name: value.numpy() for name, value in {**answer, **next_state}.items()}

    return run
