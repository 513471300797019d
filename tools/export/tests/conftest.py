"""Checkpoints and bundles that several tests share, made once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parent))

import pytest
import torch

import checkpoints
from edgert_export import onnx_graph, timing
from edgert_export.cli import main

# One thread: on a busy machine the threads of small networks wait for each other.
torch.set_num_threads(1)
onnx_graph.THREADS = 1
ROOT = Path(__file__).resolve().parents[3]
JOINT_FLAGS = ["--joints", ",".join(checkpoints.JOINTS)]
FLAGS = ["--fps", "30", *JOINT_FLAGS]
# The files that take longest begin first: begun last, one of them leaves a core without work. `make export-test`
# runs the files in this order (--no-loadscope-reorder).
LONG = ["test_gpu_contenders.py", "test_server.py", "test_diffusion.py"]


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


@pytest.fixture(scope="session", autouse=True)
def quick():
    """Shortens the measurement of T(B): tests check its form, not its figures."""
    timing.SECONDS, timing.MIN_RUNS = 0.0, 1


@pytest.fixture(scope="session")
def programs(tmp_path_factory) -> Path:
    """A folder with lean-server and edge-rt."""
    if not shutil.which("go") or not (ROOT / ".venv").exists():
        pytest.skip("needs Go and ONNX Runtime: make setup")
    out = tmp_path_factory.mktemp("bin")
    subprocess.run(["go", "build", "-o", out, "./cmd/lean-server", "./cmd/edge-rt"], cwd=ROOT, check=True)
    return out


@pytest.fixture(scope="session")
def server(programs) -> Path:
    return programs / "lean-server"


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("export")


@pytest.fixture(scope="session")
def act(folder) -> Path:
    return checkpoints.act(folder / "act")


def exported(checkpoint: Path, *flags: str, fps: int = 30, name: str = "bundle") -> Path:
    """Exports a checkpoint and returns its bundle. name: a different one for each set of flags."""
    out = checkpoint.with_name(f"{checkpoint.name}-{name}")
    if not out.exists():
        assert main([str(checkpoint), str(out), "--fps", str(fps), *JOINT_FLAGS, *flags]) == 0
    return out


@pytest.fixture(scope="session")
def act_bundle(act) -> Path:
    return exported(act)
