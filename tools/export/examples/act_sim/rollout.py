"""Runs a checkpoint in closed loop, by LeRobot's own code: python rollout.py CHECKPOINT

Preprocessor, predict_action_chunk, postprocessor; the worlds and the criterion of success are those of tools/train.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import record  # noqa: F401, finds tools/train
import torch
from lerobot.policies.act.modeling_act import ACTPolicy
from lerobot.policies.factory import make_pre_post_processors
from train import camera, rollout
from train.world import World

KINDS = ("sync", "async")


class Checkpoint:
    """LeRobot's policy with its processors."""

    def __init__(self, folder: Path):
        self.policy = ACTPolicy.from_pretrained(folder, local_files_only=True)
        self.pre, self.post = make_pre_post_processors(self.policy.config, pretrained_path=str(folder))

    def chunks(self, robots: list[rollout.Robot]) -> np.ndarray:
        worlds = [r.world for r in robots]
        pictures = np.stack([record.halve(camera.render(w.q, w.target, w.post)) for w in worlds])
        batch = self.pre(
            {
                "observation.images.top": torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255,
                "observation.state": torch.from_numpy(np.stack([w.q for w in worlds]).astype(np.float32)),
            }
        )
        return self.post(self.policy.predict_action_chunk(batch)).numpy().astype(np.float64)


def simulate(checkpoint: Checkpoint, kind: str, delay: int, seeds: int, ticks: int) -> list[rollout.Robot]:
    """Every seed in both directions."""
    numbers = range(rollout.FIRST_SEED, rollout.FIRST_SEED + seeds)
    robots = [rollout.Robot(World(seed, side), np.random.default_rng(0)) for seed in numbers for side in (1, -1)]
    for tick in range(ticks):
        for r in robots:
            r.merge(tick)
        asking = [r for r in robots if r.wants(kind)]
        if asking:
            for r, chunk in zip(asking, checkpoint.chunks(asking), strict=True):
                r.flight = (tick + delay, r.next, chunk)
        for r in robots:
            r.act()
    return robots


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split(":")[0])
    p.add_argument("checkpoint", type=Path)
    p.add_argument("--kind", choices=KINDS, default="async", help="the kinds of tools/train's rollout")
    p.add_argument("--delay", type=int, default=8, help="ticks from observation to merge (8)")
    p.add_argument("--seeds", type=int, default=10, help="worlds in each direction (10)")
    p.add_argument("--ticks", type=int, default=rollout.TICKS, help="length (1200: 20 s)")
    args = p.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    robots = simulate(Checkpoint(args.checkpoint), args.kind, args.delay, args.seeds, args.ticks)
    print(f"{args.kind}, delay {args.delay}: {rollout.report(robots)}")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
