"""Policies for two arms and for LeKiwi: exported, served, and run on simulated buses."""

import json
import subprocess

import checkpoints
import numpy as np
import pytest
from conftest import ROOT
from mcap_protobuf.reader import read_protobuf_messages
from test_server import manifest_of

from edgert_export.cli import main

ARM = ROOT / "testdata/demo/so101.json"
UNITS = ["degrees"] * 5 + ["range_0_100"]
SIDES = ("left", "right")
ROBOTS = {
    "bi_so101": ([f"{s}_{j}" for s in SIDES for j in checkpoints.JOINTS], UNITS * 2),
    "lekiwi": ([f"arm_{j}" for j in checkpoints.JOINTS] + ["x.vel", "y.vel", "theta.vel"], [*UNITS, "m/s", "m/s", "deg/s"]),
}


def buses_of(robot, folder):
    """Flags of sim-bus, and those of edge-rt for the same arms."""
    if robot == "bi_so101":
        links = [f"{s}={folder / s}" for s in SIDES]
        ours = [f for link, s in zip(links, SIDES) for f in ("--bus", link, "--calibration", f"{s}={ARM}")]
        return [f for link in links for f in ("--link", link)], ours
    return ["--link", folder / "bus"], ["--bus", folder / "bus", "--calibration", ARM.with_name("lekiwi.json")]


@pytest.mark.parametrize("robot", ROBOTS)
def test_a_policy_runs_all_parts(robot, programs, folder, tmp_path):
    names, units = ROBOTS[robot]
    checkpoint = checkpoints.act(folder / f"act-{robot}", {"top": (48, 64)}, joints=len(names), chunk_size=50)
    bundle = folder / f"act-{robot}-bundle"
    assert main([str(checkpoint), str(bundle), "--fps", "20", "--joints", ",".join(names), "--units", ",".join(units)]) == 0
    assert json.loads((bundle / "bundle.json").read_text())["action_names"] == names
    manifest = manifest_of(bundle, health_port=0)
    endpoint = json.loads(manifest.read_text())["zenoh"]["listen_endpoints"][0]
    links, flags = buses_of(robot, tmp_path)
    sim = subprocess.Popen([programs / "edge-rt", "sim-bus", "--robot", robot, *links], stdout=subprocess.PIPE, text=True)
    serving = subprocess.Popen([programs / "lean-server", "--manifest", manifest], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert any("serving" in line for line in serving.stderr)
        for _ in range(sum(f == "--link" for f in links)):
            assert sim.stdout.readline().startswith(robot)
        run = subprocess.run(
            [programs / "edge-rt", "--robot", robot, *flags, "--camera", "top=sim", "--connect", endpoint, "--rt", "off", "--duration", "3s",
             "--record", "all", "--record-dir", tmp_path / "records", "--json", tmp_path / "summary.json"],
            env={"STATE_DIRECTORY": str(tmp_path), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    finally:
        for program in (serving, sim):
            program.terminate()
            program.communicate(timeout=20)
    assert run.returncode == 0, run.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["chunks"] > 0, summary
    ticks = [m.proto_msg for file in (tmp_path / "records").glob("*.mcap") for m in read_protobuf_messages(file, topics=["/tick"])]
    states = np.array([tick.state for tick in ticks if tick.action])
    assert states.shape[1] == len(names)
    moved = dict(zip(names, np.ptp(states, axis=0)))
    for first in ("left_", "right_") if robot == "bi_so101" else ("arm_", "x.vel"):
        assert max(span for name, span in moved.items() if name.startswith(first)) > 0.01, moved
