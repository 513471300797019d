"""The contents of a bundle, and the exporter's messages about the statistics."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import checkpoints
import numpy as np
import onnx
import pi_checkpoints
import torch
from conftest import FLAGS, exported
from safetensors.numpy import load_file

from edgert_export import golden
from edgert_export.checkpoint import Checkpoint
from edgert_export.cli import main, parser, told
from edgert_export.families.base import Case
from edgert_export.licence import UNKNOWN, origin

import parity


def meta_of(bundle) -> dict:
    return json.loads((bundle / "bundle.json").read_text())


def test_manifest(act, act_bundle):
    meta = meta_of(act_bundle)
    for key, value in {
        "bundle_version": 1, "policy_type": "act", "fps": 30.0, "chunk_size": 100, "n_action_steps": 50, "action_dim": 6,
        "action_names": checkpoints.JOINTS, "state_names": checkpoints.JOINTS, "rtc": "none", "norm_state": "MEAN_STD", "norm_action": "MEAN_STD",
        "cameras": [{"name": "front", "height": 96, "width": 128}, {"name": "wrist", "height": 64, "width": 96}],
        "batch_buckets": [1, 2, 4, 8, 16], "licence": UNKNOWN, "dtype": "float32",
    }.items():  # fmt: skip
        assert meta[key] == value, key
    assert meta["weights_sha256"] == hashlib.sha256((act / "model.safetensors").read_bytes()).hexdigest()
    low, high = meta["action_limits"][0]
    stats = checkpoints.stats(["front", "wrist"])["action"]
    assert low < stats["min"][0] and high > stats["max"][0]
    assert set(meta["golden_tolerance"]) == {"chunk_model", "chunk_robot"}


def test_simulation_only(act, act_bundle, tmp_path):
    assert "simulation_only" not in meta_of(act_bundle)
    out = tmp_path / "bundle"
    assert main([str(act), str(out), "--fps", "30", "--joints", ",".join(checkpoints.JOINTS), "--simulation-only"]) == 0
    assert meta_of(out)["simulation_only"] is True


def files_of(bundle) -> set[str]:
    return {p.relative_to(bundle).as_posix() for p in bundle.rglob("*") if p.is_file()}


def test_every_file_is_listed(act_bundle):
    files = files_of(act_bundle)
    assert files - {"bundle.json", "report.json"} == set(meta_of(act_bundle)["files"])
    for name, digest in meta_of(act_bundle)["files"].items():
        assert hashlib.sha256((act_bundle / name).read_bytes()).hexdigest() == digest
    assert {"LICENSE", "SOURCE", "report.json", "policy.onnx", "golden/b1_plain.safetensors", "golden/b4_plain.safetensors"} <= files


AGAIN = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import pi_checkpoints
from edgert_export import onnx_graph, timing
from edgert_export.cli import main
torch.set_num_threads(1)
onnx_graph.THREADS, timing.SECONDS, timing.MIN_RUNS = 1, 0.0, 1
with pi_checkpoints.small():
    sys.exit(main(sys.argv[2:]))
"""


def test_two_exports_are_one_bundle(folder):
    """Exports again with another hash seed (the order of sets and maps) and another number of threads. Only the difference
    between torch and the graph, and therefore golden_tolerance, may depend on the threads."""
    with pi_checkpoints.small():
        checkpoint = pi_checkpoints.make("pi05", folder / "pi05-again", cameras={"top": (48, 64)})
        one = exported(checkpoint, "--steps", "2")
        other, threads = folder / "pi05-other-bundle", folder / "pi05-threads-bundle"
        torch.set_num_threads(3)
        try:
            assert main([str(checkpoint), str(threads), *FLAGS, "--steps", "2"]) == 0
        finally:
            torch.set_num_threads(1)
    command = [sys.executable, "-c", AGAIN, str(Path(__file__).parent), str(checkpoint), str(other), *FLAGS, "--steps", "2"]
    done = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": "18"}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for bundle, differ in ((other, ["report.json"]), (threads, ["bundle.json", "report.json"])):
        assert "golden/b4_guided.safetensors" in meta_of(bundle)["files"]
        assert set(differ) >= {name for name in files_of(one) | files_of(bundle) if (one / name).read_bytes() != (bundle / name).read_bytes()}
        assert {**meta_of(one), "golden_tolerance": 0} == {**meta_of(bundle), "golden_tolerance": 0}


def test_golden_sets_are_lerobots(act, act_bundle):
    family = parity.family_for(act, act_bundle)
    sets = load_file(act_bundle / "golden" / "b4_plain.safetensors")
    case = Case("plain", {k.removeprefix("in/"): v for k, v in sets.items() if k.startswith("in/")})
    want = golden.reference(family, case)
    for name, value in want.items():
        assert np.array_equal(sets[f"out/{name}"], value), name


