"""The trained policy as an ONNX graph: preprocessing, both networks, Real-Time Chunking and the Euler steps.

Written node by node rather than traced, so that this file shows the computation of the robot's server. The loop over the
steps is unrolled: all values that depend only on a step's time are constants, and no sine, cosine or logarithm is left
(their last bits depend on a tensor's width, and a chunk must not depend on its batch).
"""

import jax.numpy as jnp
import numpy as np
from onnx import TensorProto

from . import nets, rtc
from .fit import Policy
from .onnxgraph import Graph

STEPS = 10  # Euler steps
EPSILON = 1e-8  # added to a standard deviation, as in LeRobot


def build(policy: Policy, metadata: dict[str, object]) -> bytes:
    """The graph of a trained policy."""
    g = Graph()
    stats = {name: g.const(value) for name, value in sorted(policy.stats.items())}
    state = normalised(g, "state", stats, "state")
    scene = see(g, policy.eyes, "image.top", state)
    films = _films(g, policy.hands, g.op("Concat", state, scene, axis=1))

    prefix = normalised(g, "prefix", stats, "action")
    prefix = g.op("Where", rtc.below(g, "prefix_len"), prefix, g.const(0.0))
    hard, weight = rtc.hard_rows(g), rtc.guidance(g)
    x = g.op("Where", hard, prefix, "noise")
    for step in range(STEPS):
        t, limit = 1 - step / STEPS, rtc.limit(g, step, STEPS)
        v = _velocity(g, policy.hands, x, t, hard, films)
        x = rtc.euler(g, x, v, t, 1 / STEPS, limit, prefix, weight, hard)
    g.name(x, "chunk_model")
    g.name(g.op("Add", g.op("Mul", x, stats["action_std"]), stats["action_mean"]), "chunk_robot")
    return g.encode(metadata)


def normalised(g: Graph, value: str, stats: dict[str, str], kind: str) -> str:
    scale = g.op("Add", stats[f"{kind}_std"], g.const(EPSILON))
    return g.op("Div", g.op("Sub", value, stats[f"{kind}_mean"]), scale)


def linear(g: Graph, p: nets.Params, x: str) -> str:
    return g.op("Add", g.op("MatMul", x, g.const(p["w"])), g.const(p["b"]))


def silu(g: Graph, x: str) -> str:
    return g.op("Mul", x, g.op("Sigmoid", x))


def _norm(g: Graph, p: nets.Params, x: str) -> str:
    return g.op("LayerNormalization", x, g.const(p["scale"]), g.const(p["shift"]), axis=-1, epsilon=nets.EPSILON)


def see(g: Graph, p: nets.Params, picture: str, state: str) -> str:
    """Picture u8 [B, 120, 160, 3] -> scene [B, 4]."""
    x = g.op("Cast", g.op("Transpose", picture, perm=[0, 3, 1, 2]), to=TensorProto.FLOAT)
    x = g.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = g.op("Sub", g.op("Mul", x, g.const(2 / 255)), g.const(1.0))
    for name, size, stride, channels in (("conv1", 5, 2, 3), ("conv2", 3, 2, nets.MAPS[0]), ("conv3", 3, 1, nets.MAPS[1])):
        x = g.op("Relu", _convolution(g, p[name], x, size, stride, channels))
    heat = _convolution(g, p["maps"], x, 1, 1, nets.MAPS[2])
    heat = g.op("Softmax", g.op("Reshape", heat, g.const([0, 0, -1], np.int64)), axis=2)
    points = g.op("MatMul", heat, g.const(nets.grid(15, 20)))
    points = g.op("Reshape", points, g.const([0, 2 * nets.MAPS[3]], np.int64))
    x = silu(g, linear(g, p["mlp1"], g.op("Concat", points, state, axis=1)))
    return linear(g, p["mlp2"], x)


