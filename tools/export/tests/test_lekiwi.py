"""LeRobot's LeKiwi class and edge-rt on one simulated bus, in turn: names, order, values, registers, the file."""

import json
import os
import pty
import subprocess
import time

import numpy as np
import pytest

pytest.importorskip("scservo_sdk", reason="needs feetech-servo-sdk")
pytest.importorskip("deepdiff")
pd = pytest.importorskip("pandas", reason="make dataset-test installs it")

from lerobot.motors import MotorCalibration
from lerobot.robots.lekiwi import LeKiwi, LeKiwiConfig

FORWARD = [0.1, 0.0, 0.0]  # m/s, m/s, deg/s
TRIES = 8  # LeRobot's time limits are short for a busy machine


def patiently(robot, do):
    for attempt in range(TRIES):
        try:
            return do()
        except (RuntimeError, ConnectionError):
            if attempt + 1 == TRIES:
                raise
            robot.bus.port_handler.closePort()
            time.sleep(0.3)


def kiwi(link, folder):
    return LeKiwi(LeKiwiConfig(port=link, cameras={}, id="kiwi", calibration_dir=folder))


def drive(edge_rt, link, folder):
    """Drives forward by a key of a terminal, and returns the states and the info of the recorded data set."""
    keyboard, terminal = pty.openpty()
    run = subprocess.Popen(
        [edge_rt, "teleop", "--jog", "--robot", "lekiwi", "--bus", link, "--calibration", folder / "kiwi.json", "--fps", "20",
         "--record", "all", "--record-dir", folder / "records", "--on-exit", "off", "--episodes", "1",
         "--episode-time", "3s", "--task", "drive"],
        stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        env=dict(os.environ, STATE_DIRECTORY=str(folder)),
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )
    end = time.monotonic() + 30
    while run.poll() is None and time.monotonic() < end:
        os.write(keyboard, b"w")
        time.sleep(0.05)
    run.kill()
    out = run.communicate()[0].decode()
    assert run.returncode == 0, out
    data = folder / "data"
    subprocess.run([edge_rt, "dataset", "export", folder / "records", data], check=True, capture_output=True)
    frames = pd.concat([pd.read_parquet(p) for p in data.glob("data/**/*.parquet")])
    return np.stack(frames["observation.state"]), json.loads((data / "meta/info.json").read_text())


def test_lekiwi(programs, tmp_path):
    link = str(tmp_path / "bus")
    sim = subprocess.Popen([programs / "edge-rt", "sim-bus", "--robot", "lekiwi", "--link", link, "--weightless"])
    try:
        while not os.path.islink(link):
            assert sim.poll() is None
            time.sleep(0.05)
        theirs = kiwi(link, tmp_path)
        ranges = {n: (1000, 3000) if n == "arm_gripper" else (0, 4095) for n in theirs.bus.motors}
        theirs.calibration = {n: MotorCalibration(m.id, 0, 0, *ranges[n]) for n, m in theirs.bus.motors.items()}
        theirs._save_calibration()
        patiently(theirs, theirs.bus.connect)
        theirs.bus.write_calibration(theirs.calibration)
        theirs.bus.disconnect()
        written = (tmp_path / "kiwi.json").read_bytes()
        flags = ["--robot", "lekiwi", "--bus", link, "--calibration", tmp_path / "kiwi.json"]
        calibrate = [programs / "edge-rt", "calibrate", *flags]
        done = subprocess.run(calibrate, input="\n", capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (tmp_path / "kiwi.json").read_bytes() == written  # unchanged; LeRobot reads it below
        states, info = drive(programs / "edge-rt", link, tmp_path)
        names = list(theirs.observation_features)
        assert info["robot_type"] == theirs.name
        assert info["features"]["observation.state"]["names"] == info["features"]["action"]["names"] == names
        theirs = kiwi(link, tmp_path)
        patiently(theirs, theirs.connect)
        assert theirs.is_calibrated
        try:
            action = dict(zip(names, [*states[-1][:6].tolist(), *FORWARD]))
            for _ in range(30):
                theirs.send_action(action)
                time.sleep(0.03)
            seen = theirs.get_observation()
            assert list(seen) == names
            spins = theirs.bus.sync_read("Goal_Velocity", theirs.base_motors)
            assert list(spins.values()) == [-1129, 0, 1129]  # as cmd/edge-rt's TestAPolicyDrivesLeKiwi has them
        finally:
            theirs.disconnect()
        np.testing.assert_allclose(states[-1][:5], [seen[n] for n in names[:5]], atol=360 / 4095 + 1e-3)  # one encoder count
        np.testing.assert_allclose(states[-1][6:8], [seen[n] for n in names[6:8]], atol=2e-3)
        np.testing.assert_allclose(states[-1][8], seen["theta.vel"], atol=1)
    finally:
        sim.terminate()
        sim.wait(10)
