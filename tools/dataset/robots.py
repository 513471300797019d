"""Robots of parts, from teleop to training: robots.py EDGE-RT

Records teleop on simulated arms (a bi_so101 with two leaders; a LeKiwi with a leader and keys for its base), exports the
records, and compares each dataset with the features that LeRobot's own class of the robot declares. Then LeRobot's
loader and training script read the dataset. Every printed line is a check that passed; a failed check ends the
program.
"""

import fcntl
import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import judge  # first: it sets LeRobot's folders
import numpy as np
from lerobot.cameras.opencv import OpenCVCameraConfig
from lerobot.robots.bi_so_follower import BiSOFollower, BiSOFollowerConfig
from lerobot.robots.lekiwi import LeKiwi, LeKiwiConfig
from lerobot.robots.so_follower import SOFollowerConfig
from lerobot.utils.feature_utils import hw_to_dataset_features

EDGE_RT = Path(sys.argv[1]).resolve()
ARM = Path(__file__).resolve().parents[2] / "testdata/demo/so101.json"
FPS, SIZE = 20, (128, 96)
EPISODES, SECONDS = 2, 2
SIDES = ("left", "right")
MOVED = {"bi_so101": ("left_shoulder_pan.pos", "right_shoulder_pan.pos"), "lekiwi": ("arm_shoulder_pan.pos", "x.vel")}


@contextmanager
def sim(robot, *flags):
    """A simulated bus for each part of a robot."""
    bus = subprocess.Popen([EDGE_RT, "sim-bus", "--robot", robot, *flags], stdout=subprocess.PIPE, text=True)
    try:
        bus.stdout.readline()  # the first bus is ready
        yield
    finally:
        bus.terminate()
        bus.wait(10)


def each(flag, of):
    return [f for side in SIDES for f in (flag, f"{side}={of(side)}")]


def camera():
    return OpenCVCameraConfig(index_or_path=0, fps=FPS, width=SIZE[0], height=SIZE[1])


def source(name, scene=""):
    return ["--camera", f"{name}=sim{scene}:{SIZE[0]}x{SIZE[1]}@{FPS}"]


def teleop(folder, key, *flags):
    """Records episodes, during which this key of a terminal is pressed, and exports them."""
    keyboard, terminal = pty.openpty()
    command = [EDGE_RT, "teleop", *flags, "--fps", str(FPS), "--record", "all", "--record-dir", folder / "records", "--on-exit", "off"]
    command += ["--episodes", str(EPISODES), "--episode-time", f"{SECONDS}s", "--reset-time", "0s", "--task", "move"]
    run = subprocess.Popen(
        command, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        env=dict(os.environ, STATE_DIRECTORY=str(folder)), preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    end = time.monotonic() + 60
    while run.poll() is None and time.monotonic() < end:
        os.write(keyboard, key)
        time.sleep(0.05)
    run.kill()
    out = run.communicate()[0].decode()
    judge.check(f"{folder.name}: teleop", run.returncode == 0, "" if run.returncode == 0 else out)
    data = folder / "data"
    subprocess.run([EDGE_RT, "dataset", "export", folder / "records", data], check=True, capture_output=True)
    return data


def two_arms(folder):
    links, leaders, scenes = ({s: f"{folder}/{kind}_{s}" for s in SIDES} for kind in ("arm", "leader", "scene"))
    with ExitStack() as stack:
        stack.enter_context(sim("bi_so101", "--scene", f"{folder}/scene", *each("--link", links.get)))
        stack.enter_context(sim("bi_so101_leader", "--hand", *each("--link", leaders.get)))
        return teleop(
            folder, b"", "--robot", "bi_so101", *each("--bus", links.get), *each("--leader", leaders.get),
            *each("--calibration", lambda _: ARM), *each("--leader-calibration", lambda _: ARM),
            *source("top", f":{scenes['left']}"), *source("right_wrist", f":{scenes['right']}"),
        )  # fmt: skip


def their_two_arms():
    arms = {"left_arm_config": SOFollowerConfig(port="a"), "right_arm_config": SOFollowerConfig(port="b", cameras={"wrist": camera()})}
    return BiSOFollower(BiSOFollowerConfig(id="black", cameras={"top": camera()}, **arms))


def kiwi(folder):
    arm, leader = f"{folder}/kiwi", f"{folder}/leader"
    with ExitStack() as stack:
        stack.enter_context(sim("lekiwi", "--link", arm))
        stack.enter_context(sim("so101_leader", "--hand", "--link", leader))
        return teleop(
            folder, b"w", "--robot", "lekiwi", "--bus", arm, "--calibration", ARM.with_name("lekiwi.json"), "--leader", leader, "--leader-calibration", ARM,
            *source("front"),
        )  # fmt: skip


def their_kiwi():
    return LeKiwi(LeKiwiConfig(port="a", cameras={"front": camera()}))


def compare(name, root, robot):
    """Checks that a dataset has the features and the name of LeRobot's robot, and loads its frames with LeRobot's
    loader."""
    info = json.loads((root / "meta/info.json").read_text())
    want = hw_to_dataset_features(robot.observation_features, "observation") | hw_to_dataset_features(robot.action_features, "action")
    cameras = {k for k in info["features"] if k.startswith("observation.images.")}
    facts = lambda f: (f["dtype"], tuple(f["shape"]), f["names"])  # noqa: E731
    got = {k: facts(info["features"][k]) for k in want.keys() | cameras}
    judge.check(f"{name}: features of LeRobot's class", got == {k: facts(f) for k, f in want.items()}, sorted(got))
    judge.check(f"{name}: its robot_type", info["robot_type"] == robot.name, robot.name)
    ds = judge.open_set(root)
    whole = EPISODES * SECONDS * FPS
    judge.check(f"{name}: its frames", ds.num_episodes == EPISODES and abs(len(ds) - whole) <= whole / 5, f"{len(ds)} of {whole}")
    states = np.stack([ds[i]["observation.state"].numpy() for i in range(len(ds))])
    columns = dict(zip(info["features"]["observation.state"]["names"], states.T))
    moved = [j for j, c in columns.items() if (c.max() > 0.05 if j == "x.vel" else np.ptp(c) > 5)]  # m/s, degrees
    judge.check(f"{name}: its arms and its base move", set(MOVED[name]) <= set(moved), moved)


def main():
    folder = Path(tempfile.mkdtemp(prefix="edge-rt-robots-"))
    folders = [folder / name for name in MOVED]
    try:
        with ThreadPoolExecutor() as pool:
            for f in folders:
                f.mkdir()
            sets = list(pool.map(lambda record, f: record(f), (two_arms, kiwi), folders))
            for f, root, robot in zip(folders, sets, (their_two_arms(), their_kiwi())):
                compare(f.name, root, robot)
            list(pool.map(judge.train, sets))
    finally:
        shutil.rmtree(folder)


main()
