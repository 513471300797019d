"""Bad checkpoints and flags: exit 2, one line with the value found, the expected value and
the remedy, and no file written."""

import json
import resource
import shutil
import signal
import subprocess

import checkpoints
import forked
import pytest
import torch
from checkpoints import JOINTS
from conftest import FLAGS
from safetensors.torch import load_file, save_file

from edgert_export import bundle, dataset
from edgert_export.checkpoint import Checkpoint
from edgert_export.cli import main
from edgert_export.errors import ExportError
from edgert_export.families import family_of
from edgert_export.options import Options

PRE, POST = "policy_preprocessor.json", "policy_postprocessor.json"


@pytest.fixture
def copy(act, tmp_path):
    shutil.copytree(act, tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def refused(capsys, folder, *flags: str) -> str:
    out = folder.parent / "out"
    assert main([str(folder), str(out), *(flags or FLAGS)]) == 2
    assert not out.exists() and not out.with_name("out.partial").exists()
    captured = capsys.readouterr()
    assert captured.out == "" and "Traceback" not in captured.err
    return captured.err


def edit(path, change) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def steps(path) -> list:
    return json.loads(path.read_text())["steps"]


@pytest.mark.parametrize(
    "flags, words",
    [
        ([], "checkpoint holds neither fps nor joint names"),
        (["--fps", "30"], "holds neither fps nor joint names"),
        (["--joints", "a,b,c,d,e,f"], "--joints without --fps"),
        (["--fps", "fast", "--joints", "a"], "--fps: invalid float value: 'fast'"),
        (["--fps", "-1", "--joints", "a,b,c,d,e,f"], "--fps is -1, want Hz above 0"),
        (["--fps", "nan", "--joints", "a,b,c,d,e,f"], "--fps is nan"),
        (["--fps", "30", "--joints", "a,b"], "2 names for the action (a, b), but the checkpoint's action has 6 values"),
        (["--fps", "30", "--joints", "a,b,c,d,e,e"], "'e' more than once"),
        (["--fps", "30", "--joints", "a,,c,d,e,f"], "want names separated by commas"),
        ([*FLAGS, "--units", "degrees,range_0_100"], "--units has 2 units, want one for all or one for each"),
        ([*FLAGS, "--units", "percent"], "--units has 'percent', want degrees, range_0_100, range_m100_100, m/s, deg/s"),
        ([*FLAGS, "--units", "degrees\nrange_0_100"], "--units has 'degrees\\nrange_0_100', want degrees"),
        (["--fps", "30", "--joints", "a,b,c,d\ne,e,f"], "names hold 'd\\ne', want names of one line without control characters"),
        (["--fps", "30", "--joints", "a,b,c\x1b[2J,d,e,f"], "names hold 'c\\x1b[2J', want names of one line"),
        ([*FLAGS, "--cameras", "front"], "want NAME=HEIGHTxWIDTH"),
        ([*FLAGS, "--cameras", "front=0x96"], "want NAME=HEIGHTxWIDTH"),
        ([*FLAGS, "--cameras", "front:96x128"], "got 'front:96x128', want NAME=HEIGHTxWIDTH such as front=480x640 (height first)"),
        ([*FLAGS, "--cameras", "front=96,128"], "got 'front=96', want NAME=HEIGHTxWIDTH"),
        ([*FLAGS, "--cameras", "front=96x128,front=96x128"], "each camera once"),
        ([*FLAGS, "--cameras", ""], "got '', want NAME=HEIGHTxWIDTH"),
        ([*FLAGS, "--cameras", "observation.images.front=96x128"], "--cameras names observation.images.front, but this policy has front, wrist: want these names"),
        ([*FLAGS, "--cameras", "wrist=none"], "wrist is missing, but a policy of type act needs every camera"),
        ([*FLAGS, "--cameras", "side=96x128"], "--cameras names side, but this policy has front, wrist"),
        ([*FLAGS, "--steps", "-1"], "--steps is -1, want 1 to 1000"),
        ([*FLAGS, "--steps", "4"], "--steps is 4, but act does not denoise"),
        ([*FLAGS, "--form", "split"], "--form is split, but act does not denoise"),
        ([*FLAGS, "--vlm", "smolvlm2"], "--vlm is smolvlm2, but act has no language model: leave it out"),
        ([*FLAGS, "--dtype", "bf16"], "no weight of this policy that can be stored so has 64 KiB or more: leave it out"),
        ([*FLAGS, "--dtype", "int8"], "invalid choice: 'int8'"),
        ([*FLAGS, "--speed", "9"], "unrecognized arguments: --speed 9"),
        ([*FLAGS, "--fps", "50"], "argument --fps: is given more than once, want it once"),
        ([*FLAGS, "--units=degrees", "--units", "degrees"], "argument --units: is given more than once"),
        ([*FLAGS, "--cameras", "front=96x128", "--cameras", "wrist=64x96"], "argument --cameras: is given more than once"),
        ([*FLAGS, "--dataset-info", "info.json"], "both --dataset-info and --joints"),
        (["--dataset-info", "nowhere/info.json"], "nowhere/info.json is not there: --dataset-info wants the file meta/info.json of the data set"),
    ],
)
def test_flags(act, capsys, tmp_path, flags, words):
    assert main([str(act), str(tmp_path / "out"), *flags]) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part, most", [("_fill", 0), ("_fill", 64), ("_fill", 1 << 16), ("golden_sets", 4096), ("_texts", 64)])
def test_full_disk(act, tmp_path, part, most):
    """A failed write, by torch, onnx, safetensors or our own code, leaves no file. The limit simulates a full disk: the
    kernel refuses the same writes."""

    def export() -> int:
        """Exports in a process of its own. From the function `part` of bundle.py on, its files cannot grow beyond `most` bytes."""
        rest = getattr(bundle, part)

        def full(*args):
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            return rest(*args)

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        setattr(bundle, part, full)
        return main([str(act), str(tmp_path / "out"), *FLAGS])

    status, said = forked.run(export)
    assert status == 1, said
    last = said.splitlines()[-1]
    assert "nothing was written" in last and "config.json" not in last and "Traceback" not in said, said
    assert list(tmp_path.iterdir()) == []


def test_existing_out_is_kept(act, capsys, tmp_path):
    (tmp_path / "out").mkdir()
    assert main([str(act), str(tmp_path / "out"), *FLAGS]) == 2
    assert "exists already" in capsys.readouterr().err


def test_no_folder(capsys, tmp_path):
    assert "is not a folder: want a LeRobot checkpoint on this machine" in refused(capsys, tmp_path / "lerobot" / "act")


def test_what_is_given_instead_of_a_checkpoint(act, act_bundle, tmp_path, capsys, monkeypatch):
    training, data = tmp_path / "train", tmp_path / "data"
    for step in ("000100", "000200"):
        shutil.copytree(act, training / "checkpoints" / step / "pretrained_model")
    (data / "meta").mkdir(parents=True)
    (data / "meta" / "info.json").write_text("{}")
    newest = training / "checkpoints" / "000200" / "pretrained_model"
    monkeypatch.chdir(tmp_path)
    for given, words in [
        (training, f"{training} holds checkpoints and is none: want {newest}\n"),
        (training / "checkpoints", f"want {newest}\n"),
        (newest.parent, f"want {newest}\n"),
        (data, f"{data} is a data set, not a checkpoint: want what was trained on it (outputs/train/NAME/checkpoints/last/pretrained_model), with --dataset-info {data / 'meta' / 'info.json'}\n"),
        (act_bundle, f"{act_bundle} is a bundle already"),
        (act / "config.json", f"is a file: want the checkpoint's folder, {act}\n"),
        ("me/act_pick", "me/act_pick is not a folder: want a LeRobot checkpoint on this machine (outputs/train/NAME/checkpoints/last/pretrained_model); if it is a name on the hub: `hf download me/act_pick --local-dir act_pick`, then give act_pick\n"),
        (tmp_path, "has no config.json: want a checkpoint folder"),
    ]:
        assert main([str(given), str(tmp_path / "out"), *FLAGS]) == 2
        said = capsys.readouterr().err
        assert words in said and said.count("\n") == 1, said
    (training / "checkpoints" / "last").symlink_to("000100")
    assert main([str(training), str(tmp_path / "out"), *FLAGS]) == 2
    assert f"want {training}/checkpoints/last/pretrained_model\n" in capsys.readouterr().err
    assert main([str(act), str(tmp_path / "out"), "--dataset-info", str(data)]) == 2
    assert f"{data} is a folder: --dataset-info wants the file meta/info.json of the data set that the policy was trained on, such as {data / 'meta' / 'info.json'}\n" in capsys.readouterr().err


def test_a_camera_that_would_be_two(copy, capsys):
    edit(copy / PRE, per_step("rename_map", lambda m: {"observation.images.front": "observation.images.wrist"}))
    assert "so that the robot's camera front would be two of the policy's: want another name" in refused(capsys, copy)


def test_cameras_that_lerobot_renames_otherwise(copy, capsys):
    edit(copy / PRE, per_step("rename_map", lambda m: {"front_cam": "observation.images.front"}))
    assert "write observation.images.front_cam into rename_map" in refused(capsys, copy)
    edit(copy / PRE, per_step("rename_map", lambda m: {"observation.images.a": "observation.images.front", "observation.images.b": "observation.images.front"}))
    checkpoint = Checkpoint(copy)
    assert [camera.name for camera in checkpoint.cameras({})] == ["b", "wrist"]
    assert "observation.images.a and observation.images.b to observation.images.front" in "".join(checkpoint.warnings)


def test_cameras_of_two_sizes(tmp_path, capsys):
    checkpoint = checkpoints.diffusion(tmp_path / "diffusion", resize_shape=(48, 64))
    assert "front=72x96, wrist=48x64: Diffusion takes pictures of one size" in refused(capsys, checkpoint, *FLAGS, "--cameras", "wrist=48x64")


@pytest.mark.parametrize("config, size, words", [(dict(crop_shape=(60, 60)), (144, 192), "it sees the middle 60x60"), (dict(resize_shape=(48, 64)), (96, 96), "distorts it otherwise"), (dict(resize_shape=(48, 64)), (144, 192), "")])
def test_pictures_that_show_another_part_or_shape(tmp_path, config, size, words):
    checkpoint = Checkpoint(checkpoints.diffusion(tmp_path / "diffusion", {"top": (72, 96)}, **config))
    family_of("diffusion")(checkpoint, Options(fps=30, cameras={"top": size}))
    assert [words in text for text in checkpoint.warnings if "--cameras" in text] == ([True] if words else [])


def test_height_comes_first(act, capsys):
    """A warning names swapped height and width, because all other tools of the project write the width first."""
    chosen = Options(fps=30, cameras={"front": (128, 96)})
    assert ["--cameras front=128x96 is 128 high and 96 wide, the checkpoint's pictures are 96 high and 128 wide: if the robot's are too, write front=96x128"] == bundle.warn(family_of("act")(Checkpoint(act), chosen))
    assert bundle.warn(family_of("act")(Checkpoint(act), Options(fps=30, cameras={"front": (192, 256)}))) == []


def test_not_json(copy, capsys):
    (copy / "config.json").write_text("{")
    assert "config.json" in refused(capsys, copy)


def test_unknown_policy(copy, capsys):
    edit(copy / "config.json", lambda c: c.update(type="tdmpc"))
    assert "the policy is 'tdmpc', this exporter knows act, diffusion" in (said := refused(capsys, copy)) and "model.runtime lerobot" in said


def test_unknown_step(copy, capsys):
    edit(copy / PRE, lambda c: c["steps"].insert(1, {"registry_name": "xvla_image_scale", "config": {}}))
    assert "step 1 is 'xvla_image_scale', which this exporter does not know" in refused(capsys, copy)


def test_step_without_a_registry_name(copy, capsys):
    edit(copy / PRE, lambda c: c["steps"].append({"class": "my_robot.steps.Blur", "config": {}}))
    assert "step 4 is 'my_robot.steps.Blur'" in refused(capsys, copy)


def test_unknown_key_of_a_known_step(copy, capsys):
    edit(copy / PRE, lambda c: c["steps"][3]["config"].update(clip=True))
    assert "(normalizer_processor) has clip, which this exporter does not know" in refused(capsys, copy)


def test_step_that_casts(copy, capsys):
    edit(copy / PRE, lambda c: c["steps"][2]["config"].update(float_dtype="bfloat16"))
    assert "casts to bfloat16, want float32" in refused(capsys, copy)


def test_missing_step(copy, capsys):
    edit(copy / POST, lambda c: c["steps"].pop(0))
    assert "policy_postprocessor.json has the steps none, want unnormalizer_processor for act" in refused(capsys, copy)


def test_step_of_another_family(copy, capsys):
    edit(copy / PRE, lambda c: c["steps"].append({"registry_name": "relative_actions_processor", "config": {"enabled": True}}))
    assert "relative_actions_processor, want" in refused(capsys, copy)


def test_order_of_steps(copy, capsys):
    edit(copy / PRE, lambda c: (c["steps"][0]["config"].update(rename_map={"observation.images.a": "observation.images.front"}), c["steps"].append(c["steps"].pop(0))))
    assert "normalizer_processor -> rename_observations_processor, want rename_observations_processor -> normalizer_processor" in refused(capsys, copy)


def test_processors_that_do_not_undo_each_other(copy, capsys):
    path = copy / steps(copy / POST)[0]["state_file"]
    state = load_file(path)
    save_file({**state, "action.std": 2 * state["action.std"]}, path)
    assert "want the same in both, as training had it" in refused(capsys, copy)


def test_statistics_absent(copy, capsys):
    (copy / steps(copy / PRE)[3]["state_file"]).unlink()
    assert "copy the whole checkpoint folder" in refused(capsys, copy)


def test_statistics_lack_what_the_mode_needs(copy, capsys):
    edit(copy / POST, lambda c: c["steps"][0]["config"]["norm_map"].update(ACTION="QUANTILES"))
    path = copy / steps(copy / POST)[0]["state_file"]
    save_file({k: v for k, v in load_file(path).items() if not k.endswith(("q01", "q99"))}, path)
    assert "action is normalised by QUANTILES but its statistics lack q01" in refused(capsys, copy)


def test_checkpoint_from_before_the_processors(copy, capsys):
    for path in copy.glob("policy_*"):
        path.unlink()
    weights = load_file(copy / "model.safetensors")
    save_file({**weights, "normalize_inputs.buffer_observation_state.mean": torch.zeros(6)}, copy / "model.safetensors")
    text = refused(capsys, copy)
    assert f"lerobot.processor.migrate_policy_normalization --pretrained-path {copy}" in text
    assert "normalize_inputs.buffer_observation_state.mean" in text


def test_the_migration_that_is_told_works(act, act_bundle, copy, capsys, tmp_path):
    """A checkpoint of LeRobot before 0.4: statistics among the weights, no processors. The command in the refusal migrates
    it to a checkpoint with the same graph and golden sets as the original."""
    weights = load_file(copy / "model.safetensors")
    for path in copy.glob("policy_*.safetensors"):
        side = "unnormalize_outputs" if "unnormalizer" in path.name else "normalize_inputs"
        for name, value in load_file(path).items():
            feature, _, kind = name.rpartition(".")
            if kind in ("mean", "std") and (side == "normalize_inputs" or feature == "action"):
                weights[f"{'normalize_targets' if side == 'normalize_inputs' and feature == 'action' else side}.buffer_{feature.replace('.', '_')}.{kind}"] = value
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    for path in copy.glob("policy_*"):
        path.unlink()
    command = refused(capsys, copy).split("`")[1]
    subprocess.run(command.split(), capture_output=True, timeout=600)  # offline it fails in its last step, the model card
    migrated = copy.with_name(copy.name + "_migrated")
    assert main([str(migrated), str(tmp_path / "out"), *FLAGS]) == 0
    for name in ("policy.onnx", "golden/b1_plain.safetensors", "golden/b4_plain.safetensors"):
        assert (tmp_path / "out" / name).read_bytes() == (act_bundle / name).read_bytes(), name


def test_weights_broken(copy, capsys):
    (copy / "model.safetensors").write_bytes(b"version https://git-lfs")
    assert "want a safetensors file" in refused(capsys, copy)


def test_weights_that_lack_a_tensor(copy, capsys):
    weights = load_file(copy / "model.safetensors")
    weights.pop("model.action_head.weight")
    save_file(weights, copy / "model.safetensors")
    assert "model.safetensors lacks model.action_head.weight" in refused(capsys, copy)


def test_weights_that_lerobot_did_not_load(act):
    """Loaded weights that differ from the file's are refused, because some policies' loaders go on after an error."""
    checkpoint = Checkpoint(act)
    policy = checkpoint.policy(pretrained_backbone_weights=None)
    checkpoint.compare(policy)
    with torch.no_grad():
        policy.model.action_head.bias[0] += 1e-3
    with pytest.raises(ExportError, match="differs from the loaded policy in model.action_head.bias"):
        checkpoint.compare(policy)


def test_weights_of_another_shape(copy, capsys):
    weights = load_file(copy / "model.safetensors")
    weights["model.action_head.weight"] = torch.zeros(7, 64)
    save_file(weights, copy / "model.safetensors")
    assert "model.action_head.weight" in refused(capsys, copy)


def test_weights_with_one_too_many(copy, capsys):
    weights = load_file(copy / "model.safetensors")
    save_file({**weights, "model.more": torch.zeros(2)}, copy / "model.safetensors")
    assert "holds what the policy has not: model.more" in refused(capsys, copy)


def test_configuration_of_another_lerobot(copy, capsys):
    edit(copy / "config.json", lambda c: c.update(novelty=1))
    assert "config.json is not one that the installed LeRobot reads" in refused(capsys, copy)


def test_adapter(copy, capsys):
    (copy / "adapter_config.json").write_text("{}")
    assert "merge it into its base policy" in refused(capsys, copy)
    (copy / "adapter_config.json").unlink()
    edit(copy / "config.json", lambda c: c.update(use_peft=True))
    Checkpoint(copy)  # merged, with the adapter's configuration
    (copy / "model.safetensors").unlink()
    assert f"copy policy_* of {copy}" in refused(capsys, copy)


def test_weights_without_processors(copy, capsys):
    for path in copy.glob("policy_*"):
        path.unlink()
    assert "holds no statistics: a policy's save_pretrained writes no processors" in refused(capsys, copy)


def test_inputs_that_are_not_served(copy, capsys):
    edit(copy / "config.json", lambda c: c["input_features"].update({"observation.environment_state": {"type": "ENV", "shape": [4]}}))
    assert "observation.environment_state (ENV)" in refused(capsys, copy)


def test_data_set_without_names(act, capsys, tmp_path):
    info = tmp_path / "info.json"
    info.write_text(json.dumps({"fps": 30, "features": {"action": {"names": None}}}))
    assert main([str(act), str(tmp_path / "out"), "--dataset-info", str(info)]) == 2
    assert "features['action'].names is None, want a list of joint names" in capsys.readouterr().err


def test_data_set_of_another_rate(act, capsys, tmp_path):
    info = tmp_path / "info.json"
    info.write_text(json.dumps({"fps": 50, "features": {k: {"names": JOINTS} for k in ("action", "observation.state")}}))
    assert main([str(act), str(tmp_path / "out"), "--dataset-info", str(info), "--fps", "30"]) == 2
    assert f"--fps is 30, but {info} says 50: a policy runs at the rate that it was recorded at, leave --fps out" in capsys.readouterr().err


@pytest.mark.parametrize("names, scale, words", [(JOINTS[::-1], 1, " of observation.state was around "), (JOINTS, 0.01, "shoulder_pan.pos of observation.state was around ")])
def test_data_set_of_another_robot(act, capsys, tmp_path, names, scale, words):
    """A data set whose statistics alone differ, by another order or unit of the joints, is refused."""
    info, own = tmp_path / "info.json", checkpoints.stats([])
    info.write_text(json.dumps({"fps": 30, "features": {k: {"names": JOINTS} for k in ("action", "observation.state")}}))
    (tmp_path / "stats.json").write_text(json.dumps({k: {n: v.tolist() for n, v in s.items()} for k, s in own.items()}))
    family = family_of("act")(Checkpoint(act), Options(fps=30, action_names=JOINTS, state_names=JOINTS))
    dataset.compare(family, info)  # the policy's own data set is accepted
    capsys.readouterr()
    order = [JOINTS.index(n) for n in names]
    (tmp_path / "stats.json").write_text(json.dumps({k: {n: (scale * v[order]).tolist() for n, v in s.items()} for k, s in own.items()}))
    said = refused(capsys, act, "--dataset-info", str(info))
    assert words in said and "another order of joints; want the meta/info.json of the data set that the policy was trained on" in said


def test_weights_in_another_form(copy, capsys):
    (copy / "model.safetensors").rename(copy / "model-00001-of-00002.safetensors")
    assert "model-00001-of-00002.safetensors is another form of them: load the policy with LeRobot and save_pretrained it" in refused(capsys, copy)


@pytest.mark.parametrize(
    "file, change",
    [
        ("config.json", lambda c: c.update(input_features=[1])),
        ("config.json", lambda c: c["input_features"]["observation.state"].update(shape=[])),
        (PRE, lambda c: c.update(steps={"a": 1})),
        (PRE, lambda c: c["steps"][0].update(config=[1])),
        (PRE, lambda c: c["steps"][-1].update(state_file=7)),
    ],
)
def test_values_of_another_kind(capsys, copy, file, change):
    edit(copy / file, change)
    said = refused(capsys, copy)
    assert said.startswith("edgert-export: ") and len(said.splitlines()) == 1


def test_weights_that_are_not_finite(capsys, copy):
    weights = load_file(copy / "model.safetensors")
    name = sorted(weights)[3]
    weights[name].view(-1)[0] = float("nan")
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    assert f"not finite in {name}" in refused(capsys, copy)


def test_statistics_that_are_not_finite(capsys, copy):
    for path in copy.glob("*normalizer*.safetensors"):
        state = load_file(path)
        state["observation.state.mean"][0] = float("inf")
        save_file(state, path)
    assert "statistics of observation.state have values that are not finite" in refused(capsys, copy)


def states(folder, change) -> None:
    """Rewrites the statistics of both processors."""
    for path in folder.glob("policy_*normalizer*.safetensors"):
        save_file({k: v.contiguous() for k, v in change(dict(load_file(path))).items()}, path)


def without(*begins: str):
    return lambda s: {k: v for k, v in s.items() if not k.startswith(begins)} or {"count": torch.zeros(1)}


def under_another_name(feature: str):
    """As in smolvla_base: the statistics of its training data sets, under their names."""
    return lambda s: {(f"so100.buffer.{k}" if k.startswith(feature + ".") else k): v for k, v in s.items()}


def per_step(key: str, change):
    """Changes a key in the configuration of every step that has it."""
    return lambda c: [step["config"].update({key: change(step["config"][key])}) for step in c["steps"] if key in (step.get("config") or {})]


@pytest.mark.parametrize("feature", ["action", "observation.state"])
@pytest.mark.parametrize(
    "change, found",
    [
        (under_another_name, "they hold so100.buffer."),
        (lambda f: without(f + "."), "they hold "),
        (lambda f: without(""), "they hold count"),
        (lambda f: lambda s: {(k + ".mean" if k.startswith(f + ".") else k): v for k, v in s.items()}, "they hold "),
        (lambda f: lambda s: {k: v for k, v in s.items() if not k.startswith(f + ".")} | {f"{f}.count": torch.ones(1)}, f"they hold "),
    ],
)
def test_statistics_that_are_asked_for_and_absent(copy, capsys, feature, change, found):
    """Such a checkpoint is refused: LeRobot passes the values unchanged, so the arm would get z-scores as degrees."""
    states(copy, change(feature))
    said = refused(capsys, copy)
    first = "observation.state" if change(feature)({"action.mean": torch.ones(1), "observation.state.mean": torch.ones(1)}).keys() == {"count"} else feature
    assert f"normalises {first} by MEAN_STD, but its statistics lack {first}.mean and {first}.std: {found}" in said, said
    assert "Cure: train the policy on your robot's data set" in said and "fault" not in said and len(said.splitlines()) == 1


def test_statistics_of_another_name_come_first_in_the_list(copy, capsys):
    states(copy, under_another_name("action"))
    assert "they hold so100.buffer.action.max, so100.buffer.action.mean, so100.buffer.action.min" in refused(capsys, copy)


def test_no_state_file(copy, capsys):
    for path in (PRE, POST):
        edit(copy / path, lambda c: [step.pop("state_file", None) for step in c["steps"]])
    said = refused(capsys, copy)
    assert "policy_preprocessor.json, step 3 (normalizer_processor), which names no state_file, normalises observation.state" in said and "they are empty" in said


@pytest.mark.parametrize("key, kind, words", [("STATE", "observation.state", "has no entry for STATE in its norm_map (VISUAL, ACTION)"), ("ACTION", "action", "has no entry for ACTION in its norm_map (VISUAL, STATE)")])
def test_a_mode_that_is_absent(copy, capsys, key, kind, words):
    """A kind that norm_map lacks is refused, because LeRobot takes IDENTITY for it."""
    for path in (PRE, POST):
        edit(copy / path, per_step("norm_map", lambda m: {k: v for k, v in m.items() if k != key}))
    said = refused(capsys, copy)
    assert words in said and f"LeRobot leaves {kind} unchanged, but config.json normalises {key} by MEAN_STD" in said


@pytest.mark.parametrize("feature", ["action", "observation.state"])
def test_a_feature_that_a_step_does_not_list(copy, capsys, feature):
    for path in (PRE, POST):
        edit(copy / path, per_step("features", lambda f: {k: v for k, v in f.items() if k != feature}))
    assert f"does not list {feature} among its features" in refused(capsys, copy)


def test_empty_features(copy, capsys):
    edit(copy / PRE, per_step("features", lambda f: {}))
    assert "does not list observation.state among its features (none)" in refused(capsys, copy)


def changed(name: str, change):
    return lambda s: s | {name: change(s[name])}


@pytest.mark.parametrize(
    "change, words",
    [
        (changed("action.mean", lambda v: torch.cat([v, v[:1]])), "the statistics of action have mean in the shape [7], want [6]"),
        (changed("action.std", lambda v: v.mean()), "the statistics of action have std in the shape [], want [6]"),
        (changed("action.std", lambda v: v[:1]), "the statistics of action have std in the shape [1], want [6]"),
        (changed("observation.state.mean", lambda v: v[:, None]), "the statistics of observation.state have mean in the shape [6, 1], want [6]"),
        (changed("observation.state.mean", lambda v: v[:0]), "in the shape [0], want [6]"),
        (changed("observation.images.front.mean", lambda v: v[:2]), "the statistics of observation.images.front have mean in the shape [2, 1, 1], want [3, 1, 1]"),
        (changed("action.mean", lambda v: v * float("nan")), "statistics of action have values that are not finite (mean)"),
        (changed("action.std", lambda v: -v), "the statistics of action have a std below 0"),
        (changed("observation.state.std", lambda v: torch.cat([v[:5], -v[5:]])), "at index 5): no data has one"),
        (changed("action.std", lambda v: 0 * v), "the statistics of action have no width"),
        (changed("observation.state.std", lambda v: 0 * v), "the statistics of observation.state have no width"),
    ],
)
def test_statistics_that_no_data_has(copy, capsys, change, words):
    states(copy, change)
    said = refused(capsys, copy)
    assert words in said and "fault" not in said and len(said.splitlines()) == 1, said


@pytest.mark.parametrize("mode, low, high", [("MIN_MAX", "min", "max"), ("QUANTILES", "q01", "q99"), ("QUANTILE10", "q10", "q90")])
@pytest.mark.parametrize("feature, kind", [("action", "ACTION"), ("observation.state", "STATE")])
def test_bounds_in_the_wrong_order(copy, capsys, mode, low, high, feature, kind):
    for path in (PRE, POST):
        edit(copy / path, per_step("norm_map", lambda m: m | {kind: mode}))
    swap = lambda s: s | {f"{feature}.{low}": s[f"{feature}.{high}"].clone(), f"{feature}.{high}": s[f"{feature}.{low}"].clone()}  # noqa: E731
    states(copy, swap)
    assert f"the statistics of {feature} have {low} above {high}" in refused(capsys, copy)
    states(copy, lambda s: s | {f"{feature}.{low}": s[f"{feature}.{high}"].clone()})
    assert f"the statistics of {feature} have no width" in refused(capsys, copy)


def test_notes_of_what_lerobot_leaves_out(copy):
    """Pictures without statistics, and contradictions in statistics that the mode does not need, are exported with a warning."""
    states(copy, lambda s: without("observation.images.wrist.")(s) | {"action.min": s["action.max"].clone(), "action.max": s["action.min"].clone(), "observation.state.min": s["observation.state.mean"] + 1})
    checkpoint = Checkpoint(copy)
    family = family_of("act")(checkpoint, Options(fps=30))
    said = "\n".join(checkpoint.warnings)
    assert "normalises observation.images.wrist by MEAN_STD, but its statistics lack observation.images.wrist.mean" in said
    assert "the statistics of action have min above max: the bundle has no limits of them" in said
    assert "the statistics of observation.state have a mean of" in said and "they are not of one data set" in said
    assert "action_limits" not in bundle.manifest(family)


@pytest.mark.parametrize("change, flat", [(lambda v: 0 * v, True), (lambda v: torch.cat([v[:2], 0 * v[2:]]), True), (lambda v: v / 100, False)])
def test_pictures_without_width(copy, change, flat):
    states(copy, changed("observation.images.front.std", change))
    checkpoint = Checkpoint(copy)
    checkpoint.scale("observation.images.front")
    assert ("the statistics of observation.images.front have no width in a channel" in "\n".join(checkpoint.warnings)) == flat


def test_pictures_of_0_to_255(copy):
    states(copy, changed("observation.images.front.mean", lambda v: 255 * v))
    checkpoint = Checkpoint(copy)
    checkpoint.scale("observation.images.front"), checkpoint.scale("observation.images.wrist")
    assert ["front" in text for text in checkpoint.warnings if "values up to 255" in text] == [True]


def test_a_clean_checkpoint_has_no_notes(act):
    checkpoint = Checkpoint(act)
    family_of("act")(checkpoint, Options(fps=30))
    assert list(checkpoint.warnings) == []


def test_placeholders_for_statistics(copy):
    states(copy, lambda s: s | {"action.mean": 0 * s["action.mean"], "action.std": 0 * s["action.std"] + 1})
    checkpoint = Checkpoint(copy)
    checkpoint.scale("action")
    assert "mean 0 and std 1 throughout" in "\n".join(checkpoint.warnings)


def test_a_mode_that_config_json_does_not_have(copy):
    edit(copy / PRE, per_step("norm_map", lambda m: m | {"STATE": "MIN_MAX"}))
    edit(copy / PRE, lambda c: c["steps"][3]["config"].update(normalize_observation_keys=["observation.images.front"]))
    checkpoint = Checkpoint(copy)
    assert checkpoint.scale("observation.state").mode == "IDENTITY"
    said = "\n".join(checkpoint.warnings)
    assert "normalises observation.state by MIN_MAX, config.json says MEAN_STD" in said
    assert "normalises only observation.images.front (normalize_observation_keys): observation.state is left unchanged" in said


def test_temporal_ensemble_is_said(copy):
    edit(copy / "config.json", lambda c: c.update(temporal_ensemble_coeff=0.01, n_action_steps=1))
    checkpoint = Checkpoint(copy)
    family_of("act")(checkpoint, Options(fps=30))
    said = "\n".join(checkpoint.warnings)
    assert "temporal_ensemble_coeff is 0.01" in said and "`edge-rt --schedule async --chunk-size-threshold 1 --similarity 0 --aggregate temporal:-0.01`" in said


@pytest.mark.parametrize("config, words", [(dict(noise_scheduler_type="DDPM", num_inference_steps=None), "num_inference_steps is absent, so LeRobot takes all 100"), (dict(noise_scheduler_type="DDPM", num_inference_steps=20), "num_inference_steps is 20")])
def test_another_sampler_is_said(tmp_path, config, words):
    checkpoint = Checkpoint(checkpoints.diffusion(tmp_path / "checkpoint", **config))
    family_of("diffusion")(checkpoint, Options(fps=30))
    said = "\n".join(checkpoint.warnings)
    assert words in said and "DDIM, eta 0, in 10 steps (the exporter's default)" in said


@pytest.mark.parametrize(
    "change, words",
    [
        (dict(type=None), 'names no policy type (type is null): want the config.json of a LeRobot policy, which has one such as "act"'),
        (dict(type=None, model_type="molmoact2"), "(type is null) but model_type 'molmoact2': it is a model of the transformers library"),
        (dict(type=3), "names no policy type (type is 3)"),
        (dict(type=""), 'names no policy type (type is "")'),
        (dict(type=["act"]), 'names no policy type (type is ["act"])'),
        (dict(input_features=[1]), "input_features is [1], want a JSON object"),
        (dict(output_features="action"), 'output_features is "action", want a JSON object'),
        (dict(normalization_mapping=["MEAN_STD"]), 'normalization_mapping is ["MEAN_STD"], want a JSON object'),
    ],
)
def test_configuration_of_another_kind(copy, capsys, change, words):
    edit(copy / "config.json", lambda c: c.update(change))
    said = refused(capsys, copy)
    assert words in said and "fault of edgert-export" not in said, said


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda c: c.update(steps={"a": 1}), 'steps is {"a": 1}, want a list'),
        (lambda c: c["steps"].insert(0, 7), "step 0 is 7, want a JSON object"),
        (lambda c: c["steps"][0].update(config=[1]), "step 0 (rename_observations_processor) config is [1], want a JSON object"),
        (lambda c: c["steps"][0]["config"].update(rename_map=["a"]), 'rename_map is ["a"], want a JSON object'),
        (lambda c: c["steps"][3]["config"].update(norm_map=5), "norm_map is 5, want a JSON object"),
        (lambda c: c["steps"][3]["config"].update(eps="small"), 'has eps "small", want a small number'),
        (lambda c: c["steps"][3].update(state_file=7), "step 3 has state_file 7, want the name of a file"),
    ],
)
def test_steps_of_another_kind(copy, capsys, change, words):
    edit(copy / PRE, change)
    said = refused(capsys, copy)
    assert words in said and "fault of edgert-export" not in said, said


def test_lerobots_own_error_is_lerobots(act, capsys, tmp_path, monkeypatch):
    from lerobot.policies.act.modeling_act import ACTPolicy

    def fails(*_):
        raise RuntimeError("expected 512 channels")

    monkeypatch.setattr(ACTPolicy, "predict_action_chunk", fails)
    assert main([str(act), str(tmp_path / "out"), *FLAGS]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "itself fails on this checkpoint while it computes a chunk (RuntimeError: expected 512 channels)" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["{", "[]", '{"dataset": [{"repo_id": "a"}], "policy": 3}'])
def test_train_config_is_only_a_hint(copy, capsys, text):
    (copy / "train_config.json").write_text(text)
    assert "checkpoint holds neither fps nor joint names: want --dataset-info with the meta/info.json of the training data, or" in refused(capsys, copy, "--dtype", "fp32")
