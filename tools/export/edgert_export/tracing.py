"""Traces torch modules to ONNX graphs, and checks that a graph holds no forbidden nodes."""

import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

OPSET = 18
BATCH = "batch"  # the name of the one dynamic dimension

TYPES = {
    torch.float32: TensorProto.FLOAT,
    torch.float16: TensorProto.FLOAT16,
    torch.bfloat16: TensorProto.BFLOAT16,
    torch.int64: TensorProto.INT64,
    torch.uint8: TensorProto.UINT8,
    torch.bool: TensorProto.BOOL,
}

# If and Scan: a trace follows one branch and would hide the other. The other operators compute shapes from values, draw
# random numbers, or have last bits that depend on a tensor's width (time and position tables are constants).
FORBIDDEN = ("If", "Scan", "NonZero", "Sin", "Cos", "Log", "RandomNormal", "RandomNormalLike", "RandomUniform", "Multinomial")


def port(name: str, example: Tensor) -> onnx.ValueInfoProto:
    """An input or output like the example, whose first dimension is the batch. A scalar stays a scalar."""
    shape = [BATCH, *example.shape[1:]] if example.dim() else []
    return helper.make_tensor_value_info(name, TYPES[example.dtype], shape)


def trace(module: nn.Module, inputs: dict[str, Tensor], outputs: list[str]) -> tuple[onnx.ModelProto, dict[str, Tensor]]:
    """The graph of module(*inputs) with these names, and the outputs for the example inputs. Inputs that the module does
    not use are inputs of the graph too. The example batch must be at least 2: a batch of 1 would hide broadcasts."""
    module = module.eval()
    with torch.no_grad():
        results = module(*inputs.values())
    results = (results,) if isinstance(results, Tensor) else tuple(results)
    if len(results) != len(outputs):
        raise ValueError(f"the module gives {len(results)} outputs for the names {outputs}")
    names = {**inputs, **dict(zip(outputs, results, strict=True))}
    dynamic = {name: {0: BATCH} for name, value in names.items() if value.dim()}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "graph.onnx"
        with torch.no_grad():
            torch.onnx.export(
                module, tuple(inputs.values()), str(path), dynamo=False, opset_version=OPSET, do_constant_folding=True,
                input_names=list(inputs), output_names=outputs, dynamic_axes=dynamic,
            )  # fmt: skip
        model = onnx.load(path)
    del model.graph.input[:], model.graph.output[:], model.graph.value_info[:]
    model.graph.input.extend(port(name, value) for name, value in inputs.items())
    model.graph.output.extend(port(name, value) for name, value in zip(outputs, results, strict=True))
    constants_to_initializers(model.graph)
    check(model)
    return model, dict(zip(outputs, results, strict=True))


def constants_to_initializers(graph: onnx.GraphProto) -> None:
    """Moves all constants to the initialisers, so that copies of a graph can share them."""
    kept = []
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            graph.initializer.add().CopyFrom(node.attribute[0].t)
            graph.initializer[-1].name = node.output[0]
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)


def check(model: onnx.ModelProto) -> None:
    """Refuses a graph with forbidden nodes, or with float64 outside constants."""
    for node in model.graph.node:
        if node.op_type in FORBIDDEN:
            raise ValueError(f"the graph has a {node.op_type} node ({node.name}): write the module so that it needs none")
        if node.op_type == "Cast" and any(a.name == "to" and a.i == TensorProto.DOUBLE for a in node.attribute):
            raise ValueError(f"the graph computes in float64 ({node.name}): make it a constant")


def initializer(name: str, value: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(value), name)
