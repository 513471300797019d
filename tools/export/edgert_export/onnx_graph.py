"""The graphs of a bundle: writes them, checks their ports and runs them."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from . import sampler, tracing, weights
from .errors import ExportError
from .tracing import BATCH

# Larger weights are stored in a file beside the graph, which the server maps into memory.
EXTERNAL_BYTES = 100 << 20

# Types by their names in bundle.json.
NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}

ELEMENTS = {"uint8": onnx.TensorProto.UINT8, "float32": onnx.TensorProto.FLOAT, "int64": onnx.TensorProto.INT64, "bool": onnx.TensorProto.BOOL}
# Threads of an inference; 0: one per core.
THREADS = 0

# Optimisers that are switched off for a graph with weights in half the bytes: the first and the last would cast all weights
# while the session loads (and the last crashes ONNX Runtime 1.24.3 with fp16), the second would share a Cast between uses
# that are far apart in the graph. policy/device.go has the same list.
UNFOLDED = "ConstantFolding;CommonSubexpressionElimination;FuseFp16InitializerToFp32NodeTransformer"

FAULT = "this is a fault of the exporter"


def trace(family, module: nn.Module) -> onnx.ModelProto:
    """A one-pass family's graph."""
    case = family.case(2, np.random.default_rng(0))
    inputs = {p.name: torch.from_numpy(case.inputs[p.name]) for p in family.ports_in()}
    return tracing.trace(module, inputs, [p.name for p in family.ports_out()])[0]


def finish(family, model: onnx.ModelProto, path: Path) -> None:
    """Checks a graph, adds metadata that describe it without its bundle, and saves it."""
    if path.name == sampler.POLICY:
        check(model, family.ports_in(), family.ports_out())
    for key in ("policy_type", "fps", "chunk_size", "action_dim", "rtc", "exporter"):
        if key in family.meta:
            model.metadata_props.add(key=key, value=str(family.meta[key]))
    store(family, model)
    save(model, path)


def store(family, model: onnx.ModelProto) -> None:
    """Halves the bytes of a graph's weights: all possible ones where --dtype is a storage type; otherwise, in fp32 graphs
    above EXTERNAL_BYTES, those that bfloat16 holds exactly."""
    stored, dtype = None, family.options.dtype
    if dtype in family.stores:
        stored = dtype
    elif dtype != "fp32" or size(model) <= EXTERNAL_BYTES:
        return
    if shrunk := weights.shrink(model, stored):
        family.meta["weights"] = NAMES[stored or "bf16"]
        family.shrunk += shrunk


def size(model: onnx.ModelProto) -> int:
    return sum(len(t.raw_data) for t in model.graph.initializer)


def save(model: onnx.ModelProto, path: Path) -> None:
    """Saves a graph, with large weights in a file beside it."""
    if size(model) > EXTERNAL_BYTES:
        onnx.save(model, path, save_as_external_data=True, all_tensors_to_one_file=True, location=path.name + ".data", size_threshold=1024)
    else:
        onnx.save(model, path)


def check(model: onnx.ModelProto, ports_in, ports_out) -> None:
    """Refuses branches, and ports that differ from those implied by bundle.json."""
    for graph in graphs(model.graph):
        for node in graph.node:
            if node.op_type in tracing.FORBIDDEN:
                raise ExportError(f"the exported graph has {node.op_type} ({node.name}), which the server's graphs must not have: {FAULT}")
    for side, values, ports in (("inputs", model.graph.input, ports_in), ("outputs", model.graph.output, ports_out)):
        have = {v.name: (v.type.tensor_type.elem_type, [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]) for v in values}
        want = {p.name: (ELEMENTS[p.dtype], [BATCH, *p.shape]) for p in ports}
        if have != want:
            differ = sorted(n for n in {*have, *want} if have.get(n) != want.get(n))
            raise ExportError(f"the exported graph's {side} differ from what bundle.json implies in {differ[0]}: {have.get(differ[0])}, want {want.get(differ[0])}: {FAULT}")


def graphs(graph: onnx.GraphProto):
    """The graph and the bodies of its control flow."""
    yield graph
    for node in graph.node:
        for a in node.attribute:
            for sub in [a.g] if a.type == onnx.AttributeProto.GRAPH else list(a.graphs):
                yield from graphs(sub)


class Runner:
    """ONNX Runtime on the CPU with a bundle's graphs, of any form."""

    def __init__(self, folder: Path, meta: dict[str, Any]):
        self.steps = meta.get("num_steps", 0)
        names = (sampler.PREFIX, sampler.STEP) if meta.get("form") == "split" else (sampler.POLICY,)
        self.sessions = [_session(folder / name, "weights" in meta) for name in names]

    def __call__(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Both outputs for the graph's inputs."""
        if len(self.sessions) == 1:
            return _run(self.sessions[0], inputs, sampler.OUTPUTS)
        first, step = self.sessions
        given = inputs | _run(first, inputs)
        for k in range(self.steps):
            given = copy.copy(given) | {"k": np.array(k, np.int64)}
            given |= _run(step, given)
            given["x"] = given.pop("x_next")
        return {name: given[name] for name in sampler.OUTPUTS}


class Modules:
    """The modules of the graphs, run by torch: for types whose products ONNX Runtime lacks on a CPU."""

    def __init__(self, flow: sampler.Flow):
        self.flow = flow

    def __call__(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        chunks = sampler.sample(self.flow, {name: torch.from_numpy(value) for name, value in inputs.items()})
        return {name: chunk.numpy() for name, chunk in zip(sampler.OUTPUTS, chunks, strict=True)}


def runner(family, folder: Path):
    """The runner that computes the outputs of the bundle in `folder` on this machine."""
    computes_in_bf16 = family.options.dtype == "bf16" and "bf16" not in family.stores
    return Modules(family.flow()) if computes_in_bf16 else Runner(folder, family.meta)


def _session(path: Path, stored: bool):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.log_severity_level = 3
    if stored:  # as in lean-server, so that times and sizes are those of the served graph
        options.add_session_config_entry("optimization.disable_specified_optimizers", UNFOLDED)
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as e:
        raise ExportError(f"ONNX Runtime does not load the exported {path.name}: {e}; {FAULT}") from None


def _run(session, given: dict[str, np.ndarray], names: list[str] | None = None) -> dict[str, np.ndarray]:
    names = names or [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, {i.name: given[i.name] for i in session.get_inputs()}), strict=True))
