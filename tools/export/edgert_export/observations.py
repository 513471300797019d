"""statistics.json: the training's observations, with which a robot compares its first one.

Statistics of the state come from the checkpoint. Those of pictures come from the data set beside --dataset-info,
because LeRobot replaces them in a checkpoint by ImageNet's: the mean of all pixels from meta/stats.json, and a grid
of frames from its videos, without which a picture that is upside down cannot be detected.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

SIDE = 8  # cells of a picture's reference in each direction
FRAMES = 256  # of each camera, spread over the data set
FILES = 32  # videos that are opened for a camera
SPARSE = 8  # in a video with more frames than this for each wanted frame, only key frames are decoded


def describe(family, info: Path | None, note) -> dict[str, Any]:
    """The content of statistics.json. Pictures are shares of full brightness, 0 to 1; `note` gets a text for each camera
    that has none."""
    stats = {k: v.double().reshape(-1).numpy() for k, v in family.state_scale.stats.items()}
    out: dict[str, Any] = {"state": {k: rounded(v, 6) for k, v in stats.items() if k in ("min", "max", "mean", "std", "q01", "q99")}}
    if not {"min", "max"} <= set(out["state"]):
        out["state"].update(min=[], max=[])
    root = info.parent.parent if info else None
    cameras = [camera for c in family.cameras if (camera := _camera(root, c.own, c.name, note))]
    return {**out, "cameras": cameras}


def rounded(values, digits: int = 4) -> list[float]:
    return [round(float(v), digits) for v in values]


def _camera(root: Path | None, key: str, name: str, note) -> dict[str, Any] | None:
    frames = _frames(root, key) if root else np.zeros((0, SIDE, SIDE, 3))
    if len(frames):
        light = frames.mean((1, 2, 3))
        return {"name": name, "mean": rounded(frames.mean((0, 1, 2))), "light": rounded([light.min(), light.max()]), "grid": rounded(frames.mean(0).reshape(-1)), "grid_std": rounded(frames.std(0).reshape(-1)), "frames": len(frames)}
    mean = _mean(root, key) if root else []
    missing = "pictures" if not mean else "frames"
    note(f"no {missing} of {key} in the training's data set beside --dataset-info: robots do not compare theirs" + (" cell by cell" if mean else "") + ", as when a camera is upside down")
    return {"name": name, "mean": mean} if mean else None


def _mean(root: Path, key: str) -> list[float]:
    """The mean of all pixels from meta/stats.json, [] without it."""
    try:
        mean = np.asarray(json.loads((root / "meta" / "stats.json").read_text())[key]["mean"], float).reshape(-1)
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return rounded(mean) if mean.shape == (3,) and (mean >= 0).all() and (mean <= 1).all() else []


def _frames(root: Path, key: str) -> np.ndarray:
    """Frames [n, SIDE, SIDE, 3] of a camera's videos, as the means of cells."""
    files = sorted((root / "videos" / key).glob("chunk-*/file-*.mp4"))
    if not files:
        return np.zeros((0, SIDE, SIDE, 3))
    import av

    files = files[:: max(1, -(-len(files) // FILES))]
    found: list[np.ndarray] = []
    for path in files:
        try:
            with av.open(str(path)) as video:
                found += _spread(video, max(1, FRAMES // len(files)))
        except av.FFmpegError:
            continue  # a damaged video has no frames
    return np.stack(found) if found else np.zeros((0, SIDE, SIDE, 3))


def _spread(video, wanted: int) -> list[np.ndarray]:
    """At most `wanted` frames, at about equal distances. All frames of hours would take minutes, so a long video's are
    decoded only if it has few key frames; LeRobot makes every second frame one."""
    stream = video.streams.video[0]
    every = max(1, -(-(stream.frames or wanted) // wanted))
    if every > SPARSE and stream.duration:
        cells = _key_frames(video, stream, wanted)
        if len(cells) > wanted // 2:
            return cells
        video.seek(0)
    cells = []
    for i, frame in enumerate(video.decode(stream)):
        if i % every == 0:
            cells.append(reduce(frame.to_ndarray(format="rgb24")))
        if len(cells) == wanted:
            break
    return cells


def _key_frames(video, stream, wanted: int) -> list[np.ndarray]:
    cells, last = [], None
    for n in range(wanted):
        video.seek((stream.start_time or 0) + stream.duration * n // wanted, stream=stream)
        frame = next(video.decode(stream), None)
        if frame is not None and frame.pts != last:
            last = frame.pts
            cells.append(reduce(frame.to_ndarray(format="rgb24")))
    return cells


def reduce(picture: np.ndarray) -> np.ndarray:
    """The mean of each cell of a picture u8 [H, W, 3], as edge-rt computes it."""
    rows, columns = ([i * n // SIDE for i in range(SIDE)] for n in picture.shape[:2])
    sums = np.add.reduceat(np.add.reduceat(picture.astype(np.float64), rows, 0), columns, 1)
    sizes = np.outer(np.diff([*rows, picture.shape[0]]), np.diff([*columns, picture.shape[1]]))
    return sums / (255 * sizes[..., None])
