"""A lean-server with the demo policy on a free port, and LeRobot's commands with this plugin and a simulated arm.

Skipped without LeRobot, eclipse-zenoh, msgpack, bin/lean-server (or LEAN_SERVER) and ONNX Runtime (or EDGERT_ORT).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SERVER = Path(os.environ.get("LEAN_SERVER", ROOT / "bin/lean-server"))
PLUGINS = {
    "lerobot_policy_lean": HERE.parent,
    "lerobot_robot_leanfake": HERE / "lerobot_robot_leanfake",
    "lean_client": ROOT / "tools/lean_client",
}

missing = [module for module in ("lerobot", "zenoh", "msgpack") if find_spec(module) is None]
collect_ignore_glob = ["test_*.py"] if missing or not SERVER.exists() else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if collect_ignore_glob:
        terminalreporter.write_line(f"skipped: install {missing}, or build {SERVER.name} (LEAN_SERVER)")


def ort() -> str:
    found = [os.environ.get("EDGERT_ORT", "")]
    libraries = ".venv*/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*"
    found += [str(library.parent) for library in ROOT.glob(libraries)]
    return next((path for path in found if path), "")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


class Server:
    def __init__(self) -> None:
        self.port, self.health, self.process = free_port(), free_port(), None
        self.address = f"tcp/127.0.0.1:{self.port}"

    def start(self, *flags: str) -> None:
        """Serves at its address, or, with --connect among the flags, at another server's."""
        flags = flags or ("--listen", self.address)
        command = [SERVER, "--manifest", ROOT / "testdata/demo/server.yaml", *flags]
        self.process = subprocess.Popen(
            [*command, "--health-port", str(self.health)], env={**os.environ, "EDGERT_ORT": ort()},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{self.health}/readyz", timeout=1).close()
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        pytest.fail("lean-server is not ready after 30 s")

    def metric(self, line: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return next(float(text.rsplit(" ", 1)[1]) for text in lines if text.startswith(line))

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    if not ort():
        pytest.skip("no ONNX Runtime: set EDGERT_ORT")
    server = Server()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def lerobot(tmp_path: Path, server: Server):
    """Runs a command of LeRobot to its end, with the plugins installed as pip would list them."""
    site = tmp_path / "site"
    for name in PLUGINS:
        (site / f"{name}-0.1.0.dist-info").mkdir(parents=True)
        (site / f"{name}-0.1.0.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    path = os.pathsep.join([str(site), *map(str, PLUGINS.values()), os.environ.get("PYTHONPATH", "")])

    def run(script: str, *flags: str) -> subprocess.CompletedProcess:
        code = f"from lerobot.scripts.{script} import main; main()"
        policy = ["--policy.type=lean", f"--policy.server={server.address}", "--policy.timeout=30"]
        env = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "HF_LEROBOT_HOME": str(tmp_path / "home")}
        command = [sys.executable, "-c", code, *policy, *flags]
        return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=240)

    return run
