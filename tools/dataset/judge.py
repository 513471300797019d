"""Runs LeRobot's own code on a dataset of edge-rt's: judge.py DATASET RECORD-JPEGS [--tools] [--keep DIR]

Every printed line is a check that passed; a failed check ends the program. RECORD-JPEGS is a
folder CAMERA/NNNNNN.jpg with the record's picture for each frame. DIR receives the datasets
that LeRobot's tools derive from DATASET, and some by LeRobot's own writer; all must load.
"""

import argparse
import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HOME = tempfile.mkdtemp(prefix="edge-rt-judge-")  # the loader caches by path
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
os.environ.update(HF_HOME=HOME, HF_LEROBOT_HOME=HOME + "/lerobot", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")

import numpy as np  # noqa: E402
import PIL.Image  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import torch  # noqa: E402
from importlib.metadata import version  # noqa: E402

import lerobot  # noqa: E402
from lerobot.datasets.aggregate import aggregate_datasets  # noqa: E402
from lerobot.datasets.compute_stats import aggregate_stats, get_feature_stats, sample_images  # noqa: E402
from lerobot.datasets.dataset_tools import (  # noqa: E402
    add_features,
    convert_image_to_video_dataset,
    delete_episodes,
    modify_tasks,
    remove_feature,
    split_dataset,
)
from lerobot.datasets.io_utils import load_stats  # noqa: E402
from lerobot.datasets.lerobot_dataset import LeRobotDataset  # noqa: E402

torch.set_num_threads(1)


def check(what: str, held: bool, more: object = "") -> None:
    if not held:
        raise SystemExit(f"judge: does not hold: {what} {more}")
    print(what, more)


def open_set(root: Path, **options) -> LeRobotDataset:
    return LeRobotDataset("judge/" + root.name, root=root, **options)


def frames(ds: LeRobotDataset, root: Path, pictures: Path) -> None:
    """Compares every frame of LeRobot's loader with its JPEG in the record."""
    info = json.loads((root / "meta/info.json").read_text())
    cameras = [k for k, f in info["features"].items() if f["dtype"] == "video"]
    worst, mean, next_best = 0.0, 0.0, 1e9
    sources = {c: sorted((pictures / c.removeprefix("observation.images.")).glob("*.jpg")) for c in cameras}
    check("frames", len(ds) == info["total_frames"] and all(len(s) == len(ds) for s in sources.values()), len(ds))
    first = {}
    for i in range(len(ds)):
        item = ds[i]
        episode = int(item["episode_index"])
        first.setdefault(episode, i)
        at = float(item["timestamp"])
        if int(item["index"]) != i or abs(at - (i - first[episode]) / info["fps"]) > 1e-6 or int(item["frame_index"]) != i - first[episode]:
            raise SystemExit(f"judge: frame {i} is {at} of {episode}")
        if not item["task"]:
            raise SystemExit(f"judge: frame {i} has no task")
        if "edge_rt.session" in info["features"] and (len(item["edge_rt.session"]) != 32 or not item["edge_rt.model_sha256"] or int(item["edge_rt.episode"]) < 1):
            raise SystemExit(f"judge: frame {i} is of session {item['edge_rt.session']}")
        for c in cameras:
            want = np.asarray(PIL.Image.open(sources[c][i]).convert("RGB"), dtype=np.float32)
            got = item[c].permute(1, 2, 0).numpy() * 255
            error = float(np.abs(got - want).mean())
            worst, mean = max(worst, error), mean + error / len(ds) / len(cameras)
            if i + 7 < len(ds) and i + 7 - first[episode] < 30:  # another frame's picture must differ more
                other = np.asarray(PIL.Image.open(sources[c][i + 7]).convert("RGB"), dtype=np.float32)
                if sources[c][i].read_bytes() != sources[c][i + 7].read_bytes():
                    next_best = min(next_best, float(np.abs(got - other).mean()) - error)
    check("time stamps are frame_index/fps", True)
    check("mean error of pictures, levels of 255", worst < 4 and next_best > 0, f"{mean:.2f}, worst frame {worst:.2f}, nearer than the picture of 7 frames later by {next_best:.2f} at least")


def stats(ds: LeRobotDataset, root: Path, pictures: Path) -> None:
    """Compares the statistics with LeRobot's functions in float64 and in its own float32."""
    rows = pq.read_table(sorted((root / "meta/episodes").rglob("*.parquet"))[0]).to_pylist()
    data = {}
    for file in sorted((root / "data").rglob("*.parquet")):
        for k, v in pq.read_table(file).to_pydict().items():
            data.setdefault(k, []).extend(v)
    features, episodes, worst, float32 = ds.meta.features, [], 0.0, 0.0
    for row in rows:
        own = {}
        for name, f in features.items():
            if f["dtype"] == "string":  # compute_stats leaves texts out
                continue
            begin, end = row["dataset_from_index"], row["dataset_to_index"]
            if f["dtype"] == "video":
                images = sample_images([str(p) for p in sorted((pictures / name.removeprefix("observation.images.")).glob("*.jpg"))[begin:end]])
                want, low = ({k: v if k == "count" else np.squeeze(v / 255, axis=0) for k, v in get_feature_stats(images.astype(t), axis=(0, 2, 3), keepdims=True).items()} for t in (np.float64, np.float32))
            else:
                array = np.array(data[name][begin:end], dtype=f["dtype"])
                want = get_feature_stats(array.astype(np.float64) if f["dtype"] == "float32" else array, axis=0, keepdims=array.ndim == 1)
                low = get_feature_stats(array, axis=0, keepdims=array.ndim == 1)
            own[name] = {k: np.atleast_1d(np.array(row[f"stats/{name}/{k}"])) for k in want}
            for k, v in want.items():
                if own[name][k].shape != v.shape:
                    raise SystemExit(f"judge: {name} {k} has the shape {own[name][k].shape}, want {v.shape}")
                scale = max(float(np.abs(want["max"]).max()), float(np.abs(want["min"]).max()), 1e-9)
                exact = min(float(np.abs(own[name][k] - x[k]).max()) for x in ((want, low) if k[0] == "q" else (want,)))
                worst = max(worst, exact / scale)
                float32 = max(float32, float(np.abs(own[name][k] - low[k]).max()) / scale)
        episodes.append(own)
    check("statistics of episodes, largest difference to compute_stats in float64, relative", worst < 1e-5, f"{worst:.1e} (in float32: {float32:.1e})")
    whole, total = aggregate_stats(episodes), load_stats(root)
    differences, quantiles = [], []
    for n, of_all in whole.items():
        counts = np.array([float(e[n]["count"][0]) for e in episodes])
        for k, v in of_all.items():
            scale = max(1e-9, float(np.abs(of_all["max"]).max()))
            if k == "count":
                differences.append(0.0 if (total[n][k] == v).all() else 1.0)
            elif k[0] == "q":  # release 0.6.1 takes the mean, main the extremes
                mean = np.average(np.stack([e[n][k] for e in episodes]), axis=0, weights=counts)
                differences.append(float(np.abs(total[n][k] - mean).max()) / scale)
                quantiles.append(float(np.abs(total[n][k] - v).max()) / scale)
            else:
                differences.append(float(np.abs(total[n][k] - v).max()) / scale)
    check("statistics of all, largest difference to aggregate_stats, relative", max(differences) < 1e-9, f"{max(differences):.1e} (its quantiles: {max(quantiles):.1e})")


def more_tools(root: Path, out: Path) -> None:
    """LeRobot's other tools, each of which keeps a different part of a dataset unchanged."""
    ds = open_set(root)
    added = {
        "reward": (np.linspace(0, 1, len(ds)).astype(np.float32), {"dtype": "float32", "shape": (1,), "names": None}),
        "embedding": (np.random.default_rng(1).random((len(ds), 2, 3)).astype(np.float32), {"dtype": "float32", "shape": (2, 3), "names": None}),
    }
    check("add_features", "embedding" in add_features(ds, added, output_dir=out / "added", repo_id="judge/added").features)
    removed = remove_feature(ds, ["edge_rt.seq", ds.meta.video_keys[-1]], output_dir=out / "removed", repo_id="judge/removed")
    check("remove_feature", "edge_rt.seq" not in removed.features)
    shutil.copytree(root, out / "tasks")
    modify_tasks(open_set(out / "tasks"), new_task="hebe auf", episode_tasks={1: "把方块捡起来"})
    check("modify_tasks", {open_set(out / "tasks")[i]["task"] for i in (0, len(ds) - 1)} == {"hebe auf"})
    delete_episodes(open_set(out / "merged"), [2], output_dir=out / "less", repo_id="judge/less")
    small = {"data_files_size_in_mb": 0.0001, "video_files_size_in_mb": 0.0001, "chunk_size": 1}
    aggregate_datasets(["judge/deleted", "judge/less"], "judge/chunks", roots=[out / "deleted", out / "less"], aggr_root=out / "chunks", **small)
    check("merge into many chunks", len(open_set(out / "chunks")) > 0, f"{len(list((out / 'chunks/data').iterdir()))} chunks")


def written(out: Path) -> None:
    """Datasets of LeRobot's own writer: pictures in tables, both orders of their sizes, matrices, texts, other types."""
    rng = np.random.default_rng(2)
    camera, names = "observation.images.top", ["height", "width", "channels"]
    for name, video, extra in (
        ("images", False, {camera: {"dtype": "image", "shape": (48, 64, 3), "names": names}}),
        ("videos", True, {camera: {"dtype": "video", "shape": (48, 64, 3), "names": names}}),
        ("channels", True, {camera: {"dtype": "video", "shape": (3, 48, 64), "names": names[2:] + names[:2]}}),
        ("matrix", False, {"m": {"dtype": "float32", "shape": (2, 3), "names": None}, "n": {"dtype": "float64", "shape": (2, 3, 2), "names": None}, "i": {"dtype": "int32", "shape": (2,), "names": None}}),
        ("text", False, {"note": {"dtype": "string", "shape": (1,), "names": None}, "b": {"dtype": "bool", "shape": (2,), "names": None}}),
    ):
        features = {k: {"dtype": "float32", "shape": (3,), "names": ["a", "b", "c"]} for k in ("observation.state", "action")} | extra
        ds = LeRobotDataset.create("judge/" + name, fps=30, features=features, root=out / name, use_videos=video, robot_type="so101")
        for episode in range(3):
            for _ in range(12):
                frame = {"task": ("pick", "hebe auf")[episode % 2]}
                for k, f in features.items():
                    if f["dtype"] in ("image", "video"):
                        frame[k] = rng.integers(0, 255, f["shape"], dtype=np.uint8)
                    else:
                        frame[k] = "text" if f["dtype"] == "string" else (rng.random(f["shape"]) * 5).astype(f["dtype"])
                ds.add_frame(frame)
            ds.save_episode()
        ds.finalize()
        check(f"LeRobot's own {name}", len(open_set(out / name)) == 36)
    convert_image_to_video_dataset(open_set(out / "images"), output_dir=out / "converted", repo_id="judge/converted")
    aggregate_datasets(["judge/images", "judge/images"], "judge/twice", roots=[out / "images"] * 2, aggr_root=out / "twice")
    for path in (out / "split").iterdir():  # each moves to the other datasets
        path.rename(out / path.name)
    (out / "split").rmdir()


def tools(root: Path, out: Path) -> None:
    """Runs LeRobot's editing tools on the dataset and loads the results."""
    ds = open_set(root)
    if ds.num_episodes < 3:
        raise SystemExit("judge: want three episodes")
    less = delete_episodes(ds, [1], output_dir=out / "deleted", repo_id="judge/deleted")
    check("delete_episodes", less.num_episodes == ds.num_episodes - 1 and len(less) == len(ds) - ds.meta.episodes[1]["length"], f"{less.num_episodes} episodes")
    first, item = less.meta.episodes[1]["dataset_from_index"], ds[ds.meta.episodes[2]["dataset_from_index"]]
    check("its second episode was the third", torch.equal(less[first]["observation.state"], item["observation.state"]))
    for c in ds.meta.camera_keys:
        error = float((less[first][c] - item[c]).abs().mean()) * 255
        check(f"its pictures, {c}", error < 4, f"{error:.2f}")
    parts = split_dataset(ds, {"train": 0.67, "val": 0.33}, output_dir=out / "split")
    check("split", sum(p.num_episodes for p in parts.values()) == ds.num_episodes, {k: p.num_episodes for k, p in parts.items()})
    aggregate_datasets(["judge/" + root.name, "judge/deleted"], "judge/merged", roots=[root, out / "deleted"], aggr_root=out / "merged")
    both = open_set(out / "merged")
    check("merge", len(both) == len(ds) + len(less), f"{both.num_episodes} episodes, {len(both)} frames")
    last = both[len(both) - 1]
    check("its last frame", torch.equal(last["observation.state"], less[len(less) - 1]["observation.state"]))
    shutil.copytree(root, out / "resumed")
    more = LeRobotDataset.resume("judge/resumed", root=out / "resumed")
    rng = np.random.default_rng(1)
    for _ in range(5):
        frame = {"task": "resumed"}
        for name, f in more.meta.features.items():
            if name in ("timestamp", "frame_index", "episode_index", "index", "task_index"):
                continue
            if f["dtype"] == "video":
                frame[name] = rng.integers(0, 255, f["shape"], dtype=np.uint8)
            else:
                frame[name] = np.zeros(f["shape"], dtype=f["dtype"])
        more.add_frame(frame)
    more.save_episode()
    more.finalize()
    again = open_set(out / "resumed")
    check("resume", again.num_episodes == ds.num_episodes + 1 and again[len(again) - 1]["task"] == "resumed", f"{again.num_episodes} episodes")


def train(root: Path) -> None:
    """Runs LeRobot's own training script, offline, on the CPU: 20 steps of a small ACT."""
    out = Path(tempfile.mkdtemp(dir=HOME)) / "trained"
    command = [
        sys.executable, "-m", "lerobot.scripts.lerobot_train", f"--dataset.repo_id=judge/{root.name}", f"--dataset.root={root}", "--policy.type=act",
        "--policy.device=cpu", "--policy.push_to_hub=false", "--policy.pretrained_backbone_weights=null", "--dataset.use_imagenet_stats=false",
        "--policy.chunk_size=10", "--policy.n_action_steps=10", "--policy.dim_model=64", "--policy.dim_feedforward=128", "--policy.n_encoder_layers=2",
        "--policy.use_vae=false", "--policy.n_heads=4", "--wandb.enable=false", "--num_workers=0", "--batch_size=4", "--steps=20", "--log_freq=10",
        "--save_freq=20", "--policy.optimizer_lr=1e-4", f"--output_dir={out}",
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    check("20 steps of lerobot_train", run.returncode == 0, "" if run.returncode == 0 else run.stderr[-3000:])
    check("its checkpoint", (out / "checkpoints/000020/pretrained_model/model.safetensors").exists())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("dataset", type=Path)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--tools", action="store_true", help="the editing tools, and training")
    parser.add_argument("--keep", type=Path, help="where the datasets that they make stay")
    args = parser.parse_args()
    root = args.dataset.resolve()
    print("lerobot", getattr(lerobot, "__version__", version("lerobot")), "of", Path(lerobot.__file__).parent.parent)
    ds = open_set(root)
    frames(ds, root, args.pictures)
    stats(ds, root, args.pictures)
    if args.tools:
        out = args.keep or Path(HOME) / "edited"
        tools(root, out)
        more_tools(root, out)
        written(out)
        train(root)


if __name__ == "__main__":
    main()
