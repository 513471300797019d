"""ONNX Runtime from Python on a bundle, a contender of `bench gpu --beside`: inputs and outputs are bound on the device
once, and inputs are copied to it before each run, as in the server. For a policy in two graphs it runs the sampler's
loop, and the tensors between the graphs stay on the device."""

import json
import sys

import numpy as np
import onnxruntime as ort
from timed import Asked

# numpy's type for each type of a port, or ONNX's number for a type that numpy lacks.
TYPES = {
    "tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(bfloat16)": 16,
    "tensor(uint8)": np.uint8, "tensor(int64)": np.int64, "tensor(bool)": np.bool_,
}  # fmt: skip


class Graph:
    """A session on the chosen device."""

    def __init__(self, asked: Asked, name: str):
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = asked.threads, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 4
        gpu = {"device_id": str(asked.number)}
        providers = {
            "cpu": ["CPUExecutionProvider"],
            "cuda": [("CUDAExecutionProvider", gpu | {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"})],
            "tensorrt": [("TensorrtExecutionProvider", gpu), ("CUDAExecutionProvider", gpu | {"use_tf32": "0"})],
        }[asked.kind]
        self.session = ort.InferenceSession(asked.bundle / name, options, providers=providers)
        if asked.kind != "cpu" and len(self.session.get_providers()) < 2:
            sys.exit(f"no {asked.kind}: the session has only {self.session.get_providers()}")
        self.inputs, self.outputs = self.session.get_inputs(), self.session.get_outputs()
        self.memory = ("cpu" if asked.kind == "cpu" else "cuda", asked.number)

    def empty(self, port, batch: int) -> ort.OrtValue:
        """Allocates a port's tensor on the device."""
        return ort.OrtValue.ortvalue_from_shape_and_type([batch, *port.shape[1:]], TYPES[port.type], *self.memory)

    def bind(self, values: dict[str, ort.OrtValue]):
        """A function that runs the session with every port bound to its value."""
        binding = self.session.io_binding()
        for port in self.inputs:
            binding.bind_ortvalue_input(port.name, values[port.name])
        for port in self.outputs:
            binding.bind_ortvalue_output(port.name, values[port.name])
        return lambda: self.session.run_with_iobinding(binding)


def given(port, batch: int, rng: np.random.Generator) -> np.ndarray:
    """An input of a request without a prefix."""
    shape, kind = [batch, *port.shape[1:]], TYPES[port.type]
    if kind == np.uint8:
        return rng.integers(0, 255, shape, dtype=np.uint8)
    if port.name == "noise":
        return rng.standard_normal(shape, dtype=np.float32)
    return np.ones(shape, kind) if port.name in ("tokens", "token_mask", "sigma_d") else np.zeros(shape, kind)


class Policy:
    """A bundle's graph, or its two graphs."""

    def __init__(self, asked: Asked):
        if asked.kind != "cpu":
            ort.preload_dlls()
        split = asked.meta.get("form") == "split"
        self.first = Graph(asked, "prefix.onnx" if split else "policy.onnx")
        self.step = Graph(asked, "step.onnx") if split else None
        self.numbers = [np.array(k, np.int64) for k in range(asked.meta["num_steps"])] if split else []

    def prepare(self, batch: int):
        """A function for one inference of a batch size, from inputs on the host to both chunks on the host."""
        rng, first, step = np.random.default_rng(0), self.first, self.step
        host = {port.name: given(port, batch, rng) for port in first.inputs}
        values = {name: ort.OrtValue.ortvalue_from_numpy(value, *first.memory) for name, value in host.items()}
        values |= {port.name: first.empty(port, batch) for port in first.outputs}
        head, steps = first.bind(values), []
        if step:
            values |= {port.name: step.empty(port, batch) for port in step.outputs}
            values["k"] = ort.OrtValue.ortvalue_from_numpy(np.array(0, np.int64), *first.memory)  # on the CPU it borrows the array
            steps = [step.bind(values), step.bind(values | {"x": values["x_next"], "x_next": values["x"]})]
        results = [values[name] for name in ("chunk_model", "chunk_robot")]

        def run() -> list[np.ndarray]:
            for name, value in host.items():
                values[name].update_inplace(value)
            head()
            for k, number in enumerate(self.numbers):
                values["k"].update_inplace(number)
                steps[k % 2]()
            return [value.numpy() for value in results]

        return run


if __name__ == "__main__":
    asked = Asked()
    print(json.dumps(asked.measure(Policy(asked).prepare)))
