"""Real-Time Chunking as graph nodes: what a prefix does to a sampler. All controls are per sample.

Time runs from 1 (noise) to 0 (actions), x_t = t eps + (1 - t) a, and the network's velocity is eps - a.

Sources: Black et al., Real-Time Execution of Action Chunking Flow Policies (2025), and its training-time variant;
LeRobot's modeling_rtc, whose guidance equals the weighted error (no gradient).
"""

import numpy as np
from onnx import TensorProto

from .onnxgraph import ROWS, Graph

FREE, GUIDED, TRAINED, TRAINED_GUIDED = range(4)


def guidance_limit(step: int, steps: int) -> float:
    """The largest guidance weight of a step: min(N, (tau^2 + (1 - tau)^2) / (tau (1 - tau))), tau = step / N. With N a
    guided step copies the prefix; with more it overshoots."""
    if step == 0:
        return float(steps)
    tau = step / steps
    return min(float(steps), ((1 - tau) ** 2 + tau**2) / (tau * (1 - tau)))


def column(g: Graph, value: str, rank: int) -> str:
    """Reshapes [B] so that it broadcasts over a tensor of `rank` dimensions."""
    return g.op("Unsqueeze", value, g.const(list(range(1, rank)), np.int64))


def below(g: Graph, limit: str) -> str:
    """Which rows are below a per-sample limit: [B] -> bool [B, ROWS, 1]."""
    mask = g.op("Less", g.const(np.arange(ROWS)[None], np.int64), column(g, limit, 2))
    return g.op("Unsqueeze", mask, g.const([2], np.int64))


def hard_rows(g: Graph) -> str:
    """The rows that repeat the prefix, bool [B, ROWS, 1]: those before the delay in modes 2 and 3."""
    trained = g.op("GreaterOrEqual", "rtc_mode", g.const(TRAINED, np.int64))
    return g.op("And", below(g, _delay(g)), column(g, trained, 3))


def guidance(g: Graph) -> str:
    """Guidance weights [B, ROWS, 1]: 1 up to the delay, then falling linearly to 0 at the end of the prefix or at
    prefix_end; 0 in modes without guidance."""
    end = g.op("Cast", g.op("Min", "prefix_len", "prefix_end"), to=TensorProto.FLOAT)
    start = g.op("Min", g.op("Cast", _delay(g), to=TensorProto.FLOAT), end)
    left = g.op("Sub", column(g, end, 2), g.const(np.arange(ROWS)[None]))
    span = g.op("Add", g.op("Sub", end, start), g.const(1.0))
    weight = g.op("Clip", g.op("Div", left, column(g, span, 2)), g.const(0.0), g.const(1.0))
    guided = g.op("Or", _mode(g, GUIDED), _mode(g, TRAINED_GUIDED))
    weight = g.op("Mul", weight, g.op("Cast", column(g, guided, 2), to=TensorProto.FLOAT))
    return g.op("Unsqueeze", weight, g.const([2], np.int64))


def euler(g: Graph, x: str, v: str, time: float, size: float, limit: float, prefix: str, weight: str, hard: str) -> str:
    """One step of `size` at `time`: x - size (v - w (Y - (x - t v))), w = min(beta, limit) * weight. Hard rows are Y."""
    clean = g.op("Sub", x, g.op("Mul", v, g.const(time)))
    error = g.op("Mul", g.op("Sub", prefix, clean), weight)
    beta = g.op("Min", "beta", g.const(limit))
    pull = g.op("Mul", column(g, beta, 3), error)
    x = g.op("Sub", x, g.op("Mul", g.op("Sub", v, pull), g.const(size)))
    return g.op("Where", hard, prefix, x)


def _delay(g: Graph) -> str:
    return g.op("Min", "delay", "prefix_len")


def _mode(g: Graph, mode: int) -> str:
    return g.op("Equal", "rtc_mode", g.const(mode, np.int64))
