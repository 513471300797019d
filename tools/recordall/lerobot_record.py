"""Records the pictures of a record with LeRobot: lerobot_record.py RECORDS --seconds N --way decode|pictures|streaming

Like lerobot-record at 30 frames a second: decodes two cameras' pictures, calls add_frame, and save_episode every minute.
decode: only the decoding, the baseline for the cost of recording.
"""

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

HOME = tempfile.TemporaryDirectory(prefix="edge-rt-lerobot-")
os.environ.update(HF_HOME=HOME.name, HF_LEROBOT_HOME=HOME.name + "/lerobot", HF_HUB_OFFLINE="1")

import cv2  # noqa: E402
import numpy as np  # noqa: E402
from lerobot.datasets.lerobot_dataset import LeRobotDataset  # noqa: E402
from mcap_protobuf.reader import read_protobuf_messages  # noqa: E402

FPS, EPISODE = 30, 60
KEEP = 300  # pictures of each camera, ten seconds, which are repeated
JOINTS = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"]


def pictures(records: Path) -> dict[str, list[bytes]]:
    """The first pictures of the two large cameras."""
    found: dict[str, list[bytes]] = {"left": [], "right": []}
    for file in sorted(records.glob("*.mcap")):
        for m in read_protobuf_messages(str(file), topics=["/camera/left", "/camera/right"]):
            if len(to := found[m.topic.rsplit("/", 1)[1]]) < KEEP:
                to.append(m.proto_msg.data)
            if all(len(v) == KEEP for v in found.values()):
                return found
    if not all(found.values()):
        raise SystemExit(f"{records}: no pictures of the cameras left and right")
    return found


def cpu() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(r.ru_utime + r.ru_stime for r in both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path)
    parser.add_argument("--seconds", type=int, required=True)
    parser.add_argument("--way", choices=["decode", "pictures", "streaming"], required=True)
    args = parser.parse_args()
    source = pictures(args.records)
    height, width, _ = cv2.imdecode(np.frombuffer(source["left"][0], np.uint8), cv2.IMREAD_COLOR).shape
    names = {"dtype": "float32", "shape": (len(JOINTS),), "names": JOINTS}
    image = {"dtype": "video", "shape": (height, width, 3), "names": ["height", "width", "channels"]}
    features = {"observation.state": names, "action": names} | {f"observation.images.{c}": image for c in source}
    root, dataset = Path(HOME.name) / "set", None
    if args.way != "decode":
        dataset = LeRobotDataset.create(
            "edge-rt/record", FPS, features, root=root, image_writer_threads=4 * len(source), streaming_encoding=args.way == "streaming"
        )
    began, used, late, blocked = time.monotonic(), cpu(), 0, 0.0
    due = began
    for i in range(args.seconds * FPS):
        frame = {f"observation.images.{c}": cv2.cvtColor(cv2.imdecode(np.frombuffer(p[i % len(p)], np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB) for c, p in source.items()}
        if dataset is not None:
            state = np.full(len(JOINTS), i % 100, np.float32)
            dataset.add_frame(frame | {"observation.state": state, "action": state, "task": "pick up the cube"})
            if (i + 1) % (EPISODE * FPS) == 0 or i + 1 == args.seconds * FPS:
                at = time.monotonic()
                dataset.save_episode()
                blocked += time.monotonic() - at
                due += time.monotonic() - at  # while LeRobot saves, its arm does not move, so no frame is due
        due += 1 / FPS
        if (left := due - time.monotonic()) > 0:
            time.sleep(left)
        else:
            late += 1
    if dataset is not None:
        dataset.finalize()
    size = sum(p.stat().st_size for p in root.rglob("*") if p.is_file()) if dataset is not None else 0
    minutes = args.seconds / 60
    print(
        f"LeRobot, {args.way}: {(cpu() - used) / minutes:.2f} s of CPU a minute, {size / 1e6 / minutes:.1f} MB a minute, {late} of {args.seconds * FPS} frames late, "
        f"save_episode {blocked / minutes:.1f} s a minute, RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB at most"
    )


if __name__ == "__main__":
    main()
