"""LeRobot's released robot_client against lean-server's front: tools/interop/policies.py, which also has longer runs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def test_the_released_client_runs_against_lean_server() -> None:
    pytest.importorskip("grpc")
    if not (ROOT / "bin/lean-server").exists():
        pytest.skip("make build makes bin/lean-server")
    command = [sys.executable, ROOT / "tools/interop/policies.py", ROOT / "bin", "--seconds", "5", "--only", "robot_client"]
    done = subprocess.run([*command, "--lerobot", sys.executable], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0 and "exceptions [], errors []" in done.stdout, done.stdout + done.stderr
