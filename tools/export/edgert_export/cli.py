"""The command edgert-export."""

import argparse
import contextlib
import math
import os
import re
import shlex
import sys
import warnings
from pathlib import Path

from .errors import ExportError
from .options import DTYPES, FORMS, Options


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise ExportError(f"{message}; edgert-export --help lists the flags")


class Once(argparse.Action):
    """Stores a flag's value and refuses a second one: argparse would silently take the last."""

    def __call__(self, parser, namespace, values, option_string=None):
        given = vars(namespace).setdefault("given", set())
        if self.dest in given:
            raise argparse.ArgumentError(self, "is given more than once, want it once")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


def parser() -> Parser:
    p = Parser(prog="edgert-export", description="Exports a LeRobot checkpoint as a bundle for lean-server, and proves it against LeRobot's own code.", allow_abbrev=False)
    p.add_argument("checkpoint", type=Path, help="folder with config.json and model.safetensors (.../checkpoints/last/pretrained_model)")
    p.add_argument("out", type=Path, help="the bundle's folder, which must not exist yet")
    p.add_argument("--dataset-info", action=Once, type=Path, metavar="FILE", help="meta/info.json of the training data: fps and joint names")
    p.add_argument("--fps", action=Once, type=float, default=0.0, help="control rate of the training data in Hz, instead of --dataset-info")
    p.add_argument("--joints", action=Once, type=names, default=[], metavar="A,B,...", help="joint names in the order of action and state, instead of --dataset-info")
    p.add_argument("--units", action=Once, type=names, default=[], metavar="U,...", help="unit of all joints, or of each (degrees, range_0_100, range_m100_100; of a base m/s, deg/s): the server then refuses robots with other units")
    p.add_argument("--vlm", action=Once, type=Path, metavar="DIR", help="folder of the vision-language model that the checkpoint names (SmolVLA)")
    p.add_argument("--steps", action=Once, type=int, default=0, metavar="N", help="denoising steps (default: the checkpoint's)")
    p.add_argument("--cameras", action=Once, type=sizes, default={}, metavar="NAME=HxW,...", help="height and width of the robot's pictures if they differ from the checkpoint's: front=480x640; left=none for a camera that the robot lacks (SmolVLA, Pi0, Pi0.5)")
    p.add_argument("--dtype", action=Once, choices=DTYPES, default="fp32", help="Pi0, Pi0.5: type in which the graph computes; others: type in which the weights are stored, in half the memory; they compute in fp32 (default fp32)")
    p.add_argument("--form", action=Once, choices=FORMS, default="loop", help="where the denoising loop runs: in the graph, unrolled in the graph, or in the server between two graphs")
    p.add_argument("--simulation-only", action="store_true", help="for a policy of a simulated world: edge-rt refuses the bundle on a real arm")
    return p


def names(text: str) -> list[str]:
    values = [v.strip() for v in text.split(",")]
    if not all(values):
        raise argparse.ArgumentTypeError(f"got {text!r}, want names separated by commas")
    return values


def sizes(text: str) -> dict[str, tuple[int, int] | None]:
    found: dict[str, tuple[int, int] | None] = {}
    for part in text.split(","):
        m = re.fullmatch(r"\s*([^=\s]+)=(?:(\d{1,5})x(\d{1,5})|none)\s*", part)
        size = (int(m[2]), int(m[3])) if m and m[2] else None
        if not m or m[1] in found or (size and 0 in size):
            raise argparse.ArgumentTypeError(f"got {part!r}, want NAME=HEIGHTxWIDTH such as front=480x640 (height first), or NAME=none, each camera once, several separated by commas")
        found[m[1]] = size
    return found


def options(args: argparse.Namespace) -> Options:
    if args.dataset_info and args.joints:
        raise ExportError("both --dataset-info and --joints are given, want one of them: the file holds the names")
    if args.joints and not args.fps:
        raise ExportError("--joints without --fps: want both, a checkpoint holds neither")
    if args.fps < 0 or not math.isfinite(args.fps):
        raise ExportError(f"--fps is {args.fps:g}, want Hz above 0")
    if not 0 <= args.steps <= 1000:
        raise ExportError(f"--steps is {args.steps}, want 1 to 1000")
    return Options(fps=args.fps, cameras=args.cameras, vlm=args.vlm, steps=args.steps, dtype=args.dtype, form=args.form, action_units=args.units, state_units=list(args.units), simulation_only=args.simulation_only, dataset_info=args.dataset_info)


def told(argv: list[str], args: argparse.Namespace) -> str:
    """The flags as given, without the paths of this machine."""
    names, given = {p: p.name for p in (args.dataset_info, args.vlm) if p}, []
    for a in argv:
        flag, equals, value = a.partition("=") if a.startswith("--") else ("", "", a)
        if flag or Path(value) not in (args.checkpoint, args.out):
            given.append(flag + equals + names.get(Path(value), value))
    return shlex.join(given)


def export(argv: list[str]) -> None:
    args = parser().parse_args(argv)
    chosen = options(args)
    if args.out.exists():
        raise ExportError(f"{args.out} exists already: want a path that does not, or remove it first")
    # Nothing is fetched: an export must report a missing file instead of waiting for the hub.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    warnings.filterwarnings("ignore")
    from . import bundle, dataset
    from .checkpoint import Checkpoint

    checkpoint = Checkpoint(args.checkpoint)
    dataset.complete(chosen, checkpoint, args.dataset_info, args.joints)
    # LeRobot prints while it loads; only our own result belongs on stdout.
    with contextlib.redirect_stdout(sys.stderr):
        report = bundle.write(checkpoint, chosen, args.out, told(argv, args))
    worst, times = report["worst"], report["t_of_b"]
    print(f"{args.out}: {checkpoint.type}, worst error {worst['max']:.2g} deviations ({worst['output']}, batch {worst['batch']}), {times[0]['median_ms']:g} ms for one robot, {times[-1]['median_ms']:g} ms for {times[-1]['batch']}")


def main(argv: list[str] | None = None) -> int:
    try:
        export(sys.argv[1:] if argv is None else argv)
    except ExportError as e:
        print(f"edgert-export: {e}", file=sys.stderr)
        return 2
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, AssertionError, RuntimeError) as e:
        # LeRobot's JSON has no schema: a value of a wrong type raises an error only where it is used.
        if os.environ.get("EDGERT_EXPORT_TRACE"):
            raise
        print(f"edgert-export: a value in the checkpoint or in --dataset-info is not of the kind that LeRobot 0.6 writes there ({type(e).__name__}: {' '.join(str(e).split())}); nothing was written. EDGERT_EXPORT_TRACE=1 shows where it is used. Copy the folder again, or write it again with LeRobot's save_pretrained; where LeRobot's own lerobot-eval or lerobot-rollout runs this checkpoint, report this line", file=sys.stderr)
        return 2
    except OSError as e:
        print(f"edgert-export: {e}; nothing was written", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("edgert-export: interrupted; nothing was written", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
