"""The facts that a checkpoint lacks: the control rate and the joints' names."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from .checkpoint import ACTION, STATE, Checkpoint, read_json
from .errors import ExportError
from .golden import spread
from .options import Options

MAX_FPS = 10_000

# LeRobot's names of the units of a joint, and the units of a base's velocities; robots announce theirs by the same names.
UNITS = ("degrees", "range_0_100", "range_m100_100", "m/s", "deg/s")


def complete(options: Options, checkpoint: Checkpoint, info: Path | None, joints: list[str]) -> None:
    """Fills fps and names of `options` from the data set's meta/info.json, or from the
    flags, and checks them against the checkpoint's sizes."""
    if info is not None:
        if not info.is_file():
            raise ExportError(f"{info} is {'a folder' if info.is_dir() else 'not there'}: --dataset-info wants the file meta/info.json of the data set that the policy was trained on{_hint(checkpoint)}, such as {info / 'meta' / 'info.json' if (info / 'meta' / 'info.json').is_file() else '~/.cache/huggingface/lerobot/USER/NAME/meta/info.json'}")
        _from_info(options, read_json(info), info)
    elif joints:
        options.action_names = list(joints)
        options.state_names = list(joints)
    else:
        raise ExportError(f"a checkpoint holds neither fps nor joint names: want --dataset-info with the meta/info.json of the training data{_hint(checkpoint)}, or --fps and --joints")
    if not (options.fps > 0 and math.isfinite(options.fps) and options.fps <= MAX_FPS):
        raise ExportError(f"fps is {options.fps:g}, want the rate in Hz at which the training data was recorded, above 0 and at most {MAX_FPS}: --fps or a meta/info.json that says it")
    for vector, names, dim in (("action", options.action_names, checkpoint.action_dim()), ("state", options.state_names, checkpoint.state_dim())):
        if len(names) != dim:
            raise ExportError(f"{len(names)} names for the {vector} ({', '.join(names)}), but the checkpoint's {vector} has {dim} values: want one name for each, in the vector's order{'' if info else '; where action and state differ, use --dataset-info'}")
        if twice := sorted({n for n in names if not n or names.count(n) > 1}):
            raise ExportError(f"the {vector}'s names hold {twice[0]!r} more than once or empty, want names that differ")
        if odd := [n for n in names if not n.isprintable()]:
            raise ExportError(f"the {vector}'s names hold {odd[0]!r}, want names of one line without control characters: a robot's joint has none")
    _units(options)


def compare(family, info: Path) -> None:
    """Refuses a data set that the policy cannot have been trained on: its names or their order would be another robot's."""
    cure = "want the meta/info.json of the data set that the policy was trained on, or --fps and --joints"
    step = family.checkpoint.step("relative_actions_processor")
    if (own := step and step.config.get("action_names")) and list(own) != family.options.action_names:
        raise ExportError(f"{info} has the actions {', '.join(family.options.action_names)}, the checkpoint {', '.join(map(str, own))}: {cure}")
    try:
        stats = json.loads((info.parent / "stats.json").read_text())
        ranges = {f: [np.asarray(stats[f][k], float).reshape(-1) for k in ("min", "max")] for f in (STATE, ACTION)}
    except (OSError, ValueError, KeyError, TypeError):
        return  # older data sets have no such statistics
    for feature, scale, names in ((STATE, family.state_scale, family.options.state_names), (ACTION, family.action_scale, family.options.action_names)):
        low, high = ranges[feature]
        if not scale.stats or not len(low) == len(high) == len(names) or feature == ACTION and family.relative:
            continue
        mean, slack = spread(scale, len(names))[0], 0.1 * (high - low) + 1e-3 * (1 + abs(low))
        for i in np.flatnonzero((mean < low - slack) | (mean > high + slack)):
            raise ExportError(f"{names[i]} of {feature} was around {mean[i]:g} in training, but is {low[i]:g} to {high[i]:g} in {info.parent / 'stats.json'}: another data set, or one with other units or another order of joints; {cure}")


def _hint(checkpoint: Checkpoint) -> str:
    repo = checkpoint.training("dataset", "repo_id")
    return f" ({repo}, says train_config.json)" if repo else ""


def _from_info(options: Options, info: dict[str, Any], path: Path) -> None:
    features = info.get("features")
    if not isinstance(features, dict) or not all(isinstance(f, dict) for f in features.values()):
        raise ExportError(f"{path} has no features, want the meta/info.json of a LeRobot data set")
    said = info.get("fps")
    fps = options.fps if said is None and options.fps else _number(said, path)
    if options.fps and options.fps != fps:
        raise ExportError(f"--fps is {options.fps:g}, but {path} says {fps:g}: a policy runs at the rate that it was recorded at, leave --fps out")
    options.fps = fps
    options.action_names = names_of(features, ACTION, path)
    options.state_names = names_of(features, STATE, path)


def _number(fps: Any, path: Path) -> float:
    if isinstance(fps, bool) or not isinstance(fps, (int, float)):
        raise ExportError(f"{path}: fps is {fps!r}, want a number of Hz")
    return float(fps)


def names_of(features: dict[str, Any], feature: str, path: Path) -> list[str]:
    """A feature's names: a list, or, in older data sets, lists under a group's name
    ({"motors": [...]})."""
    names = (features.get(feature) or {}).get("names")
    if isinstance(names, dict):
        groups = list(names.values())
        names = [n for g in groups for n in g] if all(isinstance(g, list) for g in groups) else list(names)
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise ExportError(f"{path}: features[{feature!r}].names is {names!r}, want a list of joint names; give --fps and --joints instead")
    return names


def _units(options: Options) -> None:
    for vector in ("action", "state"):
        names, units = getattr(options, f"{vector}_names"), getattr(options, f"{vector}_units")
        if len(units) == 1:
            units = units * len(names)
        if unknown := [u for u in units if u not in UNITS]:
            raise ExportError(f"--units has {unknown[0]!r}, want {', '.join(UNITS)}: a robot names its joints' units in these words")
        if units and len(units) != len(names):
            raise ExportError(f"--units has {len(units)} units, want one for all or one for each of the {vector}'s {len(names)} joints")
        setattr(options, f"{vector}_units", units)