def _convolution(g: Graph, p: nets.Params, x: str, size: int, stride: int, channels: int) -> str:
    kernel = np.asarray(p["w"]).reshape(size, size, channels, -1).transpose(3, 2, 0, 1)
    return g.op("Conv", x, g.const(kernel), g.const(p["b"]), strides=[stride, stride], pads=[size // 2] * 4)


def _films(g: Graph, p: nets.Params, context: str) -> list[str]:
    """Per block, the context's part of scale and shift: [B, 1, 2 * WIDTH]. The time's part is a constant."""
    x = silu(g, linear(g, p["context1"], context))
    x = silu(g, linear(g, p["context2"], x))
    c = linear(g, p["context3"], x)
    one = g.const([1], np.int64)
    return [g.op("Unsqueeze", g.op("MatMul", c, g.const(b["film"]["w"])), one) for b in p["blocks"]]


def _velocity(g: Graph, p: nets.Params, x: str, time: float, hard: str, films: list[str]) -> str:
    h = g.op("Add", g.op("MatMul", x, g.const(p["rows"]["w"])), g.const(np.asarray(p["rows"]["b"] + p["position"])))
    for block, context in zip(p["blocks"], films):
        free, still = _time_film(p, block, time), _time_film(p, block, 0.0)
        film = g.op("Add", g.op("Where", hard, g.const(still), g.const(free)), context)
        scale = g.op("Slice", film, *_span(g, 0, nets.WIDTH))
        shift = g.op("Slice", film, *_span(g, nets.WIDTH, 2 * nets.WIDTH))
        y = g.op("Add", g.op("Mul", _norm(g, block["norm1"], h), scale), shift)
        y = silu(g, linear(g, block["mix1"], g.op("Transpose", y, perm=[0, 2, 1])))
        h = g.op("Add", h, g.op("Transpose", linear(g, block["mix2"], y), perm=[0, 2, 1]))
        y = silu(g, linear(g, block["channel1"], _norm(g, block["norm2"], h)))
        h = g.op("Add", h, linear(g, block["channel2"], y))
    return linear(g, p["velocity"], _norm(g, p["norm"], h))


def _time_film(p: nets.Params, block: nets.Params, time: float) -> np.ndarray:
    """The time's part of a row's scale and shift, with the 1 of (1 + scale) and the bias: [1, 1, 2 * WIDTH]."""
    embedded = nets.embed_time(p, jnp.float32(time))
    film = np.array(embedded @ block["film"]["w"] + block["film"]["b"])
    film[: nets.WIDTH] += 1
    return film[None, None]


def _span(g: Graph, first: int, last: int) -> list[str]:
    return [g.const([value], np.int64) for value in (first, last, 2)]


def sample(policy: Policy, batch: dict[str, np.ndarray]) -> np.ndarray:
    """chunk_model by a plain loop over the training networks: a second implementation of the graph, for tests."""
    s, p = policy.stats, policy.hands
    state = (batch["state"] - s["state_mean"]) / (s["state_std"] + EPSILON)
    picture = batch["image.top"].astype(np.float32).reshape(-1, 60, 2, 80, 2, 3).mean((2, 4)) * (2 / 255) - 1
    context = jnp.concatenate([state, nets.eyes(policy.eyes, picture, state)], -1)
    prefix = (batch["prefix"] - s["action_mean"]) / (s["action_std"] + EPSILON)
    chunks = []
    for b in range(len(state)):
        rows, mode = np.arange(nets.ROWS), batch["rtc_mode"][b]
        length, end = batch["prefix_len"][b], min(batch["prefix_end"][b], batch["prefix_len"][b])
        delay = min(batch["delay"][b], length)
        goal = np.where((rows < length)[:, None], prefix[b], 0)
        hard = (rows < delay) & (mode >= rtc.TRAINED)
        weight = rtc.weights(batch["schedule"][b], delay, end) * (mode in (rtc.GUIDED, rtc.TRAINED_GUIDED))
        x = np.where(hard[:, None], goal, batch["noise"][b])
        for step in range(STEPS):
            t = 1 - step / STEPS
            v = np.asarray(nets.hands(p, x[None], jnp.array([t]), hard[None], context[b : b + 1]))[0]
            limit = rtc.guidance_limit(step, STEPS, float(batch["sigma_d"][b]))
            pull = min(float(batch["beta"][b]), limit) * weight[:, None] * (goal - (x - t * v))
            x = np.where(hard[:, None], goal, x - (v - pull) / STEPS)
        chunks.append(x)
    return np.stack(chunks)
