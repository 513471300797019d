"""Training of eyes and hands.

The eyes learn positions, so the hands need no pictures: they get the true positions plus noise of the size of the
eyes' error. This reduces an hour of training to minutes.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from . import camera, nets, teacher
from .world import pose

PICTURES, HELD_OUT = 24_000, 1_500
CHUNKS = 200_000
BATCH = 128
REPORT_EVERY = 250  # steps
NARROWEST = 1.0  # smallest standard deviation: shoulder_lift is constant, and one encoder count would be 9 sigma


@dataclass
class Recipe:
    """The lengths of the trainings and their parameters."""

    eyes_steps: int = 2_400
    hands_steps: int = 10_000
    plain_steps: int = 20_000
    pictures: int = PICTURES
    chunks: int = CHUNKS
    eyes_rate: float = 3e-3
    hands_rate: float = 2e-3
    plain_rate: float = 2e-3
    eyes_state_error: float = 0.02  # in normalised units
    hands_state_error: float = 0.01
    hands_scene_error: float = 0.02  # in scene units, 2 mm
    report: Callable[[str], None] = field(default=print)


@dataclass
class Policy:
    """Trained parameters and the statistics that normalise state and action. The hands belong to a sampler (nets.hands)
    or to a regression (nets.plain)."""

    eyes: nets.Params
    hands: nets.Params
    stats: dict[str, np.ndarray]  # state_mean, state_std, action_mean, action_std, each [6]


def fit(seed: int, recipe: Recipe) -> Policy:
    """Trains both networks from a seed. The same seed, versions and machine give the same parameters."""
    began = time.monotonic()
    data = teacher.demonstrate(np.random.default_rng(seed), recipe.chunks)
    stats = statistics(data)
    recipe.report(f"{recipe.chunks} chunks, {time.monotonic() - began:.0f} s")
    k_eyes, k_hands = jax.random.split(jax.random.key(seed))
    eyes = fit_eyes(k_eyes, np.random.default_rng(seed + 1), stats, recipe)
    hands = fit_hands(k_hands, data, stats, recipe)
    recipe.report(f"all, {time.monotonic() - began:.0f} s")
    return Policy(jax.tree.map(np.asarray, eyes), jax.tree.map(np.asarray, hands), stats)


def statistics(data: teacher.Chunks) -> dict[str, np.ndarray]:
    """Mean and standard deviation of states and actions."""
    action = data.action.reshape(-1, nets.JOINTS)
    return {
        "state_mean": data.state.mean(0, dtype=np.float64).astype(np.float32),
        "state_std": np.maximum(data.state.std(0, dtype=np.float64), NARROWEST).astype(np.float32),
        "action_mean": action.mean(0, dtype=np.float64).astype(np.float32),
        "action_std": np.maximum(action.std(0, dtype=np.float64), NARROWEST).astype(np.float32),
    }


def fit_eyes(key: jax.Array, rng: np.random.Generator, stats: dict[str, np.ndarray], recipe: Recipe) -> nets.Params:
    """Supervised: picture and state -> target and post."""
    began = time.monotonic()
    train, test = _pictures(rng, recipe.pictures, stats), _pictures(rng, HELD_OUT, stats)
    recipe.report(f"{recipe.pictures} pictures, {time.monotonic() - began:.0f} s")
    k_init, k_run = jax.random.split(key)

    def loss(p: nets.Params, k: jax.Array, data: tuple[jax.Array, ...]) -> jax.Array:
        k_pick, k_error = jax.random.split(k)
        i = jax.random.randint(k_pick, (BATCH,), 0, data[0].shape[0])
        state = data[1][i] + recipe.eyes_state_error * jax.random.normal(k_error, (BATCH, nets.JOINTS))
        return _huber(nets.eyes(p, _scale(data[0][i]), state) - data[2][i], 0.05)

    p = _descend("eyes", loss, nets.init_eyes(k_init), train, k_run, recipe.eyes_steps, recipe.eyes_rate, recipe.report)
    see = jax.jit(lambda x, q: nets.eyes(p, _scale(x), q))
    parts = [see(test[0][i : i + 100], test[1][i : i + 100]) for i in range(0, HELD_OUT, 100)]
    error = np.abs(np.concatenate(parts) - test[2]) * nets.SCENE_UNIT * 1000
    recipe.report(f"eyes: mean error {error.mean(0).round(2)} mm, p99 {np.quantile(error, 0.99, 0).round(1)} mm")
    return p


def fit_hands(key: jax.Array, data: teacher.Chunks, stats: dict[str, np.ndarray], recipe: Recipe) -> nets.Params:
    """Flow matching: x = t eps + (1 - t) a, velocity eps - a; prefix rows are at time 0 and not part of the loss."""
    k_init, k_run = jax.random.split(key)
    arrays = (
        (data.state - stats["state_mean"]) / (stats["state_std"] + 1e-8),
        data.scene / nets.SCENE_UNIT,
        (data.action - stats["action_mean"]) / (stats["action_std"] + 1e-8),
        data.shortest.astype(np.int32),
        data.longest.astype(np.int32),
    )

    def loss(p: nets.Params, k: jax.Array, arrays: tuple[jax.Array, ...]) -> jax.Array:
        state, scene, action, shortest, longest = arrays
        k_pick, k_eps, k_time, k_prefix, k_state, k_scene = jax.random.split(k, 6)
        i = jax.random.randint(k_pick, (BATCH,), 0, state.shape[0])
        a = action[i]
        eps = jax.random.normal(k_eps, a.shape)
        t = jax.random.uniform(k_time, (BATCH,)) ** (1 / 1.5) * 0.999 + 0.001  # Beta(1.5, 1): more of the noisy end
        prefix = shortest[i] + jnp.floor(jax.random.uniform(k_prefix, (BATCH,)) * (longest[i] - shortest[i] + 1))
        hard = jnp.arange(nets.ROWS)[None] < prefix[:, None]
        row_time = jnp.where(hard, 0.0, t[:, None])[..., None]
        x = row_time * eps + (1 - row_time) * a
        seen_state = state[i] + recipe.hands_state_error * jax.random.normal(k_state, (BATCH, nets.JOINTS))
        seen_scene = scene[i] + recipe.hands_scene_error * jax.random.normal(k_scene, (BATCH, nets.SCENE))
        v = nets.hands(p, x, t, hard, jnp.concatenate([seen_state, seen_scene], -1))
        free = ~hard[..., None]
        return jnp.sum((v - (eps - a)) ** 2 * free) / (jnp.sum(free) * nets.JOINTS)

    start = nets.init_hands(k_init)
    return _descend("hands", loss, start, arrays, k_run, recipe.hands_steps, recipe.hands_rate, recipe.report)


def fit_plain(key: jax.Array, data: teacher.Chunks, stats: dict[str, np.ndarray], recipe: Recipe) -> nets.Params:
    """Regression: state and scene -> chunk. Each scene has only one answer, so the mean is that answer."""
    k_init, k_run = jax.random.split(key)
    arrays = (
        (data.state - stats["state_mean"]) / (stats["state_std"] + 1e-8),
        data.scene / nets.SCENE_UNIT,
        (data.action - stats["action_mean"]) / (stats["action_std"] + 1e-8),
    )

    def loss(p: nets.Params, k: jax.Array, arrays: tuple[jax.Array, ...]) -> jax.Array:
        k_pick, k_state, k_scene = jax.random.split(k, 3)
        i = jax.random.randint(k_pick, (BATCH,), 0, arrays[0].shape[0])
        state, scene, action = (a[i] for a in arrays)
        state = state + recipe.hands_state_error * jax.random.normal(k_state, state.shape)
        scene = scene + recipe.hands_scene_error * jax.random.normal(k_scene, scene.shape)
        return _huber(nets.plain(p, jnp.concatenate([state, scene], -1)) - action, 0.05)

    start = nets.init_plain(k_init)
    return _descend("plain", loss, start, arrays, k_run, recipe.plain_steps, recipe.plain_rate, recipe.report)


def _pictures(rng: np.random.Generator, n: int, stats: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """Pictures halved (as sums of four bytes, which is exact), normalised states, scenes."""
    s = teacher.draw_scenes(rng, n)
    q = pose(s.tip, s.grip)
    halved = np.empty((n, camera.HEIGHT // 2, camera.WIDTH // 2, 3), np.uint16)
    for i in range(n):
        full = camera.render(q[i], s.target[i], s.post[i]).astype(np.uint16)
        halved[i] = full[::2, ::2] + full[1::2, ::2] + full[::2, 1::2] + full[1::2, 1::2]
    state = (q.astype(np.float32) - stats["state_mean"]) / (stats["state_std"] + 1e-8)
    return halved, state, np.concatenate([s.target, s.post], -1).astype(np.float32) / nets.SCENE_UNIT


def _scale(halved: jax.Array) -> jax.Array:
    """Sums of four bytes to [-1, 1]."""
    return halved.astype(jnp.float32) * (2 / (4 * 255)) - 1


def _huber(error: jax.Array, knee: float) -> jax.Array:
    size = jnp.abs(error)
    return jnp.mean(jnp.where(size < knee, 0.5 * size**2 / knee, size - 0.5 * knee))


def _descend(
    name: str,
    loss: Callable[[nets.Params, jax.Array, tuple[jax.Array, ...]], jax.Array],
    params: nets.Params,
    data: tuple[np.ndarray, ...],
    key: jax.Array,
    steps: int,
    rate: float,
    report: Callable[[str], None],
) -> nets.Params:
    """AdamW with a warm-up and a cosine decay, gradients clipped to norm 1. Returns the average of the last half's
    weights, with a memory of 1000 steps."""
    data = tuple(jnp.asarray(a) for a in data)
    report(f"{name}: {nets.count(params)} parameters, {steps} steps")

    # One call per step: inside a compiled loop, convolutions take a path that is twenty times slower on CPUs.
    @partial(jax.jit, donate_argnums=0)
    def run(carry: tuple, i: jax.Array, data: tuple[jax.Array, ...]) -> tuple[tuple, jax.Array]:
        p, m, v, average = carry
        value, g = jax.value_and_grad(loss)(p, jax.random.fold_in(key, i), data)
        p, m, v = _adamw(p, m, v, g, i, _rate(i, steps, rate))
        keep = jnp.where(i > steps // 2, 0.999, 0.99)
        average = jax.tree.map(lambda a, b: keep * a + (1 - keep) * b, average, p)
        return (p, m, v, average), value

    zeros = jax.tree.map(jnp.zeros_like, params)
    carry = (params, zeros, jax.tree.map(jnp.copy, zeros), jax.tree.map(jnp.copy, params))
    began, values = time.monotonic(), []
    for i in range(steps):
        carry, value = run(carry, i, data)
        values.append(value)
        if (i + 1) % REPORT_EVERY == 0 or i + 1 == steps:
            report(f"{name}: step {i + 1}, loss {np.mean(values):.5f}, {time.monotonic() - began:.0f} s")
            values = []
    return carry[3]


def _rate(i: jax.Array, steps: int, peak: float) -> jax.Array:
    """Linear over the first tenth, then a cosine down to 0."""
    warm = steps / 10
    done = (i - warm) / (steps - warm)
    return peak * jnp.where(i < warm, (i + 1) / warm, 0.5 * (1 + jnp.cos(jnp.pi * jnp.clip(done, 0, 1))))


def _adamw(
    p: nets.Params, m: nets.Params, v: nets.Params, g: nets.Params, i: jax.Array, rate: jax.Array
) -> tuple[nets.Params, nets.Params, nets.Params]:
    """One step. Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization, algorithm 2."""
    b1, b2, decay = 0.9, 0.98, 1e-4
    norm = jnp.sqrt(sum(jnp.sum(a**2) for a in jax.tree.leaves(g)))
    g = jax.tree.map(lambda a: a * jnp.minimum(1, 1 / (norm + 1e-6)), g)
    m = jax.tree.map(lambda a, b: b1 * a + (1 - b1) * b, m, g)
    v = jax.tree.map(lambda a, b: b2 * a + (1 - b2) * b * b, v, g)
    c1, c2 = 1 - b1 ** (i + 1.0), 1 - b2 ** (i + 1.0)
    p = jax.tree.map(lambda a, b, c: a - rate * ((b / c1) / (jnp.sqrt(c / c2) + 1e-8) + decay * a), p, m, v)
    return p, m, v
