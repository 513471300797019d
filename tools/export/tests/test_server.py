"""lean-server takes the bundles and gives the golden sets' numbers."""

import json
import shutil
import subprocess
from pathlib import Path

import checkpoints
import pi_checkpoints
import pytest
import smolvla_checkpoint
from conftest import exported

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Path:
    if not shutil.which("go") or not (ROOT / ".venv").exists():
        pytest.skip("needs Go and ONNX Runtime: make setup")
    program = tmp_path_factory.mktemp("bin") / "lean-server"
    subprocess.run(["go", "build", "-o", program, "./cmd/lean-server"], cwd=ROOT, check=True)
    return program


def check(server: Path, bundle: Path) -> str:
    manifest = {
        "model": {"repo_or_path": str(bundle), "id": "test/policy", "revision": "main", "device": "cpu"},
        "service": "test", "default_task": "test", "max_sessions": 2, "zenoh": {"listen_endpoints": ["tcp/127.0.0.1:7447"]},
    }  # fmt: skip
    path = bundle.with_name(bundle.name + ".yaml")
    path.write_text(json.dumps(manifest))
    done = subprocess.run([server, "check", "--manifest", path], cwd=ROOT, capture_output=True, text=True, timeout=300)
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


def test_smolvla_and_diffusion_in_two_graphs(server, folder):
    smolvla = smolvla_checkpoint.make(folder / "smolvla-split")
    bundle = exported(smolvla, "--vlm", str(smolvla.with_name("vlm")), "--steps", "3", "--form", "split")
    diffusion = checkpoints.diffusion(folder / "diffusion-split")
    for made in (bundle, exported(diffusion, "--form", "split")):
        assert (made / "step.onnx").exists() and not (made / "policy.onnx").exists()
        assert "golden sets reproduced" in check(server, made)


@pytest.mark.parametrize("form", ["loop", "split"])
@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_pi(server, folder, kind, form):
    with pi_checkpoints.small():
        bundle = exported(pi_checkpoints.make(kind, folder / f"{kind}-{form}-served"), "--steps", "2", "--form", form)
    assert (bundle / "step.onnx").exists() == (form == "split")
    text = check(server, bundle)
    assert "golden sets reproduced" in text and f"sentencepiece, {48 if kind == 'pi0' else 200} tokens" in text
