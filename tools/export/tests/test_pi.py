"""Pi0 and Pi0.5 against LeRobot's own code."""

import functools
import json
import shutil

import gemma_tokenizer
import numpy as np
import onnx
import pi_checkpoints
import pi_trained
import pytest
import torch
from checkpoints import JOINTS
from conftest import FLAGS
from parity import check, check_senses
from safetensors.torch import load_file, save_file

from edgert_export import golden
from edgert_export.bundle import manifest
from edgert_export.checkpoint import Checkpoint
from edgert_export.cli import main
from edgert_export.errors import ExportError
from edgert_export.families import family_of
from edgert_export.families.paligemma import DTYPES, PadResize
from edgert_export.onnx_graph import Modules, Runner
from edgert_export.options import Options

RELATIVE = {"use_relative_actions": True, "relative_exclude_joints": ["GRIPPER"], "action_feature_names": JOINTS}
ROWS = 100


@pytest.fixture(scope="module", autouse=True)
def small():
    with pi_checkpoints.small():
        yield


def family_for(checkpoint, delay: int = 0, **options):
    read = Checkpoint(checkpoint)
    if delay and not pi_trained.NATIVE:
        read.config["rtc_training_max_delay"] = delay
    family = family_of(read.type)(read, Options(fps=30, action_names=JOINTS, state_names=JOINTS, **options))
    family.meta = {**manifest(family), **family.meta}
    return family


def build(family, folder):
    folder.mkdir()
    family.build(folder)
    return folder


@pytest.fixture(scope="module")
def pi0(folder):
    return pi_checkpoints.make("pi0", folder / "pi0")


@pytest.fixture(scope="module")
def pi05(folder):
    return pi_checkpoints.make("pi05", folder / "pi05")


@pytest.fixture(scope="module")
def built(request, folder):
    """Family and graphs by their options, built at the first use."""

    @functools.cache
    def make(kind: str, form: str = "loop", steps: int = 0):
        family = family_for(request.getfixturevalue(kind), form=form, steps=steps)
        return family, build(family, folder / f"{kind}-{form}-{steps}-built")

    return make


# Inputs that are equal in two plain cases, or that the graph uses only with a prefix.
CONTROLS = ("tokens", "token_mask", "prefix", "prefix_len", "delay", "prefix_end", "rtc_mode", "beta", "schedule", "sigma_d")


def check_reads(family, bundle) -> None:
    """Asserts that the chunk depends on the task and on its token mask."""
    run = Runner(bundle, family.meta)
    case = family.case(2, np.random.default_rng(13))
    base = run(case.inputs)
    turned = {k: case.inputs[k][::-1].copy() for k in ("tokens", "token_mask")}
    longer = {"token_mask": np.ones_like(case.inputs["token_mask"])}
    for change in (turned, longer):
        moved = run({**case.inputs, **change})
        assert golden.errors(family, moved, base)["chunk_robot"].max() > 1e-2


def test_pi0(built):
    family, bundle = built("pi0")
    check_senses(family, bundle, deaf=CONTROLS)
    check_reads(family, bundle)
    check(family, bundle, rows=2 * ROWS)


def test_pi05(built):
    family, bundle = built("pi05")
    # The tokens hold the state; the graph has the input but does not use it.
    check_senses(family, bundle, deaf=("state", *CONTROLS))
    check_reads(family, bundle)
    check(family, bundle, rows=2 * ROWS)


@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_relative_actions_and_missing_cameras(folder, tmp_path, kind):
    """Three declared cameras of which the middle one is missing, an empty camera, and other
    statistics and steps than the default."""
    from lerobot.configs import NormalizationMode

    modes = {"VISUAL": "IDENTITY", "STATE": "MIN_MAX", "ACTION": "QUANTILE10"}
    cameras = {"front": (60, 40), "left": (32, 32), "wrist": (224, 224)}
    checkpoint = pi_checkpoints.make(kind, folder / f"{kind}-relative", cameras, empty_cameras=1, normalization_mapping={k: NormalizationMode(v) for k, v in modes.items()}, **RELATIVE)
    family = family_for(checkpoint, steps=4, cameras={"left": None, "front": (70, 300)})
    assert [(c.name, c.height, c.width) for c in family.cameras] == [("front", 70, 300), ("wrist", 224, 224)]
    assert family.meta["relative_mask"] == [True] * 5 + [False] and family.meta["num_steps"] == 4
    bundle = build(family, tmp_path / "out")
    check(family, bundle, rows=32)


@pytest.mark.parametrize("form", ["unrolled", "split"])
def test_other_forms(built, form):
    check(*built("pi05", form, 3), rows=16)


