"""Real-Time Chunking as graph nodes: the effect of a prefix on a sampler. All controls are per sample.

Time runs from 1 (noise) to 0 (actions), x_t = t eps + (1 - t) a, and the network's velocity is eps - a.

Sources: Black et al., Real-Time Execution of Action Chunking Flow Policies (2025), and its training-time variant;
LeRobot's modeling_rtc, whose guidance equals the weighted error (no gradient).
"""

import numpy as np
from onnx import TensorProto

from .onnxgraph import ROWS, Graph

FREE, GUIDED, TRAINED, TRAINED_GUIDED = range(4)

# The schedules: how guidance falls between the delay and the prefix's end. Value 0 of the graph's input is the first.
LINEAR, ZEROS, ONES, EXP = range(4)
SCHEDULES = ("linear", "zeros", "ones", "exp")


def guidance_limit(step: int, steps: int, sigma: float = 1.0) -> float:
    """The largest guidance weight of a step: min(N, ((1 - tau)^2 + s^2 tau^2) / (s^2 tau (1 - tau))), tau = step / N, for
    actions with a prior deviation s. At weight N a guided step copies the prefix; above N it overshoots."""
    if step == 0 or sigma == 0:
        return float(steps)
    tau = step / steps
    return min(float(steps), ((1 - tau) ** 2 + (sigma * tau) ** 2) / (sigma**2 * tau * (1 - tau)))


def limit(g: Graph, step: int, steps: int) -> str:
    """guidance_limit of every sample, for its sigma_d: [B]."""
    if step == 0:
        return g.const(float(steps))
    tau = step / steps
    falling = g.op("Div", g.const((1 - tau) / tau), g.op("Mul", "sigma_d", "sigma_d"))
    return g.op("Min", g.op("Add", falling, g.const(tau / (1 - tau))), g.const(float(steps)))


def column(g: Graph, value: str, rank: int) -> str:
    """Reshapes [B] so that it broadcasts over a tensor of `rank` dimensions."""
    return g.op("Unsqueeze", value, g.const(list(range(1, rank)), np.int64))


def below(g: Graph, limit: str) -> str:
    """The mask of the rows below a per-sample limit: [B] -> bool [B, ROWS, 1]."""
    mask = g.op("Less", g.const(np.arange(ROWS)[None], np.int64), column(g, limit, 2))
    return g.op("Unsqueeze", mask, g.const([2], np.int64))


def hard_rows(g: Graph) -> str:
    """The rows that repeat the prefix, bool [B, ROWS, 1]: those before the delay in modes 2 and 3."""
    trained = g.op("GreaterOrEqual", "rtc_mode", g.const(TRAINED, np.int64))
    return g.op("And", below(g, _delay(g)), column(g, trained, 3))


def guidance(g: Graph) -> str:
    """Guidance weights [B, ROWS, 1]: 1 up to the delay, then falling to 0 at the end of the prefix or at prefix_end, by
    the sample's schedule; 0 in modes without guidance."""
    end, start = bounds(g)
    left = g.op("Sub", column(g, end, 2), g.const(np.arange(ROWS)[None]))
    span = g.op("Add", g.op("Sub", end, start), g.const(1.0))
    weight = g.op("Clip", g.op("Div", left, column(g, span, 2)), g.const(0.0), g.const(1.0))
    weight = scheduled(g, weight, end, start)
    guided = g.op("Or", _mode(g, GUIDED), _mode(g, TRAINED_GUIDED))
    weight = g.op("Mul", weight, g.op("Cast", column(g, guided, 2), to=TensorProto.FLOAT))
    return g.op("Unsqueeze", weight, g.const([2], np.int64))


def bounds(g: Graph) -> tuple[str, str]:
    """The row where guidance ends and the row where it begins to fall, float [B]; the beginning is at most the end."""
    end = g.op("Cast", g.op("Min", "prefix_len", "prefix_end"), to=TensorProto.FLOAT)
    return end, g.op("Min", g.op("Cast", _delay(g), to=TensorProto.FLOAT), end)


def scheduled(g: Graph, linear: str, end: str, start: str) -> str:
    """The weights [B, ROWS] of the sample's schedule, from the linear ones."""
    rows = g.const(np.arange(ROWS)[None])
    grown = g.op("Sub", g.op("Exp", linear), g.const(1.0))
    shapes = {
        ZEROS: g.op("Cast", g.op("Less", rows, column(g, start, 2)), to=TensorProto.FLOAT),
        ONES: g.op("Cast", g.op("Less", rows, column(g, end, 2)), to=TensorProto.FLOAT),
        EXP: g.op("Mul", linear, g.op("Mul", grown, g.const(1 / (np.e - 1)))),
    }
    weight = linear
    for schedule, shape in shapes.items():
        chosen = g.op("Equal", "schedule", g.const(schedule, np.int64))
        weight = g.op("Where", column(g, chosen, 2), shape, weight)
    return weight


def weights(schedule: int, delay: int, end: int) -> np.ndarray:
    """The same weights in numpy, one sample, [ROWS]: a second implementation for tests."""
    rows, start = np.arange(ROWS), min(delay, end)
    linear = np.clip((end - rows) / (end - start + 1), 0, 1)
    return {
        LINEAR: linear,
        ZEROS: (rows < start).astype(float),
        ONES: (rows < end).astype(float),
        EXP: linear * np.expm1(linear) / (np.e - 1),
    }[schedule]


def euler(g: Graph, x: str, v: str, time: float, size: float, limit: str, prefix: str, weight: str, hard: str) -> str:
    """One step of `size` at `time`: x - size (v - w (Y - (x - t v))), w = min(beta, limit) * weight, limit
    being [B] or one value. Hard rows are Y."""
    clean = g.op("Sub", x, g.op("Mul", v, g.const(time)))
    error = g.op("Mul", g.op("Sub", prefix, clean), weight)
    beta = g.op("Min", "beta", limit)
    pull = g.op("Mul", column(g, beta, 3), error)
    x = g.op("Sub", x, g.op("Mul", g.op("Sub", v, pull), g.const(size)))
    return g.op("Where", hard, prefix, x)


def _delay(g: Graph) -> str:
    return g.op("Min", "delay", "prefix_len")


def _mode(g: Graph, mode: int) -> str:
    return g.op("Equal", "rtc_mode", g.const(mode, np.int64))
