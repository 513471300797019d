"""The two networks of the demo policy, as functions of their parameters.

The eyes turn a picture into the positions of target and post. The hands are a flow-matching velocity net over the 50
rows of a chunk: they mix rows and channels in turn, and each row has its own time, so that one chunk can hold a prefix
(time 0) and free rows (time t). Parameters are nested dictionaries of float32 arrays.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

Params = dict

ROWS, JOINTS = 50, 6
SCENE_UNIT = 0.1  # metres per unit of the scene vector
SCENE = 4  # target x, y, post x, y

MAPS = (12, 32, 32, 24)  # channels of the four convolutions; the last are softmax maps
WIDTH, BLOCKS = 64, 3
PLAIN_WIDTH = 128  # width of the hands without a sampler
TIME_FEATURES = 32
SHORTEST_PERIOD, LONGEST_PERIOD = 4e-3, 4.0
EPSILON = 1e-5  # epsilon of a layer norm


def init_eyes(key: jax.Array) -> Params:
    k = jax.random.split(key, 6)
    return {
        "conv1": _linear(k[0], 5 * 5 * 3, MAPS[0]),
        "conv2": _linear(k[1], 3 * 3 * MAPS[0], MAPS[1]),
        "conv3": _linear(k[2], 3 * 3 * MAPS[1], MAPS[2]),
        "maps": _linear(k[3], MAPS[2], MAPS[3]),
        "mlp1": _linear(k[4], 2 * MAPS[3] + JOINTS, 96),
        "mlp2": _linear(k[5], 96, SCENE),
    }


def eyes(p: Params, picture: jax.Array, state: jax.Array) -> jax.Array:
    """Halved picture [B, 60, 80, 3] in [-1, 1] and normalised state [B, 6] -> scene [B, 4] in units of SCENE_UNIT."""
    x = jax.nn.relu(_convolve(p["conv1"], picture, 5, 2))
    x = jax.nn.relu(_convolve(p["conv2"], x, 3, 2))
    x = jax.nn.relu(_convolve(p["conv3"], x, 3, 1))
    heat = _apply(p["maps"], x)
    b, h, w, n = heat.shape
    heat = jax.nn.softmax(heat.reshape(b, h * w, n).swapaxes(1, 2), axis=-1)
    points = (heat @ grid(h, w)).reshape(b, 2 * n)
    x = jax.nn.silu(_apply(p["mlp1"], jnp.concatenate([points, state], -1)))
    return _apply(p["mlp2"], x)


def grid(h: int, w: int) -> np.ndarray:
    """Coordinates [h * w, 2] of a feature map: x from -1 to 1, y from 0.75 (top) to -0.75."""
    y, x = np.meshgrid(np.linspace(0.75, -0.75, h), np.linspace(-1, 1, w), indexing="ij")
    return np.stack([x.ravel(), y.ravel()], -1).astype(np.float32)


def init_hands(key: jax.Array) -> Params:
    k = iter(jax.random.split(key, 8 + 5 * BLOCKS))
    return {
        "context1": _linear(next(k), JOINTS + SCENE, 128),
        "context2": _linear(next(k), 128, 128),
        "context3": _linear(next(k), 128, WIDTH),
        "rows": _linear(next(k), JOINTS, WIDTH),
        "position": 0.02 * jax.random.normal(next(k), (ROWS, WIDTH)),
        "time": _linear(next(k), TIME_FEATURES, WIDTH),
        "blocks": [
            {
                "norm1": _norm(),
                "film": _linear(next(k), WIDTH, 2 * WIDTH),
                "mix1": _linear(next(k), ROWS, 2 * ROWS),
                "mix2": _linear(next(k), 2 * ROWS, ROWS),
                "norm2": _norm(),
                "channel1": _linear(next(k), WIDTH, 2 * WIDTH),
                "channel2": _linear(next(k), 2 * WIDTH, WIDTH),
            }
            for _ in range(BLOCKS)
        ],
        "norm": _norm(),
        "velocity": _linear(next(k), WIDTH, JOINTS),
    }


def init_plain(key: jax.Array) -> Params:
    """The hands of a policy without a sampler: state and scene to a whole chunk at once."""
    k = jax.random.split(key, 3)
    return {
        "hidden1": _linear(k[0], JOINTS + SCENE, PLAIN_WIDTH),
        "hidden2": _linear(k[1], PLAIN_WIDTH, PLAIN_WIDTH),
        "chunk": _linear(k[2], PLAIN_WIDTH, ROWS * JOINTS),
    }


def plain(p: Params, context: jax.Array) -> jax.Array:
    """Normalised state and scene [B, 10] -> normalised chunk [B, 50, 6]."""
    x = jax.nn.silu(_apply(p["hidden1"], context))
    x = jax.nn.silu(_apply(p["hidden2"], x))
    return _apply(p["chunk"], x).reshape(-1, ROWS, JOINTS)


def hands(p: Params, x: jax.Array, time: jax.Array, hard: jax.Array, context: jax.Array) -> jax.Array:
    """Velocity [B, 50, 6] at x [B, 50, 6]. time [B] is the time of free rows, hard [B, 50] marks the rows at time 0,
    context [B, 10] is normalised state and scene."""
    c = embed_context(p, context)
    free, still = embed_time(p, time), embed_time(p, jnp.zeros_like(time))
    h = _apply(p["rows"], x) + p["position"]
    for block in p["blocks"]:
        f_free = _apply(block["film"], free + c)[:, None]
        f_still = _apply(block["film"], still + c)[:, None]
        film = jnp.where(hard[..., None], f_still, f_free)
        scale, shift = jnp.split(film, 2, -1)
        y = normalise(block["norm1"], h) * (1 + scale) + shift
        y = jax.nn.silu(_apply(block["mix1"], y.swapaxes(1, 2)))
        h = h + _apply(block["mix2"], y).swapaxes(1, 2)
        y = jax.nn.silu(_apply(block["channel1"], normalise(block["norm2"], h)))
        h = h + _apply(block["channel2"], y)
    return _apply(p["velocity"], normalise(p["norm"], h))


def embed_context(p: Params, context: jax.Array) -> jax.Array:
    x = jax.nn.silu(_apply(p["context1"], context))
    x = jax.nn.silu(_apply(p["context2"], x))
    return _apply(p["context3"], x)


def embed_time(p: Params, time: jax.Array) -> jax.Array:
    """Sines and cosines with periods from 4e-3 to 4 (openpi's), then one layer: [...] -> [..., WIDTH]."""
    half = TIME_FEATURES // 2
    period = SHORTEST_PERIOD * (LONGEST_PERIOD / SHORTEST_PERIOD) ** (jnp.arange(half) / (half - 1))
    angle = time[..., None] * (2 * math.pi / period)
    return jax.nn.silu(_apply(p["time"], jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1)))