def test_two_key_heads(folder, tmp_path):
    """A policy with two key heads exports correctly, because the export takes its sizes from the loaded modules."""
    with pi_checkpoints.small(kv_heads=2, depth=2):
        checkpoint = pi_checkpoints.make("pi0", folder / "pi0-heads", {"top": (48, 64)}, max_action_dim=8, max_state_dim=10, chunk_size=7, n_action_steps=7)
        family = family_for(checkpoint)
        check(family, build(family, tmp_path / "out"), rows=16)


def test_trained_prefix(folder, tmp_path):
    """The modes off, guided and trained of a policy that was trained with prefixes."""
    native = {"rtc_training_max_delay": 5} if pi_trained.NATIVE else {}
    with pi_trained.supported():
        checkpoint = pi_checkpoints.make("pi05", folder / "pi05-trained", {"top": (48, 64)}, **RELATIVE, **native)
        family = family_for(checkpoint, delay=5)
        assert family.meta["rtc"] == "guided,trained" and family.meta["rtc_max_delay"] == 5
        bundle = build(family, tmp_path / "out")
        check(family, bundle, rows=3 * ROWS)
        case = family.case(8, np.random.default_rng(3), "trained")
    run = Runner(bundle, family.meta)
    got = run(case.inputs)["chunk_robot"]
    for row, delay in enumerate(case.inputs["delay"]):
        np.testing.assert_allclose(got[row, :delay], case.inputs["prefix"][row, :delay], rtol=1e-4, atol=1e-3)
    # Time 0 of the clean rows changes the other rows too, unlike in a mode that only copies the prefix.
    free = run(case.inputs | {"rtc_mode": np.zeros(8, np.int64)})["chunk_robot"]
    assert np.abs(free[:, 6:] - got[:, 6:]).max() > 0.1


@pytest.mark.parametrize("kind, dtype, limit", [("pi0", "fp16", 3e-3), ("pi05", "fp16", 3e-3), ("pi0", "bf16", 5e-2), ("pi05", "bf16", 5e-2)])
def test_half_precision(request, tmp_path, kind, dtype, limit):
    """Only the weights are in the type; x, time and RTC stay fp32. ONNX Runtime has no bf16
    product on the CPU, so torch runs the modules of the bf16 graph."""
    family = family_for(request.getfixturevalue(kind), dtype=dtype)
    flow = family.flow()
    layers = [*flow.step.expert.layers, *flow.prefix.layers, *flow.prefix.vision.layers]
    kept = {p.weight.dtype for layer in layers for p in (layer.q, layer.k, layer.v, layer.out, layer.up, layer.down)} | {flow.prefix.words.weight.dtype}
    assert kept == {DTYPES[dtype]}
    if dtype == "fp16":
        assert check(family, build(family, tmp_path / "out"), rows=16, limit=limit) > 1e-6
        return
    cases = [family.case(8, np.random.default_rng(4), note) for note in family.notes()]
    assert 1e-5 < golden.worst(golden.parity(family, Modules(flow), cases, batches=(8,)))["max"] < limit


def test_pictures_are_fitted_as_lerobot_does():
    from lerobot.policies.common.vla_utils import resize_with_pad_torch

    rng = torch.Generator().manual_seed(0)
    for height, width in [(480, 640), (640, 480), (100, 101), (101, 100), (224, 224), (37, 500), (448, 448), (225, 224), (1, 5)]:
        x = torch.rand(2, 3, height, width, generator=rng)
        want = resize_with_pad_torch(x.permute(0, 2, 3, 1), 224, 224).permute(0, 3, 1, 2) * 2 - 1
        torch.testing.assert_close(PadResize(height, width, (224, 224))(x), want, rtol=0, atol=1e-6)


def test_bundle(pi05, folder):
    """The whole result of the command for Pi0.5."""
    out = folder / "pi05-bundle"
    assert main([str(pi05), str(out), *FLAGS, "--steps", "2"]) == 0
    meta = json.loads((out / "bundle.json").read_text())
    stats = load_file(next(pi05.glob("policy_preprocessor_step_*_normalizer_processor.safetensors")))
    spec = meta["tokenizer"]
    assert {k: spec[k] for k in ("kind", "max_len", "pad_id", "bos_id", "template", "clean")} == {
        "kind": "sentencepiece", "max_len": 200, "pad_id": 0, "bos_id": 2, "template": "Task: {task}, State: {state};\nAction: ", "clean": True,
    }  # fmt: skip
    assert spec["state"]["bins"] == 256 and spec["state"]["mode"] == "quantiles"
    np.testing.assert_array_equal(np.float32(spec["state"]["a"]), stats["observation.state.q01"])
    np.testing.assert_array_equal(np.float32(spec["state"]["span"]), stats["observation.state.q99"] - stats["observation.state.q01"])
    assert meta["rtc"] == "guided" and meta["noise_dim"] == 32 and meta["num_steps"] == 2
    words = json.loads((out / "tokenizer" / "tokenizer.json").read_text())
    assert words["model"]["vocab"] == json.loads((pi05 / "tokenizer" / "tokenizer.json").read_text())["model"]["vocab"]
    assert words["padding"] is None and words["truncation"] is None
    assert json.loads((out / "report.json").read_text())["worst"]["max"] < 1e-4
    sets = sorted(p.name for p in (out / "golden").iterdir())
    assert sets == ["b1_guided.safetensors", "b1_plain.safetensors", "b4_guided.safetensors", "b4_plain.safetensors"]
    assert load_file(out / "golden" / "b4_plain.safetensors")["in/token_mask"].dtype == torch.bool


