"""The teacher: a scripted expert, and the demonstrations that the policy learns from.

All functions work on many scenes at once: the first axis is the scene.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .world import FPS, PLACE_X, PLACE_Y, POST_RADIUS, POST_XY, SPEED, Array, pose

ROWS = 50  # actions of a chunk
MAX_PREFIX = 20  # rows of prefix at most, the bundle's rtc_max_delay
MAX_LAG = 2  # largest number of ticks by which the arm lags the chunk's first row

CLEARANCE = 0.085  # planned distance from the post's centre
UNDECIDED = 0.035  # a post this close to the straight line is passed on either side with equal probability
PACE = 0.25 / FPS  # largest distance in a tick, in metres
BRAKE = 0.12  # largest share of the remaining distance in a tick
GRIP_RANGE = 0.15  # the gripper closes over the last metres to the target


@dataclass
class Scenes:
    """The positions at the beginning of a demonstration."""

    tip: Array  # [n, 2]
    target: Array  # [n, 2]
    post: Array  # [n, 2]
    side: Array  # [n], of the target
    grip: Array  # [n]


@dataclass
class Chunks:
    """Demonstrations without pictures. `shortest` and `longest` bound the length of the prefix in a chunk's training."""

    state: NDArray[np.float32]  # [n, 6]
    action: NDArray[np.float32]  # [n, 50, 6]
    scene: NDArray[np.float32]  # [n, 4] target x, y and post x, y in metres
    shortest: NDArray[np.int64]  # [n]
    longest: NDArray[np.int64]  # [n]


def choose_way(rng: np.random.Generator, tip: Array, target: Array, post: Array) -> Array:
    """+1 or -1: the side on which the post is passed, at random when both ways are about equally long."""
    lateral, ahead = _relative(tip, target, post)
    way = np.where(lateral > 0, -1.0, 1.0)
    coin = rng.choice([-1.0, 1.0], size=lateral.shape)
    return np.where((np.abs(lateral) < UNDECIDED) & (ahead > 0), coin, way)


def step(tip: Array, target: Array, post: Array, way: Array) -> Array:
    """The tip after one tick: towards the target, or along the tangent to the clearance circle while the post is in the
    way."""
    lateral, ahead = _relative(tip, target, post)
    left = np.linalg.norm(target - tip, axis=-1)
    to_post = post - tip
    distance = np.linalg.norm(to_post, axis=-1)
    bearing = np.arctan2(to_post[..., 1], to_post[..., 0])
    tangent = bearing + way * np.arcsin(np.clip(CLEARANCE / np.maximum(distance, 1e-6), 0, 1))
    outwards = bearing + way * (np.pi / 2 + 0.5 * (CLEARANCE - distance) / (CLEARANCE - POST_RADIUS))
    around = np.where(distance < CLEARANCE, outwards, tangent)
    blocked = (ahead > 0) & (np.abs(lateral) < CLEARANCE) & (ahead < left + CLEARANCE)
    straight = np.arctan2(target[..., 1] - tip[..., 1], target[..., 0] - tip[..., 0])
    heading = np.where(blocked, around, straight)
    length = np.minimum(PACE, BRAKE * left)[..., None]
    return tip + length * np.stack([np.cos(heading), np.sin(heading)], -1)


def step_grip(grip: Array, tip: Array, target: Array) -> Array:
    """The gripper after one tick: it closes as the tip comes near the target."""
    return grip + np.clip(_closed(tip, target) - grip, -SPEED[5], SPEED[5])


def _closed(tip: Array, target: Array) -> Array:
    return 100 * np.clip(1 - np.linalg.norm(tip - target, axis=-1) / GRIP_RANGE, 0, 1)


def _relative(tip: Array, target: Array, post: Array) -> tuple[Array, Array]:
    """The post's signed distance from the line tip-target, and its distance ahead along that line."""
    line = (target - tip) / (np.linalg.norm(target - tip, axis=-1, keepdims=True) + 1e-9)
    to_post = post - tip
    return line[..., 0] * to_post[..., 1] - line[..., 1] * to_post[..., 0], (line * to_post).sum(-1)


def draw_places(rng: np.random.Generator, side: Array) -> Array:
    """A start or target on each side."""
    n = len(side)
    return np.stack([side * rng.uniform(*PLACE_X, n), rng.uniform(*PLACE_Y, n)], -1)


