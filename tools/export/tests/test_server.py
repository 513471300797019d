"""lean-server takes the bundles and gives the golden sets' numbers."""

import json
import re
import socket
import subprocess
from pathlib import Path

import checkpoints
import onnx
import pi_checkpoints
import pytest
import smolvla_checkpoint
from conftest import ROOT, exported

from edgert_export import onnx_graph

def manifest_of(bundle: Path, **more) -> Path:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    manifest = {
        "model": {"repo_or_path": str(bundle), "id": "test/policy", "revision": "main", "device": "cpu"},
        "service": "test", "default_task": "test", "max_sessions": 2, "zenoh": {"listen_endpoints": [f"tcp/127.0.0.1:{port}"]}, **more,
    }  # fmt: skip
    path = bundle.with_name(bundle.name + ".yaml")
    path.write_text(json.dumps(manifest))
    return path


def check(server: Path, bundle: Path) -> str:
    done = subprocess.run([server, "check", "--manifest", manifest_of(bundle)], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_act(server, act_bundle):
    text = check(server, act_bundle)
    assert "golden sets reproduced" in text and "front 96x128, " in text


@pytest.mark.parametrize("past", [1, 2])
def test_diffusion(server, folder, past):
    config = {} if past == 1 else {"n_obs_steps": 2, "noise_scheduler_type": "DDPM", "num_inference_steps": None}
    checkpoint = folder / f"diffusion-{past}"
    if not checkpoint.exists():
        checkpoints.diffusion(checkpoint, **config)
    assert "golden sets reproduced" in check(server, exported(checkpoint, *([] if past == 1 else ["--steps", "8"])))


@pytest.mark.parametrize("form", ["unrolled", "split"])
def test_smolvla_and_diffusion_in_other_forms(server, folder, form):
    smolvla = smolvla_checkpoint.make(folder / f"smolvla-{form}")
    bundle = exported(smolvla, "--vlm", str(smolvla.with_name("vlm")), "--steps", "3", "--form", form)
    diffusion = checkpoints.diffusion(folder / f"diffusion-{form}")
    for made in (bundle, exported(diffusion, "--form", form)):
        graphs = {path.name: onnx.load(path).graph for path in made.glob("*.onnx")}
        assert set(graphs) == ({"prefix.onnx", "step.onnx"} if form == "split" else {"policy.onnx"})
        assert not [node.name for graph in graphs.values() for node in graph.node if node.op_type == "Loop"]
        text = check(server, made)
        assert "golden sets reproduced" in text and "MiB of inputs and outputs" in text


@pytest.mark.parametrize("form", ["loop", "split"])
@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_pi(server, folder, kind, form):
    with pi_checkpoints.small():
        bundle = exported(pi_checkpoints.make(kind, folder / f"{kind}-{form}-served"), "--steps", "2", "--form", form)
    assert (bundle / "step.onnx").exists() == (form == "split")
    text = check(server, bundle)
    assert "golden sets reproduced" in text and f"sentencepiece, {48 if kind == 'pi0' else 200} tokens" in text


@pytest.mark.parametrize("form", ["loop", "split"])
def test_weights_beside_the_graph_stay_mapped(server, folder, monkeypatch, form):
    """They are what a large policy takes: a copy beside the mapping would be the same again."""
    monkeypatch.setattr(onnx_graph, "EXTERNAL_BYTES", 0)
    checkpoint = smolvla_checkpoint.make(folder / f"smolvla-mapped-{form}")
    bundle = exported(checkpoint, "--vlm", str(checkpoint.with_name("vlm")), "--steps", "3", "--form", form)
    files = sorted(bundle.glob("*.onnx.data"))
    assert len(files) == (1 if form == "loop" else 2)
    assert len({path.stat().st_mode for path in bundle.rglob("*") if path.is_file()}) == 1  # another user may serve it
    with subprocess.Popen([server, "--manifest", manifest_of(bundle)], cwd=ROOT, stderr=subprocess.PIPE, text=True) as serving:
        try:
            assert any("serving" in line for line in serving.stderr)  # golden sets and warm-up have touched all weights
            maps = Path(f"/proc/{serving.pid}/smaps").read_text()
        finally:
            serving.terminate()
    for file in files:
        resident = re.findall(rf"{re.escape(str(file))}\n(?:Size|\w+PageSize).*?\nRss: +(\d+) kB", maps, re.S)
        assert sum(map(int, resident)) * 1024 > file.stat().st_size / 2, (file, resident)
