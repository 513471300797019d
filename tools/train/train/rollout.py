"""Closed loop: how often does the arm reach its target?  python -m train.rollout BUNDLE --delay 8

Many worlds run in lockstep, with one request in flight each. An observation taken before step n asks for the rows n and
following; the chunk arrives `delay` ticks later, and rows whose steps have run meanwhile are dropped by their index.
"""

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from . import bundle, camera, golden, rtc
from .onnxgraph import ROWS
from .world import COLLIDED, FPS, REACHED, TIMEOUT, World

FIRST_SEED = 1000
TICKS = 1200  # 20 s
BATCH = 50  # requests in one inference
EXECUTE = 20  # rows that run before the next request (s_min)

KINDS = {
    "rtc": "the newest chunk continues the live schedule, which was its trained prefix",
    "guided": "the same, by guidance alone",
    "async": "the newest chunk replaces the schedule; the policy knows of none",
    "sync": "a chunk is asked for when the last one has run out",
}
MODES = {"rtc": rtc.TRAINED, "guided": rtc.GUIDED, "async": rtc.FREE, "sync": rtc.FREE}


@dataclass
class Robot:
    """One world and its schedule. `next` is the step to execute, `end` the first step without an action."""

    world: World
    rng: np.random.Generator
    plan: np.ndarray = field(default_factory=lambda: np.zeros((TICKS + 2 * ROWS, len(bundle.JOINTS))))
    next: int = 0
    end: int = 0
    flight: tuple[int, int, np.ndarray] | None = None  # arrival tick, first step, rows
    jumps: list[float] = field(default_factory=list)
    starved: int = 0

    def merge(self, tick: int) -> None:
        """Adds a chunk that has arrived to the schedule."""
        if self.flight is None or self.flight[0] > tick:
            return
        _, first, chunk = self.flight
        self.flight = None
        done = self.next - first
        if done >= ROWS:
            return
        if self.end > self.next:
            self.jumps.append(float(np.abs(chunk[done] - self.plan[self.next])[[0, 2]].max()))
        self.plan[self.next : first + ROWS] = chunk[done:]
        self.end = first + ROWS

    def wants(self, kind: str) -> bool:
        left = self.end - self.next
        return self.flight is None and (left == 0 if kind == "sync" else left <= ROWS - EXECUTE)

    def act(self) -> None:
        """Runs one action, or waits; the first goal is the present position."""
        if self.next < self.end:
            self.world.step(self.plan[self.next])
            self.next += 1
            return
        self.starved += self.next > 0
        self.world.step(self.plan[self.next - 1] if self.next else self.world.q)


def ask(graph: golden.onnxruntime.InferenceSession, robots: list[Robot], kind: str, delay: int, tick: int) -> None:
    """Computes one request for each robot and puts its chunk in flight."""
    for at in range(0, len(robots), BATCH):
        part = robots[at : at + BATCH]
        rows = np.array([min(r.end - r.next, ROWS) if kind in ("rtc", "guided") else 0 for r in part])
        prefix = np.zeros((len(part), ROWS, len(bundle.JOINTS)))
        for b, r in enumerate(part):
            prefix[b, : rows[b]] = r.plan[r.next : r.next + rows[b]]
        told = np.minimum(delay, rows)
        batch = golden.ports(
            picture=np.stack([camera.render(r.world.q, r.world.target, r.world.post) for r in part]),
            state=np.stack([r.world.q for r in part]),
            noise=np.stack([r.rng.standard_normal((ROWS, len(bundle.JOINTS)), np.float32) for r in part]),
            prefix=prefix,
            rows=rows,
            delay=told,
            end=np.minimum(golden.PREFIX_END, ROWS - np.maximum(EXECUTE, told)),
            mode=np.where(rows > 0, MODES[kind], rtc.FREE),
        )
        for r, chunk in zip(part, golden.run(graph, batch)["chunk_robot"].astype(np.float64)):
            r.flight = (tick + delay, r.next, chunk)


def simulate(path: Path, kind: str, delay: int, seeds: int) -> list[Robot]:
    """20 s of every seed in both directions."""
    graph = golden.session(str(path / "policy.onnx"))
    robots = [
        Robot(World(seed, side), np.random.default_rng(2 * seed + (side > 0)))
        for seed in range(FIRST_SEED, FIRST_SEED + seeds)
        for side in (1, -1)
    ]
    for tick in range(TICKS):
        for r in robots:
            r.merge(tick)
        ask(graph, [r for r in robots if r.wants(kind)], kind, delay, tick)
        for r in robots:
            r.act()
    return robots


def report(robots: list[Robot]) -> str:
    """One line: success per leg with its 95 % interval (Wilson), pace, jumps at the seams, ticks without an action."""
    legs = [leg for r in robots for leg in r.world.legs]
    outcomes = {o: sum(leg[1] == o for leg in legs) for o in (REACHED, COLLIDED, TIMEOUT)}
    low, high = wilson(outcomes[REACHED], len(legs))
    seconds = [leg[2] / FPS for leg in legs if leg[1] == REACHED] or [np.nan]
    jumps = [j for r in robots for j in r.jumps] or [0.0]
    return (
        f"success {outcomes[REACHED] / max(len(legs), 1):.4f} [{low:.4f}, {high:.4f}] of {len(legs)} legs,"
        f" {outcomes[COLLIDED]} collided, {outcomes[TIMEOUT]} timeouts |"
        f" {len(legs) / len(robots):.2f} legs per robot, median {np.median(seconds):.2f} s |"
        f" jump median {np.median(jumps):.2f}, p95 {np.percentile(jumps, 95):.2f} deg |"
        f" starved {sum(r.starved for r in robots) / len(robots):.1f} ticks per robot"
    )


def wilson(hits: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """The interval in which a share of hits in n lies with 95 % confidence."""
    if n == 0:
        return 0.0, 1.0
    p = hits / n
    centre = p + z * z / (2 * n)
    spread = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, float((centre - spread) / (1 + z * z / n))), min(1.0, float((centre + spread) / (1 + z * z / n)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.rollout", description=__doc__.split("  ")[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--kind", choices=KINDS, default="rtc", help="; ".join(f"{k}: {v}" for k, v in KINDS.items()))
    parser.add_argument("--delay", type=int, default=8, help="ticks from observation to merge (8)")
    parser.add_argument("--seeds", type=int, default=20, help="worlds in each direction (20)")
    args = parser.parse_args()
    began = time.monotonic()
    print(f"{args.kind}, delay {args.delay}: {report(simulate(args.bundle, args.kind, args.delay, args.seeds))}")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
