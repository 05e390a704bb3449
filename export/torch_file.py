"""torch.export's own file, .pt2: `torch.export.load(path).module()(obs)`, wherever torch is, without Stride."""

import io
import json
from collections.abc import Mapping

import numpy as np
import torch

from stride.export.graph import Deployed, arguments, traced
from stride.export.ports import Face, Run, following

FACTS = "stride.json"  # beside the graph, read by torch.export.load(path, extra_files={FACTS: ""})


def content(policy: Deployed, facts: Mapping[str, object]) -> bytes:
    """The traced graph and its weights."""
    file = io.BytesIO()
    torch.export.save(traced(policy), file, extra_files={FACTS: json.dumps(facts)})
    return file.getvalue()


def runner(data: bytes, face: Face) -> Run:
    """The file as torch alone runs it."""
    torch_module = torch.export.load(io.BytesIO(data)).module()

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        with torch.inference_mode():
            answer = torch_module(*arguments(face, inputs))
        next_state = dict(zip((following(port.name) for port in face.state), answer.pop("state", ()), strict=True))
        return {name: value.numpy() for name, value in {**answer, **next_state}.items()}

    return run
