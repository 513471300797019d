"""The reference of the exported graph: LeRobot's own code on the same inputs."""

from typing import Any

import numpy as np
import torch

from .checkpoint import STATE, lerobots
from .errors import ExportError
from .normalize import Scale

# The largest error allowed to a graph, in standard deviations of the action: LIMITS for a
# graph that computes in the type, which keeps 10 (fp16) or 7 (bf16) bits of every
# intermediate value, STORED_LIMITS for one whose weights alone are rounded to the type.
LIMITS = {"fp32": 1e-4, "fp16": 5e-2, "bf16": 2e-1}
STORED_LIMITS = {"fp16": 1e-2, "bf16": 1e-1}


def limit(family) -> float:
    dtype = family.options.dtype
    return (STORED_LIMITS if dtype in family.stores else LIMITS)[dtype]


def random_pictures(rows: int, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Rows of noise and rows of smooth colour in turn: noise alone has no large shapes, in
    which a wrong resize or a swapped axis would show."""
    noise = rng.integers(0, 256, (rows, *shape), dtype=np.uint8)
    height, width = shape[-3:-1]
    y, x = np.mgrid[0:height, 0:width]
    lead = (rows, *shape[:-3], 1, 1, 3)
    fy, fx = rng.uniform(0.5, 4, lead) / height, rng.uniform(0.5, 4, lead) / width
    wave = np.sin(6.2831853 * (y[..., None] * fy + x[..., None] * fx) + rng.uniform(0, 6, lead))
    smooth = (127.5 + 127.5 * wave).astype(np.uint8)
    pick = (np.arange(rows) % 2).reshape(-1, *[1] * len(shape))
    return np.where(pick == 0, smooth, noise)


def random_states(rows: int, shape: tuple[int, ...], scale: Scale, rng: np.random.Generator) -> np.ndarray:
    """States around the data's mean, every third row out to five deviations."""
    mean, dev = spread(scale, shape[-1])
    wide = np.where(np.arange(rows) % 3 == 2, 5.0, 1.0).reshape(-1, *[1] * len(shape))
    return (mean + dev * wide * rng.uniform(-1, 1, (rows, *shape))).astype(np.float32)


def spread(scale: Scale, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of a vector, from its statistics. The deviation is at least
    1e-6 (1 + |mean|), the value for a joint that never moved."""
    stats = {k: v.to(torch.float64).numpy().reshape(-1) for k, v in scale.stats.items()}
    if "mean" in stats and "std" in stats:
        mean, dev = stats["mean"], stats["std"]
    elif scale.mode != "IDENTITY":
        low, high = (t.to(torch.float64).numpy().reshape(-1) for t in (scale.a, scale.b))
        mean, dev = (low + high) / 2, (high - low) / 4
    else:
        mean, dev = np.zeros(dim), np.ones(dim)
    return mean, np.maximum(dev, 1e-6 * (1 + np.abs(mean)))


def deviations(scale: Scale, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """One standard deviation of the action, in the model's units and in the robot's."""
    _, robot = spread(scale, dim)
    if scale.mode == "IDENTITY":
        return robot, robot
    slope = scale.b if scale.mode == "MEAN_STD" else scale.span() / 2
    slope = slope.to(torch.float64).numpy().reshape(-1)
    # A constant joint has a slope near 0, but its model values are still numbers near 1.
    model = np.where(np.abs(slope) > robot * 1e-3, robot / np.maximum(np.abs(slope), 1e-300), 1.0)
    return np.minimum(model, 1.0), robot


def observation(family, case, row: int, past: int | None) -> dict[str, Any]:
    """One row in the form of LeRobot's robots: pictures u8 [H, W, 3] and the state, under the
    names before renaming."""
    from lerobot.policies.utils import prepare_observation_for_inference

    own = {policy: robot for robot, policy in family.checkpoint.rename().items()}
    take = (lambda a: a[row]) if past is None else (lambda a: a[row, past])
    obs = {c.own: take(case.inputs[f"image.{c.name}"]).copy() for c in family.cameras}
    obs[own.get(STATE, STATE)] = take(case.inputs["state"]).copy()
    task = case.tasks[row] if case.tasks else None
    return prepare_observation_for_inference(obs, torch.device("cpu"), task=task)


def reference(family, case) -> dict[str, np.ndarray]:
    """LeRobot's preprocess -> predict_action_chunk -> postprocess, one row per call, as on a
    robot."""
    pre, post = family.lerobot_processors
    model, robot = [], []
    with lerobots("computes a chunk"):
        for row in range(case.rows()):
            steps = family.observation_steps()
            if steps == 1:
                batch = pre(observation(family, case, row, None))
            else:
                batch = stack([pre(observation(family, case, row, i)) for i in range(steps)])
            with torch.no_grad():
                chunk = family.predict(batch, case.part(row, row + 1))
            model.append(chunk.to(torch.float32).numpy())
            robot.append(post(chunk).to(torch.float32).numpy())
    return {"chunk_model": np.concatenate(model), "chunk_robot": np.concatenate(robot)}


def stack(batches: list[dict[str, Any]]) -> dict[str, Any]:
    """A history, oldest first, as LeRobot's observation queues stack it."""
    whole = dict(batches[-1])
    for key, value in whole.items():
        if isinstance(value, torch.Tensor) and key.startswith("observation."):
            whole[key] = torch.stack([b[key] for b in batches], dim=1)
    return whole


def errors(family, got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """|got - want| of each output in standard deviations of the action."""
    units = dict(zip(["chunk_model", "chunk_robot"], deviations(family.action_scale, family.checkpoint.action_dim()), strict=True))
    out = {}
    for name, unit in units.items():
        if got[name].shape != want[name].shape:
            raise ExportError(f"{name} of the graph is {got[name].shape}, LeRobot's is {want[name].shape}: this is a fault of the exporter")
        off = np.abs(got[name].astype(np.float64) - want[name]) / unit
        out[name] = np.where(np.isfinite(off), off, np.inf)
    return out


def parity(family, run, cases, batches=(1, 4, 16)) -> list[dict[str, Any]]:
    """The parity table: for each case, output and batch size the largest and the mean error
    in deviations, and whether the rows have the same bytes as with the first of the batch
    sizes. `run` takes graph inputs and returns outputs."""
    table = []
    for case in cases:
        want, alone = reference(family, case), None
        for batch in batches:
            parts = [run(case.part(i, i + batch).inputs) for i in range(0, case.rows(), batch)]
            got = {name: np.concatenate([p[name] for p in parts]) for name in want}
            alone = alone or got
            for name, off in errors(family, got, want).items():
                table.append({"case": case.note, "output": name, "batch": batch, "rows": case.rows(), "max": float(off.max()), "mean": float(off.mean()), "same_bytes": got[name].tobytes() == alone[name].tobytes()})
    return table


def worst(table: list[dict[str, Any]]) -> dict[str, Any]:
    return max(table, key=lambda line: line["max"])


def judge(family, table: list[dict[str, Any]]) -> None:
    """Refuses a graph whose outputs differ from LeRobot's by more than the limit."""
    line, most, dtype = worst(table), limit(family), family.options.dtype
    if not line["max"] <= most:
        raise ExportError(f"the exported graph differs from LeRobot's own code by {line['max']:.3g} deviations of the action ({line['output']}, {line['case']}, batch {line['batch']}), want at most {most:g} for {dtype}: nothing was written")


def tolerance(family, table: list[dict[str, Any]]) -> dict[str, float]:
    """The largest allowed difference between another machine's outputs and the golden ones, in
    the unit of each output: ten times this machine's error, at least a tenth of the limit."""
    most = limit(family)
    share = min(max(10 * worst(table)["max"], most / 10), 10 * most)
    model, robot = deviations(family.action_scale, family.checkpoint.action_dim())
    return {"chunk_model": float(f"{share * model.max():.2g}"), "chunk_robot": float(f"{share * robot.max():.2g}")}
