"""lean-server accepts the bundles and reproduces the golden sets."""

import json
import re
import shutil
import socket
import subprocess
from pathlib import Path

import checkpoints
import onnx
import pi_checkpoints
import pytest
import smolvla_checkpoint
from conftest import ROOT, exported

from edgert_export import bundle as exporter
from edgert_export import onnx_graph


@pytest.fixture(scope="module")
def smolvla(folder) -> Path:
    return smolvla_checkpoint.make(folder / "smolvla-served")


LARGE = smolvla_checkpoint.SMALL_VISION | {"image_size": 512}
SCORES = 4 * LARGE["num_attention_heads"] * (LARGE["image_size"] // LARGE["patch_size"]) ** 4  # bytes of a picture's attention


@pytest.fixture(scope="module")
def stored(folder) -> Path:
    """A checkpoint in bfloat16 whose weights and attention take most of the memory of a small server."""
    wide = smolvla_checkpoint.SMALL_TEXT | {"intermediate_size": 16000}
    return smolvla_checkpoint.make(folder / "smolvla-stored", vision=LARGE, text=wide, bf16=True, num_vlm_layers=4)


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


def diffusion(folder: Path, past: int) -> Path:
    """The checkpoints of test_diffusion.py, made here if that test has not run."""
    config = {} if past == 1 else {"n_obs_steps": 2, "noise_scheduler_type": "DDPM", "num_inference_steps": None}
    checkpoint = folder / f"diffusion-{past}"
    return checkpoint if checkpoint.exists() else checkpoints.diffusion(checkpoint, **config)


@pytest.mark.parametrize("past", [1, 2])
def test_diffusion(server, folder, past):
    assert "golden sets reproduced" in check(server, exported(diffusion(folder, past), *([] if past == 1 else ["--steps", "8"])))


@pytest.mark.parametrize("form", ["unrolled", "split"])
def test_smolvla_and_diffusion_in_other_forms(server, folder, smolvla, form):
    bundle = exported(smolvla, "--vlm", str(smolvla.with_name("vlm")), "--steps", "3", "--form", form, name=form)
    for made in (bundle, exported(diffusion(folder, 1), "--form", form, name=form)):
        graphs = {path.name: onnx.load(path).graph for path in made.glob("*.onnx")}
        assert set(graphs) == ({"prefix.onnx", "step.onnx"} if form == "split" else {"policy.onnx"})
        assert not [node.name for graph in graphs.values() for node in graph.node if node.op_type == "Loop"]
        text = check(server, made)
        assert "golden sets reproduced" in text and "MiB of inputs and outputs" in text


@pytest.mark.parametrize("form", ["loop", "split"])
@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_pi(server, folder, kind, form):
    checkpoint = folder / f"{kind}-served"
    with pi_checkpoints.small():
        if not checkpoint.exists():
            pi_checkpoints.make(kind, checkpoint)
        bundle = exported(checkpoint, "--steps", "2", "--form", form, name=form)
    assert (bundle / "step.onnx").exists() == (form == "split")
    text = check(server, bundle)
    assert "golden sets reproduced" in text and f"sentencepiece, {48 if kind == 'pi0' else 200} tokens" in text


@pytest.mark.parametrize("form", ["loop", "split"])
def test_weights_beside_the_graph_stay_mapped(server, smolvla, monkeypatch, form):
    """Weights are most of the memory of a large policy: a copy beside the mapping would double it."""
    monkeypatch.setattr(onnx_graph, "EXTERNAL_BYTES", 0)
    bundle = exported(smolvla, "--vlm", str(smolvla.with_name("vlm")), "--steps", "3", "--form", form, name=f"mapped-{form}")
    files = sorted(bundle.glob("*.onnx.data"))
    assert len(files) == (1 if form == "loop" else 2)
    assert len({path.stat().st_mode for path in bundle.rglob("*") if path.is_file()}) == 1  # another user may serve it
    maps, _ = memory_of(server, bundle)
    for file in files:
        assert resident(maps, file) > file.stat().st_size / 2, file


@pytest.mark.parametrize("form", ["loop", "split"])
def test_stored_weights_stay_as_they_are(server, stored, monkeypatch, form):
    """Stored weights are mapped, and cast at each use. The comparison is the same bundle without the key `weights`,
    whose weights are all cast at load. A run's other memory, of which attention takes most, is returned at its
    end."""
    monkeypatch.setattr(onnx_graph, "EXTERNAL_BYTES", 0)
    monkeypatch.setattr(exporter, "PARITY_ROWS", 2)
    bundle = exported(stored, "--vlm", str(stored.with_name("vlm")), "--steps", "2", "--form", form, name=form)
    report = json.loads((bundle / "report.json").read_text())
    folded = shutil.copytree(bundle, bundle.with_name(bundle.name + "-folded"))
    meta = json.loads((folded / "bundle.json").read_text())
    assert meta.pop("weights") == "bfloat16"
    (folded / "bundle.json").write_text(json.dumps(meta))
    maps, anonymous = memory_of(server, bundle)
    _, without = memory_of(server, folded)
    assert anonymous + 0.7 * report["weights"]["float32_bytes_halved"] + 2 * SCORES < without
    for file in bundle.glob("*.onnx.data"):
        assert resident(maps, file) > file.stat().st_size / 2, file


def memory_of(server: Path, bundle: Path) -> tuple[str, int]:
    """The smaps of a ready server, and the bytes of its own memory (RssAnon)."""
    with subprocess.Popen([server, "--manifest", manifest_of(bundle)], cwd=ROOT, stderr=subprocess.PIPE, text=True) as serving:
        try:
            said = []
            for line in serving.stderr:  # golden sets and warm-up have touched all weights
                said.append(line)
                if "msg=serving" in line:
                    break
            else:
                raise AssertionError("".join(said))
            status = Path(f"/proc/{serving.pid}/status").read_text()
            return Path(f"/proc/{serving.pid}/smaps").read_text(), 1024 * int(re.search(r"RssAnon:\s+(\d+)", status)[1])
        finally:
            serving.terminate()


def resident(maps: str, file: Path) -> int:
    """Bytes of a mapped file that are in memory."""
    return 1024 * sum(map(int, re.findall(rf"{re.escape(str(file))}\n(?:Size|\w+PageSize).*?\nRss: +(\d+) kB", maps, re.S)))
