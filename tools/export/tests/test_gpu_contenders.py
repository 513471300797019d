"""LeRobot in torch as a contender of `bench gpu`: the form of its report, and what it says where something is missing."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def contend(act, bundle, device="cpu"):
    env = os.environ | {"BENCH_BUNDLE": str(bundle), "BENCH_DEVICE": device, "BENCH_BATCHES": "1,3", "BENCH_SECONDS": "0.1"}
    return subprocess.run([sys.executable, ROOT / "tools/gpu/torch_lerobot.py", act], env=env, capture_output=True, text=True, timeout=300)


def test_torch_eager(act, act_bundle):
    done = contend(act, act_bundle)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert [b["batch"] for b in said["batches"]] == [1, 3]
    assert all(0 < b["p50_ms"] <= b["p99_ms"] and b["runs"] >= 5 for b in said["batches"]) and said["open_s"] > 0 < said["rss_mb"]


def test_what_is_missing_is_said(act, act_bundle, tmp_path):
    assert "does not compute by TensorRT" in contend(act, act_bundle, "tensorrt").stderr
    import torch

    if not torch.cuda.is_available():
        assert "finds no CUDA device" in contend(act, act_bundle, "cuda").stderr
    (tmp_path / "bundle.json").write_text(json.dumps(json.loads((act_bundle / "bundle.json").read_text()) | {"weights_sha256": "0" * 64}))
    assert "has the weights 0000000000000000" in contend(act, tmp_path).stderr
