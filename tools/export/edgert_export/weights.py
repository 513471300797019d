"""Weights in half the bytes: stored as bfloat16 or float16 and cast to float32 where they are used.

A weight whose values are all exact in bfloat16, as in a checkpoint that was trained or saved in it, is stored as bfloat16
without a flag: the graph computes with the same numbers. `--dtype` rounds the other weights too.

Each use has a Cast of its own, so that a float32 copy lives as long as one product. The graph is an ordinary one: folding
its constants restores the float32 weights. lean-server does not fold on a CPU (policy/device.go).
"""

import numpy as np
import onnx
from onnx import TensorProto, helper

from .errors import ExportError

# A Cast of a smaller weight would add a node and save almost nothing.
LEAST_BYTES = 64 << 10

TYPES = {"bf16": TensorProto.BFLOAT16, "fp16": TensorProto.FLOAT16}

# The inputs that may come from a Cast, by operator. A row of a table is cast after its Gather instead. Only convolutions
# over time are included: ONNX Runtime reorders the weights of the others at load, and is slower where it cannot.
CAST = {"MatMul": (0, 1), "Gemm": (0, 1), "Conv": (1,), "ConvTranspose": (1,)}
TABLE = "Gather"
PICTURE_RANK = 4


def shrink(model: onnx.ModelProto, dtype: str | None = None) -> int:
    """Stores weights in two bytes a value. dtype None: those that bf16 holds exactly; otherwise all that may come from a
    Cast. Returns their number of bytes in float32."""
    chosen = {}
    _direct(model.graph, {t.name: t.name for t in model.graph.initializer})
    used = _uses(model.graph)
    for tensor in model.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT or len(tensor.raw_data) < LEAST_BYTES or not used.get(tensor.name):
            continue
        if len(tensor.dims) >= PICTURE_RANK and any(op.startswith("Conv") for op, _ in used[tensor.name]):
            continue
        if not all(place in CAST.get(op, ()) or (op == TABLE and place == 0) for op, place in used[tensor.name]):
            continue
        values = np.frombuffer(tensor.raw_data, np.float32)
        if dtype is None and not exact(values):
            continue
        chosen[tensor.name] = values.nbytes
        tensor.raw_data = half(values, dtype or "bf16", tensor.name).tobytes()
        tensor.data_type = TYPES[dtype or "bf16"]
    if chosen:
        _cast(model.graph, chosen)
    return sum(chosen.values())


def exact(values: np.ndarray) -> bool:
    """Whether bfloat16, the upper half of a float32, holds every value."""
    return not (values.view(np.uint32) & 0xFFFF).any()


def half(values: np.ndarray, dtype: str, name: str) -> np.ndarray:
    """float32 values in two bytes each, rounded to the nearest, ties to even."""
    if dtype == "bf16":
        bits = values.view(np.uint32)
        return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")
    with np.errstate(over="ignore"):
        small = values.astype("<f2")
    if not np.isfinite(small).all():
        raise ExportError(f"--dtype is fp16, which ends at 65504, and the weight {name} has {np.abs(values).max():.6g}: want bf16, or fp32")
    return small


def _direct(graph: onnx.GraphProto, own: dict[str, str]) -> None:
    """Makes nodes use a weight's own name: torch gives a weight that it traced twice a second name through an Identity."""
    given, nodes = {v.name for v in graph.output}, []
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in own and node.output[0] not in given:
            own[node.output[0]] = own[node.input[0]]
            continue
        for place, name in enumerate(node.input):
            node.input[place] = own.get(name, name)
        for body in _bodies(node):
            _direct(body, own)
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _uses(graph: onnx.GraphProto) -> dict[str, list[tuple[str, int]]]:
    """Operator and place of every use of a name, in bodies too. An output of a graph is a use by the operator ""."""
    found: dict[str, list[tuple[str, int]]] = {v.name: [("", 0)] for v in graph.output}
    for node in graph.node:
        for place, name in enumerate(node.input):
            found.setdefault(name, []).append((node.op_type, place))
        for body in _bodies(node):
            for name, uses in _uses(body).items():
                found.setdefault(name, []).extend(uses)
    return found


def _bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]


def _cast(graph: onnx.GraphProto, chosen: dict[str, int]) -> None:
    first, nodes = [], []
    for node in graph.node:
        for body in _bodies(node):
            _cast(body, chosen)
        nodes.append(node)
        if node.op_type == TABLE and node.input[0] in chosen:
            out = node.output[0]
            node.output[0] = f"{out}/stored"
            nodes.append(_float(node.output[0], out))
            continue
        for place, name in enumerate(node.input):
            if name in chosen:
                node.input[place] = f"{node.name}/{name}"
                first.append(_float(name, node.input[place]))
    # The Casts are first in the file: ONNX Runtime orders nodes from the results backwards and runs those that are first in
    # the file as late as possible, directly before their use.
    del graph.node[:]
    graph.node.extend(first + nodes)


def _float(source: str, to: str) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [to], name=f"{to}/float", to=TensorProto.FLOAT)
