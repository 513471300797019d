"""Records demonstrations of the simulated arm: python record.py DATA

Each is a random scene: the picture of camera `top` as a robot sends it at 80x60, the six joints, and the next fifty goals
at 60 Hz of a scripted expert. The expert always passes the post on its far side: one answer to a scene, so that a
regression has nothing to average over. World, camera and expert are those of tools/train.
"""

import argparse
import io
import json
import sys
from multiprocessing import Pool
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "train"))
from train import camera, teacher, world  # noqa: E402

HEIGHT, WIDTH = camera.HEIGHT // 2, camera.WIDTH // 2
JOINTS = ["shoulder_pan.pos", "shoulder_lift.pos", "elbow_flex.pos", "wrist_flex.pos", "wrist_roll.pos", "gripper.pos"]
PART = 1000  # demonstrations of one seed
QUALITY = 90  # JPEG, as edge-rt sends; half of the pictures are recorded raw


def halve(picture: np.ndarray) -> np.ndarray:
    """u8 [H, W, 3] to half its size, each pixel the mean of four."""
    rows = picture.reshape(HEIGHT, 2, WIDTH, 2, 3)
    return ((rows.sum((1, 3), dtype=np.uint16) + 2) // 4).astype(np.uint8)


def through_jpeg(picture: np.ndarray, subsampling: int) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=QUALITY, subsampling=subsampling)
    return np.asarray(Image.open(file))


def demonstrate(seed: int) -> tuple[np.ndarray, teacher.Chunks]:
    rng = np.random.default_rng([seed, 18])
    chunks = teacher.demonstrate_one_way(rng, PART)
    pictures = np.empty((PART, HEIGHT, WIDTH, 3), np.uint8)
    for i in range(PART):
        target, post = chunks.scene[i, :2].astype(np.float64), chunks.scene[i, 2:].astype(np.float64)
        pictures[i] = halve(camera.render(chunks.state[i].astype(np.float64), target, post))
        if rng.random() < 0.5:
            pictures[i] = through_jpeg(pictures[i], rng.choice([0, 2]))
    return pictures, chunks


def create(folder: Path, name: str, shape: tuple[int, ...], dtype: type) -> np.memmap:
    return np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, shape)


def statistics(values: np.ndarray) -> dict[str, list[float]]:
    """Statistics in the form of LeRobot's data sets. A joint that never moves gets a deviation of one degree: otherwise one
    encoder count would be nine deviations."""
    flat = values.reshape(-1, values.shape[-1]).astype(np.float64)
    std = np.maximum(flat.std(0), 1.0)
    return {"mean": flat.mean(0).tolist(), "std": std.tolist(), "min": flat.min(0).tolist(), "max": flat.max(0).tolist()}


def picture_statistics(pictures: np.ndarray) -> dict[str, list]:
    flat = pictures[:2000].reshape(-1, 3) / 255.0
    column = lambda v: v.reshape(3, 1, 1).tolist()  # noqa: E731
    return {"mean": column(flat.mean(0)), "std": column(flat.std(0)), "min": column(flat.min(0)), "max": column(flat.max(0))}


def describe(folder: Path, n: int, stats: dict) -> None:
    """Writes meta/info.json and meta/stats.json, the parts of a LeRobot data set that training and export read."""
    (folder / "meta").mkdir(exist_ok=True)
    vector = {"dtype": "float32", "shape": [len(JOINTS)], "names": JOINTS}
    picture = {"dtype": "image", "shape": [HEIGHT, WIDTH, 3], "names": ["height", "width", "channels"]}
    info = {"fps": world.FPS, "total_frames": n, "features": {"observation.state": vector, "action": vector, "observation.images.top": picture}}
    (folder / "meta" / "info.json").write_text(json.dumps(info, indent=2) + "\n")
    (folder / "meta" / "stats.json").write_text(json.dumps(stats, indent=2) + "\n")


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split(":")[0])
    p.add_argument("data", type=Path, help="folder for the arrays")
    p.add_argument("--count", type=int, default=80_000, help="demonstrations, in thousands (80000)")
    p.add_argument("--seed", type=int, default=0, help="of all chance (0)")
    p.add_argument("--workers", type=int, default=2, help="processes (2)")
    args = p.parse_args()
    parts = args.count // PART
    n = parts * PART
    args.data.mkdir(parents=True, exist_ok=True)
    pictures = create(args.data, "picture", (n, HEIGHT, WIDTH, 3), np.uint8)
    state = create(args.data, "state", (n, len(JOINTS)), np.float32)
    action = create(args.data, "action", (n, teacher.ROWS, len(JOINTS)), np.float32)
    scene = create(args.data, "scene", (n, 4), np.float32)
    with Pool(args.workers) as pool:
        seeds = range(args.seed * 10_000, args.seed * 10_000 + parts)
        for i, (shown, chunks) in enumerate(pool.imap(demonstrate, seeds)):
            at = slice(i * PART, (i + 1) * PART)
            pictures[at], state[at], action[at], scene[at] = shown, chunks.state, chunks.action, chunks.scene
            print(f"{(i + 1) * PART} of {n}", flush=True)
    for array in (pictures, state, action, scene):
        array.flush()
    stats = {"observation.state": statistics(state), "action": statistics(action), "observation.images.top": picture_statistics(pictures)}
    describe(args.data, n, stats)


if __name__ == "__main__":
    main()
