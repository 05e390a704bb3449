"""ONNX: one file for onnxruntime and everybody else who reads the format."""

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping

import torch

from stride.export.graph import BATCH, Deployed, traced
from stride.export.ports import Face, Run


def content(policy: Deployed, facts: Mapping[str, object]) -> bytes:
    """The graph with its facts as the property `stride`, JSON."""
    import onnx

    face = policy.face
    names = [port.name for port in face.inputs], [port.name for port in face.outputs]
    with quiet():
        exported = torch.onnx.export(
            traced(policy), dynamo=True, input_names=names[0], output_names=names[1], verbose=False
        )
    assert exported is not None
    model = exported.model_proto
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dimension in value.type.tensor_type.shape.dim:  # the only one that is not a number, under a made-up name
            if dimension.dim_param:
                dimension.dim_param = BATCH
    onnx.helper.set_model_props(model, {"stride": json.dumps(facts)})
    onnx.checker.check_model(model, full_check=True)
    data: bytes = model.SerializeToString()
    return data


def runner(data: bytes, face: Face) -> Run:
    """The file as onnxruntime runs it, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [port.name for port in face.outputs]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what the exporter says of packages that nobody asked for; its errors are raised, not printed."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)