def normalise(p: Params, x: jax.Array) -> jax.Array:
    """Layer norm over the last axis."""
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + EPSILON) * p["scale"] + p["shift"]


def count(p: Params) -> int:
    """The number of parameters of a network."""
    return sum(a.size for a in jax.tree.leaves(p))


def _linear(key: jax.Array, fan_in: int, fan_out: int) -> Params:
    """Uniform within 1/sqrt(fan_in), weights [fan_in, fan_out] and bias."""
    bound = fan_in**-0.5
    w, b = jax.random.split(key)
    return {
        "w": jax.random.uniform(w, (fan_in, fan_out), minval=-bound, maxval=bound),
        "b": jax.random.uniform(b, (fan_out,), minval=-bound, maxval=bound),
    }


def _norm() -> Params:
    return {"scale": jnp.ones(WIDTH), "shift": jnp.zeros(WIDTH)}


def _apply(p: Params, x: jax.Array) -> jax.Array:
    return x @ p["w"] + p["b"]


def _convolve(p: Params, x: jax.Array, size: int, stride: int) -> jax.Array:
    """A zero-padded convolution [B, h, w, C] with weights [size * size * C, out]."""
    kernel = p["w"].reshape(size, size, x.shape[-1], -1)
    padding = [(size // 2, size // 2)] * 2
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), padding, dimension_numbers=layout) + p["b"]
