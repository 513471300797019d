"""ONNX Runtime from Python on a bundle, beside `bench gpu --beside`: inputs bound on the
device once, copied there before each run as the server does."""

import json
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

TYPES = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(int64)": np.int64, "tensor(bool)": np.bool_}


def open_session(graph: Path, device: str, threads: int) -> tuple[ort.InferenceSession, str, int]:
    kind, _, number = device.partition(":")
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4
    gpu = {"device_id": number or "0"}
    providers = {
        "cpu": ["CPUExecutionProvider"],
        "cuda": [("CUDAExecutionProvider", gpu | {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"})],
        "tensorrt": [("TensorrtExecutionProvider", gpu), ("CUDAExecutionProvider", gpu | {"use_tf32": "0"})],
    }[kind]
    if kind != "cpu":
        ort.preload_dlls()
    session = ort.InferenceSession(graph, options, providers=providers)
    if kind != "cpu" and len(session.get_providers()) < 2:
        sys.exit(f"no {kind}: the session has only {session.get_providers()}")
    return session, "cpu" if kind == "cpu" else "cuda", int(number or 0)


def measure(session: ort.InferenceSession, memory: str, number: int, batch: int, seconds: float) -> dict:
    rng = np.random.default_rng(0)
    binding, inputs = session.io_binding(), []
    for port in session.get_inputs():
        shape = [batch, *port.shape[1:]]
        kind = TYPES[port.type]
        if kind == np.uint8:
            value = rng.integers(0, 255, shape, dtype=np.uint8)
        elif port.name == "noise":
            value = rng.standard_normal(shape, dtype=np.float32)
        else:
            value = np.ones(shape, kind) if port.name in ("tokens", "token_mask", "sigma_d") else np.zeros(shape, kind)
        there = ort.OrtValue.ortvalue_from_numpy(value, memory, number)
        binding.bind_ortvalue_input(port.name, there)
        inputs.append((there, value))
    for port in session.get_outputs():
        binding.bind_output(port.name, memory, number)

    def run() -> float:
        begin = time.perf_counter()
        for there, value in inputs:
            there.update_inplace(value)
        session.run_with_iobinding(binding)
        binding.copy_outputs_to_cpu()
        return (time.perf_counter() - begin) * 1e3

    for _ in range(3):
        run()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        times.append(run())
    return {"batch": batch, "p50_ms": float(np.quantile(times, 0.5)), "p99_ms": float(np.quantile(times, 0.99)), "runs": len(times)}


def main() -> None:
    batches = [int(n) for n in os.environ["BENCH_BATCHES"].split(",")]
    if not (Path(os.environ["BENCH_BUNDLE"]) / "policy.onnx").exists():
        sys.exit("the bundle has no policy.onnx: this measures policies in one graph, export with --form loop or unrolled")
    begin = time.perf_counter()
    session, memory, number = open_session(
        Path(os.environ["BENCH_BUNDLE"]) / "policy.onnx", os.environ["BENCH_DEVICE"], int(os.environ.get("BENCH_THREADS", "1"))
    )
    opened = time.perf_counter() - begin
    seconds = float(os.environ["BENCH_SECONDS"]) / len(batches)
    results = [measure(session, memory, number, n, seconds) for n in batches]
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"open_s": opened, "rss_mb": memory_mb, "batches": results}))


main()
