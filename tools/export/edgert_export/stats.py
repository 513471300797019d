"""Checks that a feature's statistics are present and plausible for a data set.

LeRobot passes values unchanged where statistics are absent, and uses present ones without a check: a policy then sends
its own units to the robot as degrees. The export is therefore stricter than LeRobot.
"""

import torch
from torch import Tensor

from .errors import ExportError
from .normalize import NEEDS

# The largest number of keys of a statistics file in a message.
LISTED = 12

# Statistics with one value per element of the feature; ORDER is ascending.
ORDER = ("min", "q01", "q10", "q50", "q90", "q99", "max")
VECTORS = ("mean", "std", *ORDER)

# Rounding of float32 sums over many frames: a mean may leave the range by this share of it.
ROUNDING = 1e-3

AGAIN = "compute the data set's statistics again and save the checkpoint with them"


def absent(feature: str, mode: str, where: str, keys: list[str]) -> str:
    """The message for a feature that is to be normalised and has no statistics."""
    needs = " and ".join(f"{feature}.{n}" for n in NEEDS.get(mode, ("mean", "std")))
    # The feature's own statistics under another name come first (so100.buffer.action.mean).
    near = sorted(keys, key=lambda k: (feature not in k, feature.rpartition(".")[2] not in k, k))
    have = ", ".join(near[:LISTED]) + (f" and {len(keys) - LISTED} more" if len(keys) > LISTED else "")
    found = f"hold {have}" if keys else "are empty"
    return f"{where}, normalises {feature} by {mode}, but its statistics lack {needs}: they {found}. LeRobot leaves {feature} unchanged then"


def cure(feature: str) -> str:
    return f"train the policy on your robot's data set (a base model has no statistics of your robot), or save the processors with the data set's statistics under the name {feature} (make_pre_post_processors(..., dataset_stats=...))"


def usable(feature: str, mode: str, stats: dict[str, Tensor], shape: tuple[int, ...], visual: bool, note) -> dict[str, Tensor]:
    """The usable statistics. Raises ExportError for wrong ones that the mode needs, and passes a text to `note` for wrong
    ones that it does not need."""
    needed = NEEDS.get(mode, ())
    good: dict[str, Tensor] = {}
    for name, value in stats.items():
        if name not in VECTORS:
            continue
        if not value.is_floating_point():
            value = value.to(torch.float32)
        if not torch.isfinite(value).all():
            raise ExportError(f"the statistics of {feature} have values that are not finite ({', '.join(n for n, v in stats.items() if not torch.isfinite(v).all())}): {AGAIN}")
        if fits(value, shape, visual):
            good[name] = value.reshape(-1, 1, 1) if visual and value.ndim == 1 else value
        elif name in needed:
            raise ExportError(f"the statistics of {feature} have {name} in the shape {list(value.shape)}, want {_wanted(shape, visual)}: they are of another robot or another policy; {AGAIN}")
        else:
            note(f"the statistics of {feature} have {name} in the shape {list(value.shape)}, want {_wanted(shape, visual)}: it is not used")
    if mode != "IDENTITY" and mode in NEEDS and all(n in good for n in needed):
        _sane(feature, mode, good, visual, note)
    _order(feature, needed, good, note)
    return good


def fits(value: Tensor, shape: tuple[int, ...], visual: bool) -> bool:
    """Whether a statistic has one value for each value of the feature, or for each channel of a picture."""
    if visual:
        return value.numel() in (1, shape[0]) and value.ndim <= 3 and (value.ndim < 2 or value.shape[-2:] == (1, 1))
    return value.ndim >= 1 and value.shape[-1] == shape[0] == value.numel()


def _wanted(shape: tuple[int, ...], visual: bool) -> str:
    return f"[{shape[0]}, 1, 1]" if visual else f"[{shape[0]}]"


def _sane(feature: str, mode: str, stats: dict[str, Tensor], visual: bool, note) -> None:
    """Refuses a scale that no data can have, and notes the scale of pictures that are all equal."""
    low, high = (stats[n].reshape(-1) for n in NEEDS[mode])
    first, second = NEEDS[mode]
    if mode == "MEAN_STD":
        if bad := (high < 0).nonzero().reshape(-1).tolist():
            raise ExportError(f"the statistics of {feature} have a std below 0 ({high[bad[0]]:g} at index {bad[0]}): no data has one; {AGAIN}")
        flat, still = bool((high == 0).any()), bool((high == 0).all())
    else:
        if bad := (low > high).nonzero().reshape(-1).tolist():
            raise ExportError(f"the statistics of {feature} have {first} above {second} ({low[bad[0]]:g} and {high[bad[0]]:g} at index {bad[0]}): the axis would be mirrored; {AGAIN}")
        flat, still = bool((low == high).any()), bool((low == high).all())
    if visual and float(max(low.abs().max(), high.abs().max())) > 2:
        note(f"the statistics of {feature} have {first} {low.tolist()} and {second} {high.tolist()}, but pictures are shares of full brightness, 0 to 1: they look like those of values up to 255, with which the policy sees almost nothing; {AGAIN}")
    if flat and visual:
        note(f"the statistics of {feature} have no width in a channel ({first} {low.tolist()}, {second} {high.tolist()}): the policy sees any other picture as one of huge values; {AGAIN}")
    if still and not visual:
        raise ExportError(f"the statistics of {feature} have no width ({first} {low.tolist()}, {second} {high.tolist()}): nothing moved in that data, or they are of one frame; {AGAIN}")


def _order(feature: str, needed: tuple[str, ...], stats: dict[str, Tensor], note) -> None:
    """Notes contradictions among the statistics, also those that the mode does not need, and removes a min above max."""
    if "min" in stats and "max" in stats and bool((stats["min"] > stats["max"]).any()):
        note(f"the statistics of {feature} have min above max: the bundle has no limits of them")
        for name in ("min", "max"):
            if name not in needed:
                del stats[name]
    have = [n for n in ORDER if n in stats]
    for low, high in zip(have, have[1:], strict=False):
        a, b = stats[low].reshape(-1), stats[high].reshape(-1)
        if a.numel() == b.numel() and bool((a > b + ROUNDING * (1 + b.abs())).any()):
            note(f"the statistics of {feature} have {low} above {high}: they are not of one data set")
    trio = [stats[n].numel() for n in ("mean", "min", "max") if n in stats]
    if len(trio) == 3 and len(set(trio)) == 1:
        mean, low, high = (stats[n].reshape(-1) for n in ("mean", "min", "max"))
        slack = ROUNDING * (1 + (high - low).abs())
        if out := ((mean < low - slack) | (mean > high + slack)).nonzero().reshape(-1).tolist():
            note(f"the statistics of {feature} have a mean of {mean[out[0]]:g} outside {low[out[0]]:g} to {high[out[0]]:g} at index {out[0]}: they are not of one data set")
    if "mean" in needed and all(n in stats for n in ("mean", "std")) and bool((stats["mean"] == 0).all()) and bool((stats["std"] == 1).all()):
        note(f"the statistics of {feature} are mean 0 and std 1 throughout, which changes nothing: they look like placeholders and not like a robot's data")
