"""The contenders of `bench gpu` and `tools/gpu/bench.sh`: the form of the report, and the messages about missing parts."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import smolvla_checkpoint
from conftest import FLAGS
from safetensors.numpy import load_file

from edgert_export.cli import main

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


@pytest.mark.parametrize("name", ["pi05", "pi05-split"])
def test_bare_computes_the_policy(name, monkeypatch):
    """In one graph and in two, the golden inputs give LeRobot's golden outputs, also in a second run."""
    bundle = ROOT / "testdata" / name
    monkeypatch.syspath_prepend(str(ROOT / "tools/gpu"))
    for key, value in {"BUNDLE": bundle, "DEVICE": "cpu", "BATCHES": "4", "SECONDS": "0"}.items():
        monkeypatch.setenv(f"BENCH_{key}", str(value))
    import bare

    golden = load_file(bundle / "golden" / "b4_guided.safetensors")
    monkeypatch.setattr(bare, "given", lambda port, batch, rng: golden[f"in/{port.name}"][:batch])
    asked = bare.Asked()
    run = bare.Policy(asked).prepare(4)
    for _ in range(2):
        for key, got in zip(("chunk_model", "chunk_robot"), run(), strict=True):
            assert np.abs(got - golden[f"out/{key}"]).max() <= asked.meta["golden_tolerance"][key]
    said = asked.measure(bare.Policy(asked).prepare)
    assert [b["batch"] for b in said["batches"]] == [4] and said["batches"][0]["runs"] == 5 and 0 < said["batches"][0]["p50_ms"] <= said["batches"][0]["p99_ms"]


def gpu_bench(**env: str) -> subprocess.CompletedProcess:
    return subprocess.run(["tools/gpu/bench.sh"], cwd=ROOT, env=os.environ | env, capture_output=True, text=True, timeout=600)


def test_gpu_bench_says_early_that_there_is_no_gpu(tmp_path):
    folder = tmp_path / "gpu"
    done = gpu_bench(NVIDIA_DRIVER="/nowhere", FOLDER=str(folder))
    assert done.returncode == 4 and done.stderr.count("\n") == 1 and not folder.exists(), done.stderr
    assert "no NVIDIA driver is loaded on this machine" in done.stderr and "nothing was installed" in done.stderr
    for name, value in (("DEVICE", "gpu"), ("CONTENDERS", "jax")):
        done = gpu_bench(**{"DEVICE": "cpu", name: value, "FOLDER": str(folder)})
        assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith(f"gpu-bench: {name} "), done.stderr


def test_gpu_bench_report(act, act_bundle, folder):
    """Runs the whole script on the CPU with small checkpoints: every contender on every bundle, in one report."""
    if not shutil.which("go") or not (ROOT / ".venv").exists():
        pytest.skip("needs Go and ONNX Runtime: make setup")
    where = folder / "gpu"
    smolvla = smolvla_checkpoint.make(where / "checkpoints" / "smolvla")
    (where / "bundles").mkdir()
    (where / "checkpoints" / "act").symlink_to(act)
    (where / "bundles" / "act").symlink_to(act_bundle)
    for name, flags in (("smolvla", []), ("smolvla-split", ["--form", "split"])):
        assert main([str(smolvla), str(where / "bundles" / name), *FLAGS, "--vlm", str(smolvla.with_name("vlm")), "--steps", "3", *flags]) == 0
    path = os.pathsep.join([str(ROOT / "tools/export"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = gpu_bench(DEVICE="cpu", SMALL="1", FOLDER=str(where), BATCHES="1,2", SECONDS_EACH="1", CONTENDERS="bare torch", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    report, text = json.loads((where / "gpu.json").read_text()), (where / "gpu.md").read_text()
    assert [(r["bundle"], r["subject"]) for r in report["runs"]] == [(b, s) for b in ("act", "smolvla", "smolvla-split") for s in ("ours", "bare", "torch")]
    for run in report["runs"]:
        assert not run.get("absent"), run
        assert [b["batch"] for b in run["batches"]] == [1, 2] and all(0 < b["p50_ms"] <= b["p99_ms"] and b["chunks_per_s"] > 0 for b in run["batches"])
        assert f"on cpu: {run['subject']}**" in text
        if run["subject"] == "ours":
            assert run["request_ms"]["p50"] > 0 and run["collections"] == 0
    assert text.count("| batch | p50 ms |") == 9 and "objects allocated" in text
