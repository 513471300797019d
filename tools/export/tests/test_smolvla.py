"""SmolVLA against LeRobot's own code, in all forms of the sampler."""

import dataclasses
import functools
import json

import numpy as np
import onnx
import parity
import pytest
import smolvla_checkpoint
import torch
from checkpoints import JOINTS
from conftest import exported
from forms import Runner

from edgert_export import golden, onnx_graph, rtc, sampler, tracing
from edgert_export.checkpoint import Checkpoint
from edgert_export.errors import ExportError
from edgert_export.families.base import Case
from edgert_export.families.smolvla import SmolVLAExport
from edgert_export.options import Options

SMALL = {"chunk_size": 12, "n_action_steps": 12, "num_vlm_layers": 4, "empty_cameras": 1, "max_state_dim": 8, "max_action_dim": 8}


def family_at(checkpoint, **options) -> SmolVLAExport:
    return SmolVLAExport(Checkpoint(checkpoint), Options(fps=30, action_names=JOINTS, state_names=JOINTS, **options))


def mixed(family, rows: int, rng: np.random.Generator) -> Case:
    """A batch in which every row has its own mode, prefix, delay, end, gain and schedule."""
    case = family.case(rows, rng, "guided")
    case.inputs["rtc_mode"] = np.where(np.arange(rows) % 3 == 2, rtc.FREE, rtc.GUIDED)
    length = case.inputs["prefix_len"]
    length[::11] = 0
    length[1::7] = family.meta["chunk_size"]
    case.inputs["delay"] = np.minimum(case.inputs["delay"], length)
    case.inputs["prefix"] = np.nan_to_num(case.inputs["prefix"], nan=20.0)
    case.inputs["prefix"][np.arange(case.inputs["prefix"].shape[1]) >= length[:, None]] = np.nan
    return dataclasses.replace(case, note="mixed")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """One thread: with small matrices a second thread waits longer than it computes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def checkpoint(folder):
    return smolvla_checkpoint.make(folder / "smolvla", **SMALL)


@pytest.fixture(scope="module")
def family(checkpoint):
    return family_at(checkpoint)


@pytest.fixture(scope="module")
def flow(family):
    return family.flow()


@pytest.fixture(scope="module")
def graphs(flow):
    """The graphs by form, built at the first use."""
    return functools.cache(lambda form: sampler.build(flow, form))


@pytest.fixture(scope="module")
def runners(graphs, flow):
    return functools.cache(lambda form: Runner(graphs(form), flow.steps))


@pytest.fixture(scope="module")
def loop(runners):
    return runners("loop")


def check(family, run, cases) -> None:
    table = golden.parity(family, run, cases)
    worst = golden.worst(table)
    print(f"worst error of {cases[0].note}: {worst['max']:.2g} deviations, mean {worst['mean']:.2g}")
    assert worst["max"] <= parity.LIMIT, worst


def test_100_observations_without_and_with_prefixes(family, loop):
    """Two of three rows of a mixed batch are guided."""
    rng = np.random.default_rng(21)
    # A few rows first: they reveal a wrong graph at once.
    for rows in (16, 3 * parity.ROWS // 2 - 16):
        check(family, loop, [mixed(family, rows, rng)])
    check(family, loop, [family.case(parity.ROWS // 2, rng, "plain")])


def test_every_input_matters(family, loop):
    rng = np.random.default_rng(12)
    here, there = family.case(4, rng, "guided"), family.case(4, rng, "guided")
    for case in (here, there):
        case.inputs["prefix_len"][:], case.inputs["prefix_end"][:], case.inputs["delay"][:] = 8, 7, 2
        case.inputs["prefix"] = np.nan_to_num(case.inputs["prefix"], nan=11.0)
    other = {"prefix_len": 5, "prefix_end": 4, "delay": 4, "rtc_mode": rtc.TRAINED_GUIDED, "beta": 0.5, "sigma_d": 0.3}
    base = loop(here.inputs)
    for name, value in here.inputs.items():
        new = np.full_like(value, other[name]) if name in other else (value + 1) % 4 if name == "schedule" else there.inputs[name]
        if name in ("tokens", "token_mask"):
            new = np.roll(value, 1, axis=0)
        change = golden.errors(family, loop({**here.inputs, name: new}), base)["chunk_robot"].max(axis=(1, 2))
        assert change.max() > 1e-2, f"{name} moves the chunk by {change.max():.2g} deviations only"


def test_forms_are_equal_to_the_bit(family, runners, flow):
    case = mixed(family, 5, np.random.default_rng(3))
    case.inputs["rtc_mode"][:] = [rtc.FREE, rtc.GUIDED, rtc.TRAINED, rtc.TRAINED_GUIDED, rtc.GUIDED]
    case.inputs["sigma_d"][:] = [1, 0.2, 1, 0.7, 100]
    want = runners("loop")(case.inputs)
    for form in ("unrolled", "split"):
        got = runners(form)(case.inputs)
        for name in sampler.OUTPUTS:
            np.testing.assert_array_equal(got[name], want[name], err_msg=f"{form} {name}")
    eager = sampler.sample(flow, {name: torch.from_numpy(value) for name, value in case.inputs.items()})
    off = golden.errors(family, dict(zip(sampler.OUTPUTS, (t.numpy() for t in eager), strict=True)), want)
    assert max(e.max() for e in off.values()) < parity.LIMIT


def test_rows_beyond_the_prefix_do_not_matter(family, loop):
    case = family.case(6, np.random.default_rng(4), "guided")
    case.inputs["rtc_mode"][:] = [rtc.FREE, rtc.GUIDED, rtc.TRAINED, rtc.TRAINED_GUIDED, rtc.GUIDED, rtc.TRAINED_GUIDED]
    case.inputs["prefix_len"][:], case.inputs["delay"][:], case.inputs["prefix_end"][:] = [0, 5, 5, 5, 0, 0], [3, 3, 3, 3, 3, 9], 9
    beyond = np.arange(12) >= case.inputs["prefix_len"][:, None]
    made = []
    for value in (0, np.nan, np.inf, -3e38):
        case.inputs["prefix"][beyond] = value
        made.append(loop(case.inputs))
        assert np.isfinite(made[-1]["chunk_robot"]).all()
    for other in made[1:]:
        np.testing.assert_array_equal(other["chunk_robot"], made[0]["chunk_robot"])
    case.inputs["rtc_mode"][:] = rtc.FREE
    free = case.inputs["prefix_len"] == 0
    np.testing.assert_array_equal(made[0]["chunk_robot"][free], loop(case.inputs)["chunk_robot"][free])


def test_trained_rows_repeat_the_prefix(family, loop):
    case = family.case(3, np.random.default_rng(5), "guided")
    case.inputs["prefix_len"][:], case.inputs["delay"][:], case.inputs["rtc_mode"][:] = 6, [0, 2, 9], rtc.TRAINED
    case.inputs["prefix"] = np.nan_to_num(case.inputs["prefix"], nan=5.0)
    chunk = loop(case.inputs)["chunk_robot"]
    for row, rows in ((1, 2), (2, 6)):
        np.testing.assert_allclose(chunk[row, :rows], case.inputs["prefix"][row, :rows], rtol=1e-5, atol=1e-4)
        assert np.abs(chunk[row, rows] - case.inputs["prefix"][row, rows]).max() > 0.1


def test_only_the_batch_is_dynamic(graphs):
    for form in sampler.FORMS:
        for name, model in graphs(form).items():
            tracing.check(model)
            every = [n for g in onnx_graph.graphs(model.graph) for n in g.node]
            assert not {n.op_type for n in every} & {"Shape", "Size", "If", "Loop" if form != "loop" else "If"}, (form, name)
            inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
            for value in inferred.graph.value_info:
                dims = value.type.tensor_type.shape.dim
                assert sum(not d.HasField("dim_value") for d in dims) <= 1, (form, name, value.name)


@pytest.mark.parametrize(
    "name, cameras, config, steps",
    [
        ("special", {"front": (128, 128)}, {"add_image_special_tokens": True, "prefix_length": 80, "pad_language_to": "max_length", "tokenizer_max_length": 40}, 0),
        ("own", {"front": (50, 128)}, {"attention_mode": "self_attn", "num_steps": 4}, 0),
        ("few", {"front": (128, 128), "side": (128, 128)}, {"num_expert_layers": 2, "self_attn_every_n_layers": 4}, 7),
        ("cross", {"front": (64, 64)}, {"self_attn_every_n_layers": 3, "expert_width_multiplier": 0.5, "resize_imgs_with_padding": (192, 128)}, 0),
    ],
)
def test_other_configurations(folder, name, cameras, config, steps):
    if name == "cross":
        with pytest.raises(ExportError, match="want a square"):
            family_at(smolvla_checkpoint.make(folder / name, cameras=cameras, **SMALL | config)).prefix()
        config["resize_imgs_with_padding"] = (64, 64)
    family = family_at(smolvla_checkpoint.make(folder / name, cameras=cameras, **SMALL | {"empty_cameras": 0} | config), steps=steps)
    assert family.meta["num_steps"] == steps or family.policy.config.num_steps
    run = Runner(sampler.build(family.flow()), family.steps())
    check(family, run, [mixed(family, 10, np.random.default_rng(6))])


def test_a_folder_without_the_language_model(checkpoint, folder):
    """--vlm is refused even if the folder that the checkpoint names exists, because --vlm was meant to replace it."""
    with pytest.raises(ExportError, match="--vlm is .*nowhere, which is not a folder with config.json and tokenizer.json"):
        family_at(checkpoint, vlm=folder / "nowhere")


def test_bundle(checkpoint, folder):
    """Exports by the command, with the language model in another folder than the one that the checkpoint names."""
    moved = folder / "smolvla-moved"
    moved.mkdir()
    (checkpoint.parent / "vlm").rename(moved / "vlm")
    try:
        with pytest.raises(ExportError, match="--vlm DIR"):
            family_at(checkpoint)
        bundle = exported(checkpoint, "--vlm", str(moved / "vlm"), "--form", "split")
    finally:
        (moved / "vlm").rename(checkpoint.parent / "vlm")
    meta = json.loads((bundle / "bundle.json").read_text())
    assert (meta["rtc"], meta["num_steps"], meta["noise_dim"], meta["schedule"], meta["form"]) == ("guided", 10, 8, "linear,zeros,ones,exp", "split")
    assert [c["name"] for c in meta["cameras"]] == ["front", "wrist"]
    assert meta["tokenizer"]["kind"] == "bpe" and meta["tokenizer"]["template"] == "{task}\n" and meta["tokenizer"]["max_len"] == 48
    assert {"prefix.onnx", "step.onnx", "tokenizer/tokenizer.json"} <= set(meta["files"])
