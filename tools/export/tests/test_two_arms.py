"""LeRobot's BiSOFollower, and pairs of its Koch and OMX followers, in turn with edge-rt on the same simulated buses."""

import json
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest

SIDES = ("left", "right")
PATIENCE = 2000  # ms
# An action that edge-rt's move can make joint by joint, in the units of each arm.
GOALS = {"left_shoulder_pan": 12.5, "left_gripper": 30.0, "right_elbow_flex": -21.0, "right_gripper": 64.0}


def two_so101(ports, folder):
    pytest.importorskip("scservo_sdk")
    from lerobot.robots.bi_so_follower import BiSOFollower, BiSOFollowerConfig
    from lerobot.robots.so_follower import SOFollowerConfig

    arms = {f"{s}_arm_config": SOFollowerConfig(port=ports[s]) for s in SIDES}
    return BiSOFollower(BiSOFollowerConfig(id="black", calibration_dir=folder, **arms))


def pair(make, config):
    """Two arms of a kind for which LeRobot has no bimanual class, put together as its BiSOFollower is."""

    def build(ports, folder):
        arms = {s: make(config(id=f"black_{s}", calibration_dir=folder, port=ports[s])) for s in SIDES}

        def each(call):
            return {f"{s}_{k}": v for s, arm in arms.items() for k, v in call(s, arm).items()}

        def send(action):
            own = {s: {k.removeprefix(f"{s}_"): v for k, v in action.items() if k.startswith(s)} for s in SIDES}
            return each(lambda s, arm: arm.send_action(own[s]))

        return SimpleNamespace(
            left_arm=arms["left"],
            right_arm=arms["right"],
            connect=lambda calibrate: [arm.connect(calibrate) for arm in arms.values()],
            disconnect=lambda: [arm.disconnect() for arm in arms.values()],
            get_observation=lambda: each(lambda _, arm: arm.get_observation()),
            send_action=send,
        )

    return build


def two_koch(ports, folder):
    pytest.importorskip("dynamixel_sdk")
    from lerobot.robots.koch_follower import KochFollower, KochFollowerConfig

    return pair(KochFollower, KochFollowerConfig)(ports, folder)


def two_omx(ports, folder):
    pytest.importorskip("dynamixel_sdk")
    from lerobot.robots.omx_follower import OmxFollower, OmxFollowerConfig

    return pair(OmxFollower, OmxFollowerConfig)(ports, folder)


@pytest.fixture
def buses(request, programs, tmp_path):
    links = {s: str(tmp_path / s) for s in SIDES}
    flags = [f for s in SIDES for f in ("--link", f"{s}={links[s]}")]
    command = [programs / "edge-rt", "sim-bus", "--robot", request.param, "--weightless", *flags]
    sim = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for side in SIDES:
        assert sim.stdout.readline().startswith(f"{request.param} {side}: 6 motors")
    yield request.param, links
    sim.send_signal(signal.SIGTERM)
    report, _ = sim.communicate(timeout=10)
    assert sim.returncode == 0 and report.count(" 0 wrong checksums, 0 bytes of garbage") == 2, report


@pytest.mark.parametrize(
    ("buses", "make"),
    [("bi_so101", two_so101), ("bi_koch", two_koch), ("bi_omx", two_omx)],
    indirect=["buses"],
)
def test_lerobot_and_edge_rt_in_turn(buses, make, programs, tmp_path, monkeypatch):
    robot, ports = buses
    root = tmp_path / "calibration"
    monkeypatch.setenv("HF_LEROBOT_CALIBRATION", str(root))
    kind = {"bi_so101": "so", "bi_koch": "koch", "bi_omx": "omx"}[robot]
    folder = root / "robots" / f"{kind}_follower"
    folder.mkdir(parents=True)
    flags = ["--robot", robot, "--id", "black"] + [f for s in SIDES for f in ("--bus", f"{s}={ports[s]}")]

    def ours(*args, **kwargs):
        done = subprocess.run([programs / "edge-rt", *args, *flags], capture_output=True, text=True, timeout=60, **kwargs)
        assert done.returncode == 0, f"{args}: {done.stdout}{done.stderr}"
        return done.stdout

    theirs = make(ports, folder)
    arms = {s: getattr(theirs, f"{s}_arm") for s in SIDES}
    for arm in arms.values():  # the SDK gives up after some 40 ms, which a busy host alone can take
        port = arm.bus.port_handler
        port.setPacketTimeout = lambda _, port=port: port.setPacketTimeoutMillis(PATIENCE)

    def goals():
        """The goal registers of both arms, as they are."""
        raw = {}
        for side, arm in arms.items():
            arm.bus.connect()
            read = arm.bus.sync_read("Goal_Position", normalize=False, num_retry=3)
            raw |= {f"{side}_{name}": value for name, value in read.items()}
            arm.bus.disconnect(disable_torque=False)
        return raw

    # LeRobot writes both calibrations, into motors and files; edge-rt takes them, and monitor shows no other arm's.
    for number, arm in enumerate(arms.values()):
        from lerobot.motors import MotorCalibration

        arm.bus.connect()
        arm.bus.disable_torque(num_retry=3)
        arm.calibration = {
            name: MotorCalibration(motor.id, 0, 0, 700 + 40 * number + 10 * i, 3300 - 20 * number)
            for i, (name, motor) in enumerate(arm.bus.motors.items())
        }
        arm.bus.write_calibration(arm.calibration)
        arm._save_calibration()
        arm.bus.disconnect(disable_torque=False)
    files = {s: (folder / f"black_{s}.json").read_bytes() for s in SIDES}

    theirs.connect(calibrate=False)
    theirs.send_action({f"{s}_{n}.pos": GOALS.get(f"{s}_{n}", 5.0) for s, arm in arms.items() for n in arm.bus.motors})
    time.sleep(1.5)
    seen = theirs.get_observation()
    theirs.disconnect()
    written = goals()

    table = json.loads(ours("monitor", "--count", "1", "--json", "-"))["motors"]
    assert [m["joint"] + ".pos" for m in table] == list(seen), "names and their order"
    for motor in table:
        side, joint = motor["joint"].split("_", 1)
        c = arms[side].calibration[joint]
        span = 360 * (c.range_max - c.range_min) / 4095 if arms[side].bus.motors[joint].norm_mode.value == "degrees" else 200
        count = span / (c.range_max - c.range_min)
        assert motor["position"] == pytest.approx(seen[motor["joint"] + ".pos"], abs=count), motor

    # edge-rt sends the same action from another pose, and must write the same registers.
    theirs.connect(calibrate=False)
    theirs.send_action({f"{s}_{n}.pos": 50.0 if n == "gripper" else 0.0 for s, arm in arms.items() for n in arm.bus.motors})
    time.sleep(1.5)
    theirs.disconnect()
    for joint, goal in GOALS.items():
        ours("move", joint, str(goal), "--speed", "1")
        assert abs(goals()[joint] - written[joint]) <= 1, f"{joint} to {goal}"

    # edge-rt writes both calibrations again, from LeRobot's files; LeRobot finds them in motors and files.
    if robot != "bi_omx":  # calibrated by its maker
        ours("calibrate", input="\n\n")
    for side, arm in arms.items():
        assert (folder / f"black_{side}.json").read_bytes() == files[side]
        arm.bus.connect()
        assert arm.is_calibrated
        arm.bus.disconnect(disable_torque=False)
