"""Golden sets: batches of inputs as a server would bind them, with the outputs that ONNX Runtime gave for them."""

import numpy as np
import onnxruntime

from . import bundle, camera
from .onnxgraph import INPUTS, OUTPUTS, ROWS
from .rtc import EXP, FREE, GUIDED, LINEAR, ONES, TRAINED, TRAINED_GUIDED, ZEROS
from .world import World

Batch = dict[str, np.ndarray]

EXECUTED = 20  # rows of the first chunk that run before the sets are recorded, so that there is a live schedule
DELAY, LONG_DELAY = 8, 12
PREFIX_END = 24
BETA = 10.0


def session(model: bytes | str, threads: int = 1) -> onnxruntime.InferenceSession:
    """An ONNX Runtime session with lean-server's options."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(graph: onnxruntime.InferenceSession, batch: Batch) -> Batch:
    """The outputs by name."""
    return dict(zip(OUTPUTS, graph.run(list(OUTPUTS), batch)))


def request(worlds: list[World], seed: int, modes: list[int], plan: np.ndarray | None = None, delay: int = DELAY) -> Batch:
    """Inputs for the present state of the worlds. plan is the last chunk, of which EXECUTED rows have run."""
    n = len(worlds)
    prefix, rows = np.zeros((n, ROWS, len(bundle.JOINTS)), np.float32), 0
    if plan is not None:
        rows = ROWS - EXECUTED
        prefix[:, :rows] = plan[:, EXECUTED:]
    return ports(
        picture=np.stack([camera.render(w.q, w.target, w.post) for w in worlds]),
        state=np.stack([w.q for w in worlds]),
        noise=np.random.default_rng(seed).standard_normal(prefix.shape),
        prefix=prefix,
        rows=np.full(n, rows),
        delay=np.full(n, min(delay, rows)),
        end=np.full(n, PREFIX_END),
        mode=np.array(modes),
    )


def ports(
    *,
    picture: np.ndarray,
    state: np.ndarray,
    noise: np.ndarray,
    prefix: np.ndarray,
    rows: np.ndarray,
    delay: np.ndarray,
    end: np.ndarray,
    mode: np.ndarray,
) -> Batch:
    """The graph's inputs under their names and in their types."""
    n = len(state)
    values = [picture, state, noise, prefix, rows, delay, end, mode, np.full(n, BETA), np.full(n, LINEAR), np.ones(n)]
    types = [np.uint8] + [np.float32] * 3 + [np.int64] * 4 + [np.float32, np.int64, np.float32]
    return {name: np.ascontiguousarray(v, t) for name, v, t in zip(INPUTS, values, types)}


def record(model: bytes) -> dict[str, Batch]:
    """Four sets: one free, one with a trained prefix, a batch of all four modes whose first row has no prefix, and a
    batch of all four schedules with several deviations. Fails when a graph does not return the committed rows."""
    graph = session(model)
    worlds = [World(7), World(8, -1), World(9), World(10, -1)]
    first = run(graph, request(worlds, 1, [FREE] * 4))["chunk_robot"]
    for world, chunk in zip(worlds, first):
        for row in chunk[:EXECUTED].astype(np.float64):
            world.step(row)
    mixed = request(worlds, 4, [FREE, GUIDED, TRAINED, TRAINED_GUIDED], first, LONG_DELAY)
    mixed["prefix_len"][0] = 0
    schedules = request(worlds, 5, [GUIDED, GUIDED, TRAINED_GUIDED, GUIDED], first)
    schedules["schedule"][:] = [LINEAR, ZEROS, ONES, EXP]
    schedules["sigma_d"][:] = [0.2, 1.0, 0.5, 0.2]
    sets = {
        "b1_mode0": request(worlds[:1], 2, [FREE]),
        "b1_mode2": request(worlds[1:2], 3, [TRAINED], first[1:2]),
        "b4_modes0123": mixed,
        "b4_schedules": schedules,
    }
    recorded = {}
    for name, batch in sets.items():
        out = run(graph, batch)
        _check_committed(name, batch, out["chunk_robot"])
        recorded[name] = {f"in/{k}": v for k, v in batch.items()} | {f"out/{k}": v for k, v in out.items()}
    return recorded


def batch_invariant(model: bytes) -> bool:
    """Whether a row has the same bytes alone and in any batch up to 8, in every mode, on this machine."""
    graph = session(model)
    worlds = [World(i, 1 - 2 * (i % 2)) for i in range(8)]
    first = run(graph, request(worlds, 1, [FREE] * 8))["chunk_robot"]
    batch = request(worlds, 2, [0, 1, 2, 3] * 2, first)
    whole = run(graph, batch)["chunk_robot"]
    for size in (1, 2, 3, 4):
        for at in range(0, 8 - size + 1, size):
            part = run(graph, {k: v[at : at + size] for k, v in batch.items()})["chunk_robot"]
            if part.tobytes() != whole[at : at + size].tobytes():
                return False
    return True


def _check_committed(name: str, batch: Batch, chunk: np.ndarray) -> None:
    for b in np.nonzero(batch["rtc_mode"] >= TRAINED)[0]:
        rows = min(batch["delay"][b], batch["prefix_len"][b])
        off = np.abs(chunk[b, :rows] - batch["prefix"][b, :rows])
        if rows and off.max() > bundle.TOLERANCE["chunk_robot"]:
            raise RuntimeError(f"{name}: row {b} of the batch changes its committed prefix by {off.max():.3g}")
