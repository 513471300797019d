"""Writes the bundle: graph, golden sets, manifest, licence, origin and report."""

import contextlib
import fcntl
import json
import os
import shutil
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save

from . import VERSION, dataset, golden, licence, observations, timing, weights
from .checkpoint import ACTION, STATE, Checkpoint, lerobot_version, sha256
from .errors import ExportError
from .families import family_of
from .onnx_graph import NAMES, Runner, runner
from .options import Options
from .tracing import OPSET

# Rows of the parity check and of the golden sets.
PARITY_ROWS = 16
GOLDEN_ROWS = (1, 4)

NO_UNITS = "no --units: neither a checkpoint nor a data set holds the units of its joints, so the server takes robots with any; a robot in degrees and a policy trained in range_m100_100 then move wrongly. Give those of the robot that recorded the data (an SO arm: degrees since LeRobot 0.4.4, range_m100_100 before)"

# A joint whose deviation is below this share of its mean never moved: its smallest change
# becomes a huge number (MEAN_STD divides by the deviation).
CONSTANT = 1e-4


def say(text: str) -> None:
    import sys

    print(f"edgert-export: {text}", file=sys.stderr, flush=True)


# The file that marks OUT.partial as an export's. The exporting process holds a lock on it.
MARKER = ".edgert-export"


def write(checkpoint: Checkpoint, options: Options, out: Path, flags: str = "", seed: int = 0) -> dict[str, Any]:
    """Makes the bundle in OUT.partial and renames it to OUT when all checks have passed."""
    if os.path.lexists(out):
        raise ExportError(f"{out} exists already: want a path that does not, or remove it first")
    with own_partial(out.with_name(out.name + ".partial")) as partial:
        report = _fill(checkpoint, options, partial, flags, seed)
        mode = (partial / "bundle.json").stat().st_mode
        for path in partial.rglob("*"):
            if path.is_file():
                path.chmod(mode)  # onnx and safetensors make files private to this user, but a server often runs as another
        (partial / MARKER).unlink()
        if os.path.lexists(out):
            raise ExportError(f"{out} was made by another program meanwhile: move it away, and export again")
        partial.rename(out)
    return report


@contextlib.contextmanager
def own_partial(partial: Path):
    """A folder of this export alone, empty at first; it is removed when the export fails. The folder of an interrupted
    export is emptied; a folder made by a person, or by an export that still runs, is refused."""
    with _claim(partial):
        try:
            yield partial
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def _claim(partial: Path):
    """Makes the folder, or takes over an existing one, and returns its marker, open and locked."""
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            partial.mkdir()
        if partial.is_dir() and not partial.is_symlink() and not any(partial.iterdir()):
            (partial / MARKER).touch()
        if partial.is_symlink() or not partial.is_dir() or not (partial / MARKER).is_file():
            raise ExportError(f"{partial} is there, and is not what an interrupted export has left: move it away, or name another OUT")
        marker = (partial / MARKER).open("r+")
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(marker.fileno()), os.stat(partial / MARKER)):
                raise BlockingIOError
            _empty(partial)
        except BaseException:
            marker.close()
            raise
        return marker
    except (BlockingIOError, FileNotFoundError):
        raise ExportError(f"another export is writing {partial}: wait until it has ended, or name another OUT") from None
    except OSError as e:
        raise ExportError(f"{partial}: {e.strerror}; want a folder that can be written for the bundle") from None