def draw_scenes(rng: np.random.Generator, n: int) -> Scenes:
    """A quarter of the tips start near the beginning of a leg, 40 % in the corridor before the post, the rest anywhere. A
    few start inside the post, so that the policy learns to leave it."""
    post = rng.uniform(*POST_XY, (n, 2))
    side = rng.choice([-1.0, 1.0], n)
    target = draw_places(rng, side)
    tip = np.stack([rng.uniform(-0.24, 0.24, n), rng.uniform(-0.13, 0.13, n)], -1)
    share = rng.random(n)
    starts = share < 0.25
    tip[starts] = draw_places(rng, -side[starts]) + rng.normal(0, 0.006, (starts.sum(), 2))
    before = (share >= 0.25) & (share < 0.65)
    k = before.sum()
    tip[before] = np.stack([side[before] * rng.uniform(-0.24, -0.02, k), rng.uniform(-0.11, 0.11, k)], -1)
    inside = (np.linalg.norm(tip - post, axis=-1) < POST_RADIUS) & (rng.random(n) < 0.8)
    tip[inside, 0] -= side[inside] * 0.12
    grip = np.where(rng.random(n) < 0.5, _closed(tip, target), rng.uniform(0, 100, n))
    return Scenes(tip, target, post, side, grip)


PLAIN, PREFIX, STALE = 0, 1, 2
SHARES = [0.45, 0.25, 0.30]


def far_side(scenes: Scenes) -> Array:
    """The way of a teacher who always passes the post on its far side: left when it moves right, right when it moves left."""
    return scenes.side


def demonstrate_one_way(rng: np.random.Generator, n: int) -> Chunks:
    """Plain chunks of a teacher who always takes the far side, so that there is one answer to a scene and a policy that
    regresses to the mean has nothing to average over. No prefix."""
    scenes = draw_scenes(rng, n)
    way = far_side(scenes)
    tip, grip = scenes.tip, scenes.grip
    tips, grips = [], []
    for _ in range(ROWS):
        tip = step(tip, scenes.target, scenes.post, way)
        grip = step_grip(grip, tip, scenes.target)
        tips.append(tip)
        grips.append(grip)
    none = np.zeros(n, np.int64)
    return Chunks(
        state=pose(scenes.tip, scenes.grip).astype(np.float32),
        action=pose(np.stack(tips, 1), np.stack(grips, 1)).astype(np.float32),
        scene=np.concatenate([scenes.target, scenes.post], -1).astype(np.float32),
        shortest=none,
        longest=none,
    )


def demonstrate(rng: np.random.Generator, n: int) -> Chunks:
    """Chunks of three kinds.

    plain: the chunk begins at the state and has no prefix;
    prefix: the chunk begins 0 to 2 ticks after the state, as when the arm lags its goals;
    stale: the first rows still serve an older target, mostly at rest there, and the prefix covers them. This is the
    situation after a success; without it a policy learns to stay at rest after a prefix at rest.
    """
    kind = rng.choice(3, n, p=SHARES)
    scenes = draw_scenes(rng, n)
    tip, grip = scenes.tip, scenes.grip
    arrived = (kind == STALE) & (rng.random(n) < 0.6)
    tip[arrived] = draw_places(rng, -scenes.side[arrived]) + rng.normal(0, 0.006, (arrived.sum(), 2))
    grip[arrived] = rng.uniform(80, 100, arrived.sum())
    standing = tip + rng.normal(0, 0.006, (n, 2))
    elsewhere = draw_places(rng, rng.choice([-1.0, 1.0], n))
    older = np.where((rng.random(n) < 0.65)[:, None], standing, elsewhere)

    lag = np.where(kind == PLAIN, 0, rng.integers(0, MAX_LAG + 1, n))
    stale_rows = np.where(kind == STALE, rng.integers(1, MAX_PREFIX + 1, n), 0)
    switch = np.where(kind == STALE, stale_rows + lag, 0)
    tips, grips = _walk(rng, scenes, older, switch)

    at = np.arange(n)[:, None]
    rows = 1 + lag[:, None] + np.arange(ROWS)[None]
    return Chunks(
        state=pose(tips[:, 0], grips[:, 0]).astype(np.float32),
        action=pose(tips[at, rows], grips[at, rows]).astype(np.float32),
        scene=np.concatenate([scenes.target, scenes.post], -1).astype(np.float32),
        shortest=np.where(kind == PREFIX, 1, stale_rows),
        longest=np.where(kind == PLAIN, 0, MAX_PREFIX),
    )


def _walk(rng: np.random.Generator, scenes: Scenes, older: Array, switch: NDArray[np.int64]) -> tuple[Array, Array]:
    """The expert's tip and gripper for all ticks that a chunk can need. Before `switch` it serves the older target."""
    tip, grip, post = scenes.tip, scenes.grip, scenes.post
    way = choose_way(rng, tip, older, post)
    tips, grips = [tip], [grip]
    for tick in range(ROWS + MAX_LAG):
        if tick <= MAX_PREFIX + MAX_LAG:
            way = np.where(switch == tick, choose_way(rng, tip, scenes.target, post), way)
        aim = np.where((tick < switch)[:, None], older, scenes.target)
        tip = step(tip, aim, post, way)
        grip = step_grip(grip, tip, aim)
        tips.append(tip)
        grips.append(grip)
    return np.stack(tips, 1), np.stack(grips, 1)
