"""Weights that are stored in half the bytes."""

import functools
import json

import checkpoints
import numpy as np
import onnx
import pytest
import smolvla_checkpoint
import torch
from checkpoints import JOINTS
from conftest import FLAGS, exported
from forms import Runner
from onnx import TensorProto

from edgert_export import bundle, golden, onnx_graph, sampler, timing, weights
from edgert_export.checkpoint import Checkpoint
from edgert_export.cli import main
from edgert_export.errors import ExportError
from edgert_export.families.smolvla import SmolVLAExport
from edgert_export.options import Options

SMALL = {"chunk_size": 12, "n_action_steps": 12, "num_vlm_layers": 4, "num_steps": 3}
STORED = {"bf16": TensorProto.BFLOAT16, "fp16": TensorProto.FLOAT16}


@pytest.fixture(autouse=True)
def small_too(monkeypatch):
    monkeypatch.setattr(weights, "LEAST_BYTES", 1 << 10)


@pytest.fixture(scope="module")
def checkpoint(folder):
    return smolvla_checkpoint.make(folder / "smolvla-bf16", bf16=True, **SMALL)


@pytest.fixture(scope="module")
def family(checkpoint):
    return SmolVLAExport(Checkpoint(checkpoint), Options(fps=30, action_names=JOINTS, state_names=JOINTS))


@pytest.fixture(scope="module")
def graphs(family):
    """A function from the form to copies of its graphs, which are traced once."""
    flow = family.flow()
    traced = functools.cache(lambda form: sampler.build(flow, form))

    def copies(form: str) -> dict[str, onnx.ModelProto]:
        made = {}
        for name, model in traced(form).items():
            made[name] = onnx.ModelProto()
            made[name].CopyFrom(model)
        return made

    return copies


def test_values_are_rounded_as_torch_does():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 100_000, dtype=np.uint32)
    bits[::3] = bits[::3] & 0xFFFF0000 | 0x8000  # ties
    bits[1::3] &= 0xFFFF0000
    values = bits.view(np.float32)
    values = values[np.isfinite(values) & (np.abs(values) < 3e38)]
    want = torch.from_numpy(values.copy()).to(torch.bfloat16).view(torch.int16).numpy()
    np.testing.assert_array_equal(weights.half(values, "bf16", "w").view(np.int16), want)
    assert not weights.exact(values) and weights.exact(bits[1::3].copy().view(np.float32))
    one = np.array([1.0, 1.0 + 2**-8], np.float32)
    assert weights.exact(one[:1]) and not weights.exact(one)

    small = rng.standard_normal(1000).astype(np.float32)
    np.testing.assert_array_equal(weights.half(small, "fp16", "w"), small.astype(np.float16))
    with pytest.raises(ExportError, match="the weight w has 70000: want bf16"):
        weights.half(np.array([70000], np.float32), "fp16", "w")


@pytest.mark.parametrize("form", sampler.FORMS)
def test_what_bf16_holds_loses_nothing(family, graphs, form):
    """The chunk has the same bytes as with float32 weights, folded or not; tensors that a checkpoint keeps in float32 stay."""
    models = graphs(form)
    case = family.case(3, np.random.default_rng(3), "guided")
    mapped = {"session.disable_prepacking": "1"}  # as in lean-server: packed weights round differently
    want = Runner(models, family.steps(), **mapped)(case.inputs)
    before = sum(map(onnx_graph.size, models.values()))
    shrunk = sum(map(weights.shrink, models.values()))
    assert sum(map(onnx_graph.size, models.values())) == before - shrunk / 2 and shrunk > 0.9 * before
    kept = {t.name for m in models.values() for t in m.graph.initializer if t.data_type == TensorProto.FLOAT}
    assert any(name.endswith("mix") for name in kept)  # LeRobot keeps the actions' projections in float32
    for model in models.values():
        onnx.checker.check_model(model)
        assert not [n for n in model.graph.node if n.op_type == "Identity" and n.input[0] in {t.name for t in model.graph.initializer}]
    for disabled in ("", onnx_graph.UNFOLDED):
        got = Runner(models, family.steps(), **mapped, **{"optimization.disable_specified_optimizers": disabled})(case.inputs)
        for name in sampler.OUTPUTS:
            np.testing.assert_array_equal(got[name], want[name], err_msg=f"{form} {name} without {disabled or 'nothing'}")