def _empty(partial: Path) -> None:
    for path in partial.iterdir():
        if path.name == MARKER:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _fill(checkpoint: Checkpoint, options: Options, out: Path, flags: str, seed: int) -> dict[str, Any]:
    began = time.monotonic()
    family = family_of(checkpoint.type)(checkpoint, options)
    if options.dataset_info:
        dataset.compare(family, options.dataset_info)
    warnings = [*checkpoint.warnings, *warn(family)]
    if not (options.action_units and options.state_units):
        say(f"note: {NO_UNITS}")
    for text in warnings:
        say(f"warning: {text}")
    family.meta = {**manifest(family), **family.meta}
    say(f"{checkpoint.type}: writing the graph")
    with one_thread():
        family.build(out)
    if options.dtype in family.stores and not family.shrunk:
        raise ExportError(f"--dtype is {options.dtype}, but no weight of this policy that can be stored so has {weights.LEAST_BYTES >> 10} KiB or more: leave it out")
    for name, content in family.files().items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content) if isinstance(content, bytes) else shutil.copyfile(content, path)

    write_json(out / "statistics.json", observations.describe(family, options.dataset_info, lambda text: say(f"note: {text}")))

    loading = time.monotonic()
    run = runner(family, out)
    loaded = time.monotonic() - loading
    rng = np.random.default_rng(seed)
    say("comparing it with LeRobot's own code")
    table = golden.parity(family, run, [family.case(PARITY_ROWS, rng, note) for note in family.notes()])
    golden.judge(family, table)
    with one_thread():
        golden_sets(family, out / "golden", rng)
    say("measuring it")
    timed = family.case(max(timing.BATCHES), rng, family.notes()[-1])
    family.meta |= {"batch_buckets": list(timing.BATCHES), "batch_invariant": all(line["same_bytes"] for line in table), "golden_tolerance": golden.tolerance(family, table)}
    report = {
        "parity": table,
        "parity_by": "onnxruntime on the CPU" if isinstance(run, Runner) else "torch: the same modules, ONNX Runtime has no bf16 products on the CPU, so neither this nor t_of_b is of the graph",
        "parity_unit": "deviations of the action in the training data",
        "worst": golden.worst(table),
        "limit": golden.limit(family),
        "weights": {"stored": family.meta.get("weights", family.meta["dtype"]), "float32_bytes_halved": family.shrunk, "rounded": options.dtype in family.stores},
        "warnings": warnings,
        "t_of_b": timing.table(run, timed),
        "load_s": round(loaded, 3),
        "sizes": {p.name: p.stat().st_size for p in sorted(out.glob("*.onnx*"))},
        "parameters": sum(p.numel() for p in family.policy.parameters()),
        "versions": {p: metadata.version(p) for p in ("lerobot", "torch", "torchvision", "transformers", "diffusers", "onnx", "onnxruntime", "numpy") if installed(p)},
        "machine": timing.machine(),
        "export_s": round(time.monotonic() - began, 1),
    }
    report["warnings"] = [*dict.fromkeys([*warnings, *checkpoint.warnings])]
    for text in report["warnings"][len(warnings) :]:
        say(f"warning: {text}")
    _texts(family, out, report, flags)
    return report


def _texts(family, out: Path, report: dict[str, Any], flags: str) -> None:
    """Writes LICENSE, SOURCE, report.json and, last, the manifest. The manifest lists all files except the report, which
    holds times and so differs between exports: a bundle's digest covers only the served files."""
    (out / "LICENSE").write_text(licence.licence(family.checkpoint)[1], encoding="utf-8")
    (out / "SOURCE").write_text(licence.source(family.checkpoint, family.meta, flags), encoding="utf-8")
    # A file manager or a file system may leave hidden files while the export runs.
    files = sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file() and not hidden(p.relative_to(out)))
    write_json(out / "report.json", report)
    family.meta["files"] = {name: sha256(out / name) for name in files}
    write_json(out / "bundle.json", family.meta)


def hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def manifest(family) -> dict[str, Any]:
    """The keys of bundle.json that all families have."""
    checkpoint, options = family.checkpoint, family.options
    repo, revision = licence.origin(checkpoint)
    meta: dict[str, Any] = {
        "bundle_version": 1,
        "policy_type": checkpoint.type,
        "source_repo": repo,
        "source_revision": revision,
        "weights_sha256": checkpoint.weights_sha256,
        "exporter": f"edgert-export {VERSION}",
        "lerobot_version": lerobot_version(),
        "licence": licence.licence(checkpoint)[0],
        "norm_state": family.state_scale.mode,
        "norm_action": family.action_scale.mode,
        "norm_stats_sha256": checkpoint.stats_sha256,
        "opset": OPSET,
        "dtype": NAMES["fp32" if options.dtype in family.stores else options.dtype],
        "fps": options.fps,
        "action_dim": checkpoint.action_dim(),
        "action_names": options.action_names,
        "state_names": options.state_names,
        "cameras": [{"name": c.name, "height": c.height, "width": c.width} for c in family.cameras],
    }
    if not revision:
        del meta["source_revision"]
    if options.simulation_only:
        meta["simulation_only"] = True
    for vector, scale in (("action", family.action_scale), ("state", family.state_scale)):
        if units := getattr(options, f"{vector}_units"):
            meta[f"{vector}_units"] = units
        if limits := limits_of(scale):
            meta[f"{vector}_limits"] = limits
    if mask := checkpoint.relative_mask():
        meta["relative_mask"] = mask
        meta.pop("action_limits", None)  # statistics of relative actions are of differences
    return meta


def limits_of(scale) -> list[list[float]] | None:
    """The training data's range, with a margin of a tenth of it on either side."""
    if "min" not in scale.stats or "max" not in scale.stats:
        return None
    low, high = (scale.stats[k].to(torch.float64).reshape(-1).numpy() for k in ("min", "max"))
    margin = np.maximum(0.1 * (high - low), 1e-3 * (1 + np.abs(low)))
    return [[float(f"{a:.6g}"), float(f"{b:.6g}")] for a, b in zip(low - margin, high + margin, strict=True)]


def warn(family) -> list[str]:
    """Warnings about the checkpoint's statistics and the sizes of --cameras."""
    found = []
    for camera in family.cameras:
        _, height, width = family.checkpoint.inputs[camera.key][1]
        if height != width and (camera.height, camera.width) != (height, width) and camera.height * height == camera.width * width:
            found.append(f"--cameras {camera.name}={camera.height}x{camera.width} is {camera.height} high and {camera.width} wide, the checkpoint's pictures are {height} high and {width} wide: if the robot's are too, write {camera.name}={camera.width}x{camera.height}")
    for vector, scale, names in ((STATE, family.state_scale, family.options.state_names), (ACTION, family.action_scale, family.options.action_names)):
        if scale.mode == "IDENTITY":
            continue
        width = scale.b if scale.mode == "MEAN_STD" else scale.b - scale.a
        for i, (w, a) in enumerate(zip(width.reshape(-1).tolist(), scale.a.reshape(-1).tolist(), strict=True)):
            if abs(w) < CONSTANT * max(1.0, abs(a)):
                name = names[i] if i < len(names) else str(i)
                found.append(f"{vector} {name} did not move in the training data ({scale.mode}: {w:.3g} around {a:.6g}): " + ("a small change of it becomes a huge input, leave the joint out or train again with it moving" if vector == STATE else "the policy always sends the same value"))
    return found


def golden_sets(family, folder: Path, rng: np.random.Generator) -> None:
    """Recorded pairs of inputs and LeRobot's own outputs, never the graph's."""
    folder.mkdir()
    for note in family.notes():
        for rows in GOLDEN_ROWS:
            case = family.case(rows, rng, note)
            outputs = golden.reference(family, case)
            tensors = {f"in/{k}": np.ascontiguousarray(v) for k, v in case.inputs.items()}
            tensors |= {f"out/{k}": np.ascontiguousarray(v) for k, v in outputs.items()}
            (folder / f"b{rows}_{note}.safetensors").write_bytes(file_of(tensors, case.tasks))


def file_of(tensors: dict[str, np.ndarray], tasks: list[str]) -> bytes:
    """A safetensors file. The texts are put into its header here, because safetensors writes them in a random order."""
    data = save(tensors)
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    if tasks:
        header = {"__metadata__": {f"task{i}": text for i, text in enumerate(tasks)}} | header
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text + data[end:]


@contextlib.contextmanager
def one_thread():
    """Limits torch to one thread: the order of its additions depends on the number of threads, and a bundle must not
    depend on it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
