"""The camera above the world: a small anti-aliased picture of target, post and arm."""

import numpy as np
from numpy.typing import NDArray

from .world import BASE, POST_RADIUS, Array, elbow_and_tip

HEIGHT, WIDTH = 120, 160
METRES_PER_PIXEL = 0.004

BACKGROUND = 225.0
RED, GREY, BLUE, GREEN = (220, 30, 30), (70, 70, 70), (60, 90, 200), (20, 160, 60)
TARGET_DISC, UPPER_ARM, FOREARM, TIP_DISC = 0.018, 0.012, 0.010, 0.014


def render(q: Array, target: Array, post: Array) -> NDArray[np.uint8]:
    """The picture, RGB [120, 160, 3]: row 0 is far (+y), column 0 is left (-x). Painted back to front in float64,
    rounded once at the end, half to even."""
    canvas = np.full((HEIGHT, WIDTH, 3), BACKGROUND)
    elbow, tip = elbow_and_tip(q[0], q[2])
    _paint(canvas, target, target, TARGET_DISC, RED)
    _paint(canvas, post, post, POST_RADIUS, GREY)
    _paint(canvas, BASE, elbow, UPPER_ARM, BLUE)
    _paint(canvas, elbow, tip, FOREARM, BLUE)
    _paint(canvas, tip, tip, TIP_DISC, GREEN)
    return np.rint(canvas).astype(np.uint8)


def _paint(canvas: Array, a: Array, b: Array, radius: float, colour: tuple[int, int, int]) -> None:
    """Blends the capsule from a to b (a disc when they are equal). A pixel's share is the distance of its centre inside
    the edge, in pixels, plus a half. Only the pixels of the bounding rectangle are visited."""
    reach = radius + METRES_PER_PIXEL
    left = int(np.floor((min(a[0], b[0]) - reach) / METRES_PER_PIXEL + WIDTH / 2))
    right = int(np.ceil((max(a[0], b[0]) + reach) / METRES_PER_PIXEL + WIDTH / 2))
    top = int(np.floor(HEIGHT / 2 - (max(a[1], b[1]) + reach) / METRES_PER_PIXEL))
    bottom = int(np.ceil(HEIGHT / 2 - (min(a[1], b[1]) - reach) / METRES_PER_PIXEL))
    left, right, top, bottom = max(left, 0), min(right, WIDTH), max(top, 0), min(bottom, HEIGHT)
    if left >= right or top >= bottom:
        return
    x = ((np.arange(left, right) + 0.5 - WIDTH / 2) * METRES_PER_PIXEL)[None, :]
    y = ((HEIGHT / 2 - np.arange(top, bottom) - 0.5) * METRES_PER_PIXEL)[:, None]
    dx, dy = b[0] - a[0], b[1] - a[1]
    along = np.clip(((x - a[0]) * dx + (y - a[1]) * dy) / (dx**2 + dy**2 + 1e-9), 0, 1)
    distance = np.sqrt((x - a[0] - along * dx) ** 2 + (y - a[1] - along * dy) ** 2)
    share = np.clip((radius - distance) / METRES_PER_PIXEL + 0.5, 0, 1)[..., None]
    view = canvas[top:bottom, left:right]
    view += share * (np.array(colour, np.float64) - view)
