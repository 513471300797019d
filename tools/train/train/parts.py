"""Puts copies of the demo policy behind the contract of a larger robot: python -m train.parts ROBOT --out DIR

Nothing is trained. Each arm of the robot gets the one-arm policy with its own picture and its own joints; the arms do not
see each other. The graph puts the arms into one batch of its only copy of the networks. A base drives along curves: its
velocities are the goal of the first arm's first joint, times a constant for each axis.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from . import bundle, golden, tensors
from .onnxgraph import INPUTS, OUTPUTS, Graph

ONE = Path(__file__).parents[3] / "testdata/demo/bundle"
ALONE = "b1_mode0", "b1_mode2"
DIFFERENCE = 1e-4  # robot units, between an arm's chunk and the one-arm policy's: ONNX Runtime fuses the graphs differently
TOGETHER = "b4_modes0123"  # the set whose rows the other arms get, in the opposite order

NOTES = """# Demo policy "around the post" for {robot}

Not trained for it: ../bundle for each arm, with the arm's own picture and joints, in one graph. The arms do not see each
other{base}.

    cd tools/train && python -m train.parts {robot} --out ../../testdata/demo/{robot}
"""


BASE = """. The base
follows no picture: it drives along curves, with the goal of the arm's first joint times a constant for each axis"""


@dataclass(frozen=True)
class Robot:
    """A robot's names in LeRobot's order."""

    arms: tuple[str, ...]  # prefixes of the joints
    cameras: tuple[str, ...]  # of each arm
    base: tuple[tuple[str, str, float], ...] = ()  # name, unit and limit of each velocity
    drive: tuple[float, ...] = ()  # for each velocity, how much one degree of the first joint's goal adds to it


ROBOTS = {
    "bi_so101": Robot(("left_", "right_"), ("left_top", "right_top")),
    "lekiwi": Robot(("arm_",), ("top",), (("x.vel", "m/s", 0.3), ("y.vel", "m/s", 0.3), ("theta.vel", "deg/s", 90.0)), (0.002, 0.0, 0.5)),
}


def describe(robot: Robot, one: dict) -> dict:
    """Makes the robot's bundle.json, without digests, from the one-arm bundle's."""
    many = {k: v for k, v in one.items() if k != "files"}
    names = [arm + joint for arm in robot.arms for joint in bundle.JOINTS] + [b[0] for b in robot.base]
    units = bundle.UNITS * len(robot.arms) + [b[1] for b in robot.base]
    return many | {
        "action_dim": len(names),
        "action_names": names,
        "action_units": units,
        "action_limits": bundle.LIMITS * len(robot.arms) + [[-b[2], b[2]] for b in robot.base],
        "state_names": names,
        "state_units": units,
        "cameras": [bundle.CAMERAS[0] | {"name": name} for name in robot.cameras],
        "noise_dim": len(bundle.JOINTS) * len(robot.arms),
    }


def build(robot: Robot, one: onnx.ModelProto, manifest: dict) -> bytes:
    """The robot's graph. Row b of the arm k is row k B + b of the one-arm graph in it."""
    one = onnx.compose.add_prefix(one, "arm.")
    g, dof = Graph("parts."), len(bundle.JOINTS)

    def columns(value: str, first: int, end: int) -> str:
        return g.op("Slice", value, *(g.const([i], np.int64) for i in (first, end, -1)))

    inputs = {}
    for name, (kind, shape) in INPUTS.items():
        if name.startswith("image."):
            rows = [f"image.{camera}" for camera in robot.cameras]
            inputs |= {row: (kind, shape) for row in rows}
        elif shape[-1] == dof:
            rows = [columns(name, k * dof, (k + 1) * dof) for k in range(len(robot.arms))]
            width = manifest["noise_dim"] if name == "noise" else manifest["action_dim"]
            inputs[name] = kind, [*shape[:-1], width]
        else:
            rows = [name] * len(robot.arms)
            inputs[name] = kind, shape
        g.name(g.op("Concat", *rows, axis=0), f"arm.{name}")
    g.add(one.graph)
    base = []
    if robot.base:
        goals = g.op("Split", "arm.chunk_robot", outputs=len(robot.arms), axis=0)
        base = [g.op("Mul", columns(goals, 0, 1), g.const(robot.drive))]
    for name in OUTPUTS:
        first = g.op("Split", f"arm.{name}", outputs=len(robot.arms), axis=0)
        values = [first] + [f"{first}.{k}" for k in range(1, len(robot.arms))] + base
        g.name(g.op("Concat", *values, axis=-1), name)
    outputs = {name: (kind, [*shape[:-1], manifest["action_dim"]]) for name, (kind, shape) in OUTPUTS.items()}
    return g.encode({k: v if isinstance(v, str) else json.dumps(v) for k, v in manifest.items()}, inputs, outputs)


