"""The bundle: a directory that a server loads, checks and serves.

    policy.onnx            the graph: a pure function of pictures, state, noise, prefix and RTC controls
    bundle.json            the description of the graph, for programs and people, with its origin
    golden/*.safetensors   inputs and outputs that a server replays before it serves
    SOURCE.md              where the bundle comes from
"""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from . import tensors

BUNDLE_VERSION = 1
EXPORTER = "edgert-train 1"

# The SO-101's joints in LeRobot's order, their units, and their ranges in the demo task with a margin.
JOINTS = ["shoulder_pan.pos", "shoulder_lift.pos", "elbow_flex.pos", "wrist_flex.pos", "wrist_roll.pos", "gripper.pos"]
UNITS = ["degrees"] * 5 + ["range_0_100"]  # LeRobot's names
LIMITS = [[-30.0, 110.0], [-45.0, -15.0], [25.0, 150.0], [-15.0, 40.0], [-110.0, 30.0], [0.0, 100.0]]
CAMERAS = [{"name": "top", "height": 120, "width": 160}]

TOLERANCE = {"chunk_model": 1e-5, "chunk_robot": 1e-3}


@dataclass
class Facts:
    """The differences between the bundles of this package."""

    policy_type: str
    source_repo: str
    source_revision: str
    weights_sha256: str
    num_steps: int = 10
    rtc: str = "guided,trained"
    rtc_max_delay: int = 20
    prefix_end: int = 24
    schedule: str = "linear,zeros,ones,exp"
    norm: str = "MEAN_STD"
    norm_stats_sha256: str = ""
    batch_invariant: bool = True
    notes: str = ""
    golden: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)


def write(out: Path, graph: bytes, facts: Facts) -> None:
    """Stores the bundle that facts describe."""
    store(out, graph, describe(facts), facts.golden, facts.notes)


def store(out: Path, graph: bytes, manifest: dict[str, object], golden: dict[str, dict[str, np.ndarray]], notes: str) -> None:
    """Writes policy.onnx, the golden sets, SOURCE.md and bundle.json (last, with the digests of the others)."""
    (out / "golden").mkdir(parents=True, exist_ok=True)
    (out / "policy.onnx").write_bytes(graph)
    for name, arrays in golden.items():
        tensors.write(out / "golden" / f"{name}.safetensors", arrays)
    (out / "SOURCE.md").write_text(notes)
    (out / "bundle.json").write_text(json.dumps(manifest | {"files": digests(out)}, indent=2) + "\n")


def describe(facts: Facts) -> dict[str, object]:
    """bundle.json without the digests."""
    return {
        "bundle_version": BUNDLE_VERSION,
        "policy_type": facts.policy_type,
        "simulation_only": True,  # trained only on the simulated arm and its pictures
        "source_repo": facts.source_repo,
        "source_revision": facts.source_revision,
        "weights_sha256": facts.weights_sha256,
        "exporter": EXPORTER,
        "opset": 17,
        "fps": 60,
        "chunk_size": 50,
        "n_action_steps": 50,
        "action_dim": len(JOINTS),
        "action_names": JOINTS,
        "action_units": UNITS,
        "action_limits": LIMITS,
        "state_names": JOINTS,
        "state_units": UNITS,
        "cameras": CAMERAS,
        "image_transform": "u8 / 255, mean of 2x2, * 2 - 1",
        "norm_state": facts.norm,
        "norm_action": facts.norm,
        "norm_stats_sha256": facts.norm_stats_sha256,
        "num_steps": facts.num_steps,
        "noise_dim": len(JOINTS) if facts.num_steps else 0,
        "rtc": facts.rtc,
        "rtc_max_delay": facts.rtc_max_delay,
        "prefix_end": facts.prefix_end,
        "schedule": facts.schedule,
        "prefix_space": "robot",
        "dtype": "float32",
        "batch_invariant": facts.batch_invariant,
        "golden_tolerance": TOLERANCE,
        "licence": "same as this repository",
    }


def digests(out: Path) -> dict[str, str]:
    """The SHA-256 of every file under out except bundle.json and hidden files, by slash path."""
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != "bundle.json" and not any(part.startswith(".") for part in path.relative_to(out).parts)
    }