def test_casts_stand_first_and_serve_one_use(graphs):
    """ONNX Runtime runs the first nodes of the file last: a Cast placed after its product would run before all others."""
    graph = graphs("loop")["policy.onnx"]
    weights.shrink(graph)
    for part in onnx_graph.graphs(graph.graph):
        kinds = [n.op_type == "Cast" and n.name.endswith("/float") and not n.input[0].endswith("/stored") for n in part.node]
        assert sum(kinds) > 10 and all(kinds[: sum(kinds)])
        made = {n.output[0] for n, cast in zip(part.node, kinds, strict=True) if cast}
        uses = [name for n in part.node for name in n.input if name in made]
        assert len(uses) == len(set(uses)) == len(made)
    halves = {t.name for t in graph.graph.initializer if t.data_type == TensorProto.BFLOAT16}
    assert len(halves) > 30


def test_float32_weights_stay(folder):
    family = SmolVLAExport(Checkpoint(smolvla_checkpoint.make(folder / "smolvla-fp32", **SMALL)), Options(fps=30, action_names=JOINTS, state_names=JOINTS))
    for model in sampler.build(family.flow(), "split").values():
        before = onnx_graph.size(model)
        assert weights.shrink(model) == 0 and onnx_graph.size(model) == before


def test_bundle_of_a_checkpoint_in_bf16(checkpoint, folder, monkeypatch):
    """Large weights are stored in half the bytes without a flag; the bound is the bound of fp32."""
    monkeypatch.setattr(onnx_graph, "EXTERNAL_BYTES", 1 << 20)
    out = exported(checkpoint, "--vlm", str(checkpoint.with_name("vlm")))
    meta, report = (json.loads((out / name).read_text()) for name in ("bundle.json", "report.json"))
    assert (meta["dtype"], meta["weights"]) == ("float32", "bfloat16")
    assert report["limit"] == 1e-4 and report["worst"]["max"] <= 1e-4
    assert report["weights"]["stored"] == "bfloat16" and not report["weights"]["rounded"] and report["weights"]["float32_bytes_halved"] > 1 << 20
    few = folder / "smolvla-few-bundle"
    monkeypatch.setattr(onnx_graph, "EXTERNAL_BYTES", 100 << 20)
    assert main([str(checkpoint), str(few), *FLAGS, "--vlm", str(checkpoint.with_name("vlm"))]) == 0
    assert "weights" not in json.loads((few / "bundle.json").read_text())


@pytest.mark.parametrize("kind, dtype", [("act", "bf16"), ("act", "fp16"), ("diffusion", "bf16"), ("smolvla", "fp16")])
def test_weights_that_are_rounded(folder, monkeypatch, kind, dtype):
    """With --dtype, weights take half the bytes, and the chunk differs by less than the bound."""
    monkeypatch.setattr(bundle, "PARITY_ROWS", 4)
    monkeypatch.setattr(timing, "BATCHES", (1, 2))
    made, flags = folder / f"{kind}-rounded", []
    if kind == "smolvla":
        flags = ["--vlm", str(made / "vlm")]
        checkpoint = made / "policy"
        if not made.exists():
            smolvla_checkpoint.make(made, **SMALL)
    else:
        checkpoint = made
        if not made.exists():
            getattr(checkpoints, kind)(made)
    out = made.with_name(f"{kind}-{dtype}-bundle")
    assert main([str(checkpoint), str(out), *FLAGS, *flags, "--dtype", dtype]) == 0
    meta, report = (json.loads((out / name).read_text()) for name in ("bundle.json", "report.json"))
    assert (meta["dtype"], meta["weights"]) == ("float32", onnx_graph.NAMES[dtype])
    assert report["limit"] == golden.STORED_LIMITS[dtype] and report["weights"]["rounded"]
    assert 1e-5 < report["worst"]["max"] <= report["limit"]
    halves = [t for t in onnx.load(out / "policy.onnx").graph.initializer if t.data_type == STORED[dtype]]
    assert len(halves) > 10 and sum(len(t.raw_data) for t in halves) * 2 == report["weights"]["float32_bytes_halved"]
    # The weights of convolutions over pictures stay in float32, so these are not slower.
    assert ("Conv" in {n.op_type for n in onnx.load(out / "policy.onnx").graph.node}) and all(len(t.dims) < weights.PICTURE_RANK for t in halves)