def arms_of(robot: Robot, name: str, sets: dict[str, golden.Batch]) -> list[golden.Batch]:
    """A one-arm set for each arm: the named set for the first arm, rows of TOGETHER with the same controls for the
    others."""
    own, n = sets[name], len(sets[name]["in/state"])
    other = {k: np.ascontiguousarray(v[::-1][:n]) for k, v in sets[TOGETHER].items()}
    mine = ("in/state", "in/noise", "in/prefix", *(k for k in own if k.startswith("in/image.")))
    return [own] + [own | {k: other[k] for k in mine} for _ in robot.arms[1:]]


def request(robot: Robot, arms: list[golden.Batch]) -> golden.Batch:
    """Makes the inputs of the robot's graph from those of its arms."""
    batch = {k.removeprefix("in/"): v for k, v in arms[0].items() if k.startswith("in/")}
    for camera, arm in zip(robot.cameras, arms):
        batch[f"image.{camera}"] = arm[f"in/image.{bundle.CAMERAS[0]['name']}"]
    for name in ("state", "noise", "prefix"):
        values = [arm[f"in/{name}"] for arm in arms]
        if name != "noise":
            values += [np.zeros((*values[0].shape[:-1], len(robot.base)), np.float32)]
        batch[name] = np.concatenate(values, axis=-1)
    return {k: batch[k] for k in batch if not k.startswith("image.") or k.removeprefix("image.") in robot.cameras}


def record(robot: Robot, model: bytes, one: bytes, sets: dict[str, golden.Batch]) -> dict[str, golden.Batch]:
    """The robot's golden sets. Fails when an arm's chunk is not the one-arm policy's, or depends on the batch."""
    graph, single, recorded = golden.session(model), golden.session(one), {}
    for name in (*ALONE, TOGETHER):
        arms = arms_of(robot, name, sets)
        batch = request(robot, arms)
        out = golden.run(graph, batch)
        chunk, dof = out["chunk_robot"], len(bundle.JOINTS)
        for k, arm in enumerate(arms):
            want = golden.run(single, {n.removeprefix("in/"): v for n, v in arm.items() if n.startswith("in/")})["chunk_robot"]
            off = float(np.abs(chunk[..., k * dof : (k + 1) * dof] - want).max())
            if off > DIFFERENCE:
                raise RuntimeError(f"{name}: {robot.arms[k]} is {off:.2g} from the one-arm policy, want at most {DIFFERENCE:.0e}")
        base = chunk[..., len(arms) * dof :]
        if not np.array_equal(base, chunk[..., :1] * np.float32(robot.drive)) or robot.base and not base.any():
            raise RuntimeError(f"{name}: the base does not follow the first joint's goal")
        for b in range(len(chunk)):
            if golden.run(graph, {n: v[b : b + 1] for n, v in batch.items()})["chunk_robot"].tobytes() != chunk[b : b + 1].tobytes():
                raise RuntimeError(f"{name}: row {b} depends on its batch")
        recorded[name] = {f"in/{k}": v for k, v in batch.items()} | {f"out/{k}": v for k, v in out.items()}
    return recorded


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.parts", description=__doc__.split(":")[0])
    parser.add_argument("robot", choices=ROBOTS)
    parser.add_argument("--out", type=Path, required=True, help="the bundle's directory")
    args = parser.parse_args()
    robot, one = ROBOTS[args.robot], (ONE / "policy.onnx").read_bytes()
    manifest = describe(robot, json.loads((ONE / "bundle.json").read_text()))
    model = build(robot, onnx.load_from_string(one), manifest)
    sets = {name: tensors.read(ONE / f"golden/{name}.safetensors") for name in (*ALONE, TOGETHER)}
    notes = NOTES.format(robot=args.robot, base=BASE if robot.base else "")
    bundle.store(args.out, model, manifest, record(robot, model, one, sets), notes)
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