def test_graph_has_only_a_batch_dimension(act_bundle):
    graph = onnx.load(act_bundle / "policy.onnx").graph
    for value in [*graph.input, *graph.output]:
        dims = [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
        assert dims[0] == "batch" and all(isinstance(d, int) and d > 0 for d in dims[1:]), (value.name, dims)
    assert not {"If", "NonZero", "Loop"} & {n.op_type for n in graph.node}
    assert not [i.name for i in graph.initializer if "vae_encoder" in i.name]


def test_report(act_bundle):
    report = json.loads((act_bundle / "report.json").read_text())
    assert [line["batch"] for line in report["t_of_b"]] == [1, 2, 4, 8, 16]
    assert {(line["output"], line["batch"]) for line in report["parity"]} == {(o, b) for o in ("chunk_model", "chunk_robot") for b in (1, 4, 16)}
    assert report["worst"]["max"] <= 1e-4 and report["sizes"]["policy.onnx"] > 0 and report["versions"]["lerobot"]


def test_constant_joint_is_named(folder, capsys):
    checkpoint = checkpoints.act(folder / "act-still", {"top": (64, 64)}, still=4, chunk_size=8, n_action_steps=8)
    bundle = exported(checkpoint)
    err = capsys.readouterr().err
    assert "warning: observation.state wrist_roll.pos did not move in the training data" in err
    assert "warning: action wrist_roll.pos did not move" in err
    assert len(json.loads((bundle / "report.json").read_text())["warnings"]) == 2


def test_renamed_cameras_keep_the_robots_names(act, tmp_path):
    shutil.copytree(act, tmp_path / "renamed")
    path = tmp_path / "renamed" / "policy_preprocessor.json"
    pre = json.loads(path.read_text())
    pre["steps"][0]["config"]["rename_map"] = {"observation.images.left": "observation.images.front"}
    path.write_text(json.dumps(pre))
    bundle = exported(tmp_path / "renamed", "--units", "degrees")
    meta = meta_of(bundle)
    assert [c["name"] for c in meta["cameras"]] == ["left", "wrist"]
    assert meta["action_units"] == meta["state_units"] == ["degrees"] * 6


def test_data_set_licence_and_origin(act, tmp_path):
    snapshot = tmp_path / "models--lab--act_cup" / "snapshots" / "0123abcd"
    shutil.copytree(act, snapshot)
    (snapshot / "README.md").write_text("---\nlicense: apache-2.0\ntags:\n- robotics\n---\n# ACT\n")
    info = tmp_path / "info.json"
    names = {"motors": checkpoints.JOINTS}
    info.write_text(json.dumps({"fps": 50, "features": {"action": {"names": names}, "observation.state": {"names": checkpoints.JOINTS}}}))
    out = tmp_path / "out"
    assert main([str(snapshot), str(out), "--dataset-info", str(info)]) == 0
    meta = meta_of(out)
    assert (meta["fps"], meta["licence"], meta["source_repo"], meta["source_revision"]) == (50.0, "apache-2.0", "lab/act_cup", "0123abcd")
    assert "apache-2.0" in (out / "LICENSE").read_text() and "lab/act_cup" in (out / "SOURCE").read_text()


def test_name_of_a_training(act, tmp_path):
    """Every training names its folder pretrained_model, but two policies must not have the same name."""
    for folder, want in (("pick/checkpoints/000100/pretrained_model", "pick"), ("fold/pretrained_model", "fold"), ("mine", "mine")):
        path = tmp_path / folder
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(act, path)
        assert origin(Checkpoint(path)) == (want, "")
    last = tmp_path / "pick" / "checkpoints" / "last"
    last.symlink_to("000100")
    assert origin(Checkpoint(last / "pretrained_model")) == ("pick", "")
    for mounted, want in (("/pretrained_model", "pretrained_model"), ("/checkpoints/1/pretrained_model", "pretrained_model"), ("/pick/pretrained_model", "pick")):
        assert origin(SimpleNamespace(dir=Path(mounted), config={})) == (want, "")


def test_flags_without_paths_of_this_machine():
    """The bundle names its flags, but no folder of the exporting machine, in any spelling of a path."""
    for argv, want in (
        (["a/b", "out", "--fps", "30"], "--fps 30"),
        (["./a//b/", "out/", "--vlm", "/home/me/vlm/", "--cameras=top=8x8"], "--vlm vlm --cameras=top=8x8"),
        (["--dataset-info=/home/me/meta/info.json", "/home/me/a", "/home/me/out", "--steps=4"], "--dataset-info=info.json --steps=4"),
    ):
        assert told(argv, parser().parse_args(argv)) == want


def test_keys_that_are_not_normalised(act, tmp_path):
    """The pre-processor normalises the keys in normalize_observation_keys; all others pass unchanged."""
    shutil.copytree(act, tmp_path / "some")
    path = tmp_path / "some" / "policy_preprocessor.json"
    pre = json.loads(path.read_text())
    pre["steps"][3]["config"]["normalize_observation_keys"] = ["observation.images.front", "observation.images.wrist"]
    path.write_text(json.dumps(pre))
    bundle = exported(tmp_path / "some")
    assert meta_of(bundle)["norm_state"] == "IDENTITY"
    parity.check(parity.family_for(tmp_path / "some", bundle), bundle, rows=8)


def test_backbone_weights_are_not_fetched(act, tmp_path):
    """The export does not fetch the weights of torchvision that a trained checkpoint names."""
    shutil.copytree(act, tmp_path / "named")
    path = tmp_path / "named" / "config.json"
    config = json.loads(path.read_text())
    config["pretrained_backbone_weights"] = "ResNet18_Weights.IMAGENET1K_V1"
    path.write_text(json.dumps(config))
    policy = Checkpoint(tmp_path / "named").policy(pretrained_backbone_weights=None)
    assert policy.config.chunk_size == 100


def test_a_wrong_graph_is_not_written(act, tmp_path, monkeypatch, capsys):
    from edgert_export.families import act as module

    monkeypatch.setattr(module.Block, "feed", lambda self, x: x)
    assert main([str(act), str(tmp_path / "out"), "--fps", "30", "--joints", "a,b,c,d,e,f"]) == 2
    assert "the exported graph differs from LeRobot's own code by" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
