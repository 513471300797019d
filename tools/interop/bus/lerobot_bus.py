"""LeRobot's bus classes, unmodified, on simulated arms."""

import contextlib
import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "stubs"))

from lerobot.motors import Motor, MotorCalibration, MotorNormMode  # noqa: E402
from lerobot.motors.dynamixel import DynamixelMotorsBus  # noqa: E402
from lerobot.motors.feetech import FeetechMotorsBus  # noqa: E402

from simbus import serve, until  # noqa: E402

NAMES = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"]
RETRIES = 2  # as in LeRobot's configuration of the SO-101
PATIENCE = 2000  # ms


def motors(ids, models):
    modes = [MotorNormMode.DEGREES] * 5 + [MotorNormMode.RANGE_0_100]
    return {n: Motor(i, m, norm) for n, i, m, norm in zip(NAMES, ids, models, modes)}


def press_enter(after):
    """Writes a line to standard input after a delay, in place of the person at the arm."""
    read, write = os.pipe()
    os.dup2(read, 0)
    os.close(read)

    def press():
        with os.fdopen(write, "wb") as keyboard, contextlib.suppress(BrokenPipeError):
            keyboard.write(b"\n")

    threading.Timer(after, press).start()


def calibrate(bus):
    """The steps of LeRobot's calibrate: half-turn homing, the ranges by moving, everything written to EEPROM."""
    bus.disable_torque(num_retry=RETRIES)
    homings = bus.set_half_turn_homings()
    middle = bus.sync_read("Present_Position", normalize=False, num_retry=RETRIES)
    assert all(abs(v - 2047) <= 1 for v in middle.values()), f"after homing at {middle}, want 2047"
    # No hand can move a simulated arm, so its motors do.
    goals = {n: 2047 + 300 + 10 * k for k, n in enumerate(NAMES)}
    bus.enable_torque(num_retry=RETRIES)
    bus.sync_write("Goal_Position", goals, normalize=False, num_retry=RETRIES)
    press_enter(0.8)
    mins, maxes = bus.record_ranges_of_motion(display_values=False)
    assert all(mins[n] < maxes[n] and abs(maxes[n] - goals[n]) <= 2 for n in NAMES), f"ranges {mins} to {maxes}"
    bus.disable_torque(num_retry=RETRIES)
    want = {n: MotorCalibration(m.id, 0, homings[n], mins[n], maxes[n]) for n, m in bus.motors.items()}
    bus.write_calibration(want)
    assert bus.read_calibration() == want and bus.is_calibrated, f"read back {bus.read_calibration()}"
    # Restores the whole range, so that no limit stops the moves below.
    free = {n: MotorCalibration(m.id, 0, homings[n], 0, 4095) for n, m in bus.motors.items()}
    bus.write_calibration(free)
    assert bus.is_calibrated


def drive(bus):
    """A control loop that reads and writes degrees."""
    bus.enable_torque(num_retry=RETRIES)
    goals = dict(zip(NAMES, [10.0, -20.0, 30.0, -5.0, 15.0, 60.0]))
    bus.sync_write("Goal_Position", goals, num_retry=RETRIES)

    def present():
        got = bus.sync_read("Present_Position", num_retry=RETRIES)
        return [got[n] for n in NAMES]

    until(present, [goals[n] for n in NAMES], near=0.2)
    for _ in range(200):
        bus.sync_write("Goal_Position", goals, num_retry=RETRIES)
        present()
    assert bus.read("Torque_Enable", "elbow_flex", num_retry=RETRIES) == 1
    bus.disable_torque(num_retry=RETRIES)
    assert bus.read("Torque_Enable", "elbow_flex", num_retry=RETRIES) == 0


def arm(edge_rt, robot, make, ids, models, mode):
    with serve(edge_rt, robot) as (path, _):
        bus = make(path, motors(ids, models))
        # The SDK below LeRobot gives up after some 35 to 50 ms, which a busy host alone can take.
        bus.port_handler.setPacketTimeout = lambda length: bus.port_handler.setPacketTimeoutMillis(PATIENCE)
        bus.connect()
        found = bus.broadcast_ping(num_retry=RETRIES)
        assert sorted(found) == sorted(ids), f"broadcast ping finds {found}"
        bus.disable_torque(num_retry=RETRIES)
        bus.configure_motors()
        for n in NAMES:
            bus.write("Operating_Mode", n, mode, num_retry=RETRIES)
        calibrate(bus)
        drive(bus)
        bus.disconnect()


XL430, XL330 = "xl430-w250", "xl330-m288"
WHAT = "connect, configure, calibrate, sync read and write, torque"

# The Koch's and the OMX's configuration is extended position mode.
PARTS = {
    f"FeetechMotorsBus, SO-101: {WHAT}": lambda e: arm(e, "so101", FeetechMotorsBus, [1, 2, 3, 4, 5, 6], ["sts3215"] * 6, 0),
    f"DynamixelMotorsBus, Koch: {WHAT}": lambda e: arm(e, "koch", DynamixelMotorsBus, [1, 2, 3, 4, 5, 6], [XL430] * 2 + [XL330] * 4, 4),
    f"DynamixelMotorsBus, OMX: {WHAT}": lambda e: arm(e, "omx", DynamixelMotorsBus, [11, 12, 13, 14, 15, 16], [XL430] * 3 + [XL330] * 3, 4),
}
