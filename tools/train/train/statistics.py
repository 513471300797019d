"""Writes statistics.json, the description of the training's observations, into a bundle: python -m train.statistics BUNDLE

Robots compare their first observation with it. The bundle's graph stays as it is.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from . import bundle, camera, teacher
from .world import pose

SCENES = 4000
SIDE = 8  # cells of a picture's reference in each direction


def of(seed: int) -> dict[str, object]:
    """The statistics of the scenes in which demonstrations begin and go on. Pictures are shares of full brightness."""
    rng = np.random.default_rng(seed)
    s = teacher.draw_scenes(rng, SCENES)
    q = pose(s.tip, s.grip)
    pictures = np.empty((SCENES, camera.HEIGHT, camera.WIDTH, 3), np.uint8)
    for i in range(SCENES):
        pictures[i] = camera.render(q[i], s.target[i], s.post[i])
    cells = pictures.reshape(SCENES, SIDE, camera.HEIGHT // SIDE, SIDE, camera.WIDTH // SIDE, 3).mean((2, 4)) / 255
    light = cells.mean((1, 2, 3))
    return {
        "frames": SCENES,
        "state": {name: rounded(f(q, 0), 3) for name, f in (("min", np.min), ("max", np.max), ("mean", np.mean), ("std", np.std))},
        "cameras": [
            {
                "name": bundle.CAMERAS[0]["name"],
                "mean": rounded(pictures.mean((0, 1, 2)) / 255),
                "std": rounded(pictures.reshape(-1, 3).std(0) / 255),
                "light": rounded(np.array([light.min(), light.max()])),
                "grid": rounded(cells.mean(0).reshape(-1)),
                "grid_std": rounded(cells.std(0).reshape(-1)),
            }
        ],
    }


def rounded(values: np.ndarray, digits: int = 4) -> list[float]:
    return [round(float(v), digits) for v in values]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.statistics", description=__doc__.split(":")[0])
    parser.add_argument("bundle", type=Path, help="the bundle's directory, which is rewritten")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    (args.bundle / "statistics.json").write_text(json.dumps(of(args.seed)) + "\n")
    manifest = json.loads((args.bundle / "bundle.json").read_text())
    manifest["files"] = bundle.digests(args.bundle)
    (args.bundle / "bundle.json").write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    main()
