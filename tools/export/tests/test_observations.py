"""statistics.json: the description of the training's observations."""

import json
from types import SimpleNamespace

import av
import numpy as np
import pytest
import torch

from edgert_export import observations

KEY = "observation.images.top"


def family(stats: dict[str, list[float]]):
    state = SimpleNamespace(stats={k: torch.tensor(v) for k, v in stats.items()})
    return SimpleNamespace(state_scale=state, cameras=[SimpleNamespace(key="observation.images.renamed", own=KEY, name="top")])


def dataset(root, videos: int):
    """A data set whose pictures are red above and blue below; returns its meta/info.json."""
    (root / "meta").mkdir(parents=True)
    (root / "meta" / "stats.json").write_text(json.dumps({KEY: {"mean": [[[0.5]], [[0.1]], [[0.4]]]}}))
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[:24, :, 0] = 255
    picture[24:, :, 2] = 255
    for n in range(videos):
        path = root / "videos" / KEY / "chunk-000" / f"file-{n:03d}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        with av.open(str(path), "w") as out:
            stream = out.add_stream("mpeg4", rate=30, width=64, height=48, pix_fmt="yuv420p", bit_rate=4_000_000)
            for _ in range(20):
                out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            out.mux(stream.encode())
    return root / "meta" / "info.json"


def test_frames_of_the_data_set(tmp_path):
    notes = []
    got = observations.describe(family({"min": [-1.0, 0.0], "max": [1.0, 9.0], "q50": [0.0, 1.0]}), dataset(tmp_path, 2), notes.append)
    assert got["state"] == {"min": [-1, 0], "max": [1, 9]} and not notes
    (camera,) = got["cameras"]
    grid = np.array(camera["grid"]).reshape(8, 8, 3)
    assert camera["name"] == "top" and camera["frames"] == 40 and len(camera["grid_std"]) == 192
    assert (grid[0, :, 0] > 0.8).all() and (grid[0, :, 2] < 0.2).all() and (grid[7, :, 2] > 0.8).all()
    assert camera["light"][0] - 1e-3 <= sum(camera["mean"]) / 3 <= camera["light"][1] + 1e-3


def test_without_videos_and_without_a_data_set(tmp_path):
    notes = []
    got = observations.describe(family({}), dataset(tmp_path, 0), notes.append)
    assert got == {"state": {"min": [], "max": []}, "cameras": [{"name": "top", "mean": [0.5, 0.1, 0.4]}]}
    assert observations.describe(family({}), None, notes.append)["cameras"] == []
    assert "cell by cell" in notes[0] and "no pictures of observation.images.top" in notes[1]


@pytest.mark.parametrize("gop, most", [(2, 20), (600, 600)])
def test_a_long_video_is_not_decoded_whole(tmp_path, gop, most):
    path, decoded = tmp_path / "long.mp4", []
    with av.open(str(path), "w") as out:
        stream = out.add_stream("mpeg4", rate=30, width=64, height=48, pix_fmt="yuv420p", bit_rate=4_000_000)
        stream.codec_context.gop_size = gop
        for i in range(600):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(np.full((48, 64, 3), 255 * i // 600, np.uint8), format="rgb24")))
        out.mux(stream.encode())
    with av.open(str(path)) as video:
        counted = SimpleNamespace(streams=video.streams, seek=video.seek, decode=lambda s: (decoded.append(f) or f for f in video.decode(s)))
        cells = observations._spread(counted, 16)
    light = [c.mean() for c in cells]
    assert len(cells) == 16 and light == sorted(light) and light[0] < 0.1 and light[-1] > 0.85
    assert len(decoded) <= most


def test_cells_of_any_size():
    picture = np.random.default_rng(0).integers(0, 256, (37, 51, 3), np.uint8)
    got = observations.reduce(picture)
    for row, column in ((0, 0), (3, 5), (7, 7)):
        cell = picture[row * 37 // 8 : (row + 1) * 37 // 8, column * 51 // 8 : (column + 1) * 51 // 8]
        assert np.allclose(got[row, column], cell.mean((0, 1)) / 255)
