"""A small writer for ONNX graphs, and the inputs and outputs common to all bundles' graphs."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .bundle import CAMERAS, JOINTS

OPSET = 17
IR_VERSION = 8
ROWS = 50
BATCH = "B"  # the dynamic dimension, first everywhere

INPUTS = {
    f"image.{CAMERAS[0]['name']}": (TensorProto.UINT8, [BATCH, CAMERAS[0]["height"], CAMERAS[0]["width"], 3]),
    "state": (TensorProto.FLOAT, [BATCH, len(JOINTS)]),
    "noise": (TensorProto.FLOAT, [BATCH, ROWS, len(JOINTS)]),
    "prefix": (TensorProto.FLOAT, [BATCH, ROWS, len(JOINTS)]),
    "prefix_len": (TensorProto.INT64, [BATCH]),
    "delay": (TensorProto.INT64, [BATCH]),
    "prefix_end": (TensorProto.INT64, [BATCH]),
    "rtc_mode": (TensorProto.INT64, [BATCH]),
    "beta": (TensorProto.FLOAT, [BATCH]),
    "schedule": (TensorProto.INT64, [BATCH]),
    "sigma_d": (TensorProto.FLOAT, [BATCH]),
}
OUTPUTS = {name: (TensorProto.FLOAT, [BATCH, ROWS, len(JOINTS)]) for name in ("chunk_model", "chunk_robot")}


class Graph:
    """Collects nodes and constants. Values are named by strings; equal constants are stored once."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix  # of all names
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._initializers: list[onnx.TensorProto] = []
        self._taken = 0

    def const(self, value: np.ndarray | float | list[int], dtype: type = np.float32) -> str:
        """A constant."""
        array = np.asarray(value, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = f"{self._prefix}c{len(self._constants)}"
            self._constants[key] = name
            self._initializers.append(numpy_helper.from_array(array, name))
        return self._constants[key]

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        """One node; returns its output's name (the first of several: then name.1, name.2 and so on follow)."""
        name = f"{self._prefix}n{len(self._nodes)}"
        names = [name] + [f"{name}.{i}" for i in range(1, outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return name

    def name(self, value: str, name: str) -> None:
        """Adds an output with this name for a value."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))

    def add(self, graph: onnx.GraphProto) -> None:
        """Adds the nodes and constants of another graph, whose names must differ from this one's."""
        self._nodes.extend(graph.node)
        self._initializers.extend(graph.initializer)

    def take(self) -> list[onnx.NodeProto]:
        """The nodes since the last call, for a graph that is assembled elsewhere."""
        nodes, self._taken = self._nodes[self._taken :], len(self._nodes)
        return nodes

    @property
    def initializers(self) -> list[onnx.TensorProto]:
        """The constants."""
        return self._initializers

    def encode(
        self,
        metadata: dict[str, object],
        inputs: dict[str, tuple[int, list]] = INPUTS,
        outputs: dict[str, tuple[int, list]] = OUTPUTS,
    ) -> bytes:
        """The checked model. Its metadata describe the file without its bundle."""
        port = lambda name, spec: helper.make_tensor_value_info(name, *spec)  # noqa: E731
        graph = helper.make_graph(
            self._nodes,
            "policy",
            [port(*item) for item in inputs.items()],
            [port(*item) for item in outputs.items()],
            self._initializers,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="edgert-train")
        model.ir_version = IR_VERSION
        helper.set_model_props(model, {key: str(value) for key, value in metadata.items()})
        onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString(deterministic=True)
