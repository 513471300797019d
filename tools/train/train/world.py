"""The world "around the post": a planar arm carries its tip from one side of a post to the other and back.

Metres, degrees, 60 ticks a second, float64 throughout. The same world is written in Go (package sim); both must
agree to the last bit of a picture, so every formula here must stay unchanged.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

FPS = 60
JOINTS = 6

LINK = 0.28  # length of either link
BASE = np.array([0.0, -0.35])  # the shoulder
LIFT = -30.0  # shoulder_lift stays there

POST_RADIUS = 0.050  # the tip inside this circle is a collision
TARGET_RADIUS = 0.015  # the tip has reached the target after DWELL_TICKS in a row within this distance
DWELL_TICKS = 10  # see TARGET_RADIUS
LEG_TICKS = 360  # a longer leg is abandoned

# How far a servo moves in one tick: degrees, and percent for the gripper.
SPEED = np.array([3.0, 3.0, 3.0, 3.0, 3.0, 4.0])

# Ranges of the random places: |x| and y of starts and targets, and both coordinates of the post.
PLACE_X = (0.15, 0.21)
PLACE_Y = (-0.04, 0.04)
POST_XY = (-0.02, 0.02)

REACHED, COLLIDED, TIMEOUT = "reached", "collided", "timeout"


def elbow_and_tip(pan: ArrayLike, elbow: ArrayLike) -> tuple[Array, Array]:
    """Positions [..., 2] of the elbow and the tip. pan counts counter-clockwise from +x, elbow from the upper arm."""
    a, b = np.radians(pan), np.radians(np.add(pan, elbow))
    joint = BASE + LINK * np.stack([np.cos(a), np.sin(a)], -1)
    return joint, joint + LINK * np.stack([np.cos(b), np.sin(b)], -1)


def tip_of(q: Array) -> Array:
    """Position [..., 2] of the tip for joints [..., 6]."""
    return elbow_and_tip(q[..., 0], q[..., 2])[1]


def pose(tip: Array, grip: ArrayLike) -> Array:
    """The six joints [..., 6] that bring the tip to a position. Only pan and elbow matter for it: lift is constant,
    and the wrist follows the pan, so that a policy has something redundant to learn."""
    reach = tip - BASE
    cosine = ((reach**2).sum(-1) - LINK**2 - LINK**2) / (2 * LINK * LINK)
    bend = np.arccos(np.clip(cosine, -1, 1))
    swing = np.arctan2(reach[..., 1], reach[..., 0]) - np.arctan2(LINK * np.sin(bend), LINK + LINK * np.cos(bend))
    pan, elbow = np.degrees(swing), np.degrees(bend)
    return np.stack([pan, np.full_like(pan, LIFT), elbow, 0.25 * pan, -pan, grip + 0 * pan], -1)


class Draws:
    """SplitMix64: random numbers that are the same in every language."""

    _MASK = (1 << 64) - 1

    def __init__(self, seed: int) -> None:
        self.state = seed & self._MASK

    def word(self) -> int:
        """The next 64 bits."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & self._MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & self._MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & self._MASK
        return z ^ (z >> 31)

    def uniform(self, low: float, high: float) -> float:
        """The next number from low to high, from the upper 53 bits."""
        return low + (high - low) * ((self.word() >> 11) * 2.0**-53)

    def place(self, side: int) -> Array:
        """A start or target on a side of the post (+1 right, -1 left); x is drawn before y."""
        x = side * self.uniform(*PLACE_X)
        return np.array([x, self.uniform(*PLACE_Y)])


class World:
    """One arm, one post, and one target after the other. The first target is on the side `direction`."""

    def __init__(self, seed: int, direction: int = 1) -> None:
        self.draws = Draws(seed)
        self.side = direction
        self.post = np.array([self.draws.uniform(*POST_XY), self.draws.uniform(*POST_XY)])
        self.q = pose(self.draws.place(-direction), 0.0)
        self.target = self.draws.place(direction)
        self.near = 0
        self.leg_ticks = 0
        self.touched = False
        self.legs: list[tuple[int, str, int]] = []  # side, outcome, ticks

    def step(self, goal: Array) -> None:
        """One tick: the servos move towards the goal, then the judge looks."""
        self.q = self.q + np.clip(goal - self.q, -SPEED, SPEED)
        tip = tip_of(self.q)
        self.leg_ticks += 1
        self.touched |= bool(np.hypot(*(tip - self.post)) < POST_RADIUS)
        self.near = self.near + 1 if np.hypot(*(tip - self.target)) < TARGET_RADIUS else 0
        if self.near >= DWELL_TICKS:
            self._end_leg(COLLIDED if self.touched else REACHED)
            self.side = -self.side
        elif self.leg_ticks >= LEG_TICKS:
            # The next target is on the same side, so an arm at rest gains nothing.
            self._end_leg(TIMEOUT)
        else:
            return
        self.target = self.draws.place(self.side)

    def _end_leg(self, outcome: str) -> None:
        self.legs.append((self.side, outcome, self.leg_ticks))
        self.near = self.leg_ticks = 0
        self.touched = False