@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_sizes_are_numbers(built, kind):
    """Only the batch is dynamic: a GPU could not record a graph that computes other sizes."""
    _, bundle = built(kind, "split", 3)
    kinds = {n.op_type for name in ("prefix.onnx", "step.onnx") for n in onnx.load(bundle / name).graph.node}
    assert "MatMul" in kinds and not kinds & {"Shape", "Expand", "ConstantOfShape"}


def test_prompts_do_not_depend_on_padding(built):
    """The values in the padding of the tokens must not change the chunk."""
    family, bundle = built("pi0")
    run = Runner(bundle, family.meta)
    case = family.case(4, np.random.default_rng(6))
    base = run(case.inputs)
    tokens = np.where(case.inputs["token_mask"], case.inputs["tokens"], 17)
    np.testing.assert_array_equal(run(case.inputs | {"tokens": tokens})["chunk_robot"], base["chunk_robot"])


# refusals


def refused(folder, **options) -> str:
    with pytest.raises(ExportError) as caught:
        family_for(folder, **options)
    return str(caught.value)


@pytest.fixture
def copy(pi05, tmp_path):
    return shutil.copytree(pi05, tmp_path / "checkpoint")


def edit(path, change) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def test_weights_that_lerobot_would_leave_random_are_refused(copy):
    """The refusal names the weight: LeRobot only prints a warning and runs with random weights."""
    tensors = load_file(copy / "model.safetensors")
    name = "model.action_out_proj.weight"
    tensors["model.action_out_projection.weight"] = tensors.pop(name)
    save_file(tensors, copy / "model.safetensors")
    assert name in refused(copy)


def test_a_policy_with_memory_is_refused(copy):
    edit(copy / "config.json", lambda c: c.update(use_visual_memory=True))
    assert "use_visual_memory: a policy that remembers observations is not served" in refused(copy)


def test_the_tokenizer_may_be_elsewhere(copy):
    words = (copy / "tokenizer").rename(copy.with_name("words"))
    assert "has no tokenizer/tokenizer.json, only the name 'tokenizer': fetch it with `hf download" in refused(copy)
    assert family_for(copy, vlm=words).meta["tokenizer"]["bos_id"] == 2


def test_the_tokenizer_of_another_model_is_refused(copy):
    """A token id beyond the policy's embedding table is refused; LeRobot would fail with an index error."""
    shutil.rmtree(copy / "tokenizer")
    gemma_tokenizer.write(copy / "tokenizer", gemma_tokenizer.train(600))
    with pytest.raises(ExportError, match="gives 'pick up .* the token 5.., but the policy's language model knows 520: it is another"):
        family_for(copy).case(2, np.random.default_rng(0))


def test_prompts_that_lerobot_cuts_are_refused(copy):
    def short(pipeline):
        next(s for s in pipeline["steps"] if s["registry_name"] == "tokenizer_processor")["config"]["max_length"] = 20

    edit(copy / "policy_preprocessor.json", short)
    with pytest.raises(ExportError, match="has 20 tokens or more with this policy's 6 state values: LeRobot cuts it there"):
        family_for(copy).case(2, np.random.default_rng(0))


def test_another_padding_is_refused(copy):
    def left(pipeline):
        next(s for s in pipeline["steps"] if s["registry_name"] == "tokenizer_processor")["config"]["padding_side"] = "left"

    edit(copy / "policy_preprocessor.json", left)
    assert "padding_side 'left', want 'right'" in refused(copy)


def test_normalising_after_the_prompt_is_refused(copy):
    def swap(pipeline):
        names = [s["registry_name"] for s in pipeline["steps"]]
        i, j = names.index("normalizer_processor"), names.index("pi05_prepare_state_tokenizer_processor_step")
        pipeline["steps"][i], pipeline["steps"][j] = pipeline["steps"][j], pipeline["steps"][i]

    edit(copy / "policy_preprocessor.json", swap)
    assert "the graph would compute something else" in refused(copy)


def test_no_camera_at_all_is_refused(pi0):
    family = family_for(pi0, cameras={"front": None, "wrist": None})
    with pytest.raises(ExportError, match="every camera of this policy is missing"):
        family.prefix()
