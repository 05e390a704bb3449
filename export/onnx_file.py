"""Writes and runs the ONNX file of a policy, which onnxruntime and other ONNX programs read."""

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
    """Return the bytes of the file: the graph, with `facts` as JSON in the property `stride`."""
    import onnx

    policy_face = policy.face
    port_names = ([port.name for port in policy_face.inputs], [port.name for port in policy_face.outputs])
    with quiet():
        exported = torch.onnx.export(
            traced(policy), dynamo=True, input_names=port_names[0], output_names=port_names[1], verbose=False
        )
    assert exported is not None
    onnx_model = exported.model_proto
    for graph_value in (*onnx_model.graph.input, *onnx_model.graph.output, *onnx_model.graph.value_info):
        for dimension in graph_value.type.tensor_type.shape.dim:
            # the batch is the only dimension with a name instead of a number, and the exporter invented that name
            if dimension.dim_param:
                dimension.dim_param = BATCH
    onnx.helper.set_model_props(onnx_model, {"stride": json.dumps(facts)})
    onnx.checker.check_model(onnx_model, full_check=True)
    data: bytes = onnx_model.SerializeToString()
    return data


def runner(data: bytes, policy_face: Face) -> Run:
    """Return a function that runs the file with onnxruntime, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    port_names = [port.name for port in policy_face.outputs]
    return lambda inputs: dict(zip(port_names, session.run(port_names, dict(inputs)), strict=True))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporter's messages about packages that are not needed. Its errors are raised, not printed."""
    exporter_log = logging.getLogger("torch.onnx")
    previous_level = exporter_log.level
    exporter_log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        exporter_log.setLevel(previous_level)
