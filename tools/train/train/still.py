"""Writes a bundle that answers the present position for all rows: python -m train.still --out DIR [--slow N]

It has the demo policy's inputs and outputs and honours a committed prefix, but never moves: a robot that runs it must
end with no target reached. Tests use it to check that success is not reported wrongly. With --slow it first multiplies
matrices of SIDE x SIDE N times, so that one inference takes longer than its chunk lasts.
"""

import argparse
from pathlib import Path

import numpy as np

from . import bundle, golden, onnxgraph, rtc

NOTES = """# A bundle that stands still

Answers the robot's present position for all 50 rows, after the rows of a committed prefix (modes 2 and 3). For tests:
it fits wherever the demo policy fits and reaches nothing.

    cd tools/train && python -m train.still --out ../../testdata/demo/still
"""

SLOW_NOTES = """# A slow bundle that stands still

As ../still, after {slow} products of matrices of {side} x {side} ({gflop} GFLOP, some seconds on one core), so that a chunk takes longer
than its actions last. For tests of slow policies.

    cd tools/train && python -m train.still --slow {slow} --out ../../testdata/demo/slow
"""

SIDE = 1024


def spend(g: onnxgraph.Graph, times: int) -> str:
    """Returns a zero that takes long. It depends on the state, or ONNX Runtime would compute it at load."""
    zero = g.op("Mul", g.op("ReduceMax", "state", keepdims=0), g.const(0, np.float32))
    x = g.op("Expand", zero, g.const([SIDE, SIDE], np.int64))
    for _ in range(times):
        x = g.op("MatMul", x, x)
    return g.op("ReduceMax", x, keepdims=0)


def build(slow: int = 0) -> bytes:
    """The graph."""
    g = onnxgraph.Graph()
    hard = rtc.hard_rows(g)
    present = g.op("Unsqueeze", "state", g.const([1], np.int64))
    if slow:
        present = g.op("Add", present, spend(g, slow))
    rows = g.op("Where", hard, "prefix", present)
    g.name(rows, "chunk_robot")
    g.name(rows, "chunk_model")
    return g.encode({"policy_type": "still", "bundle_version": bundle.BUNDLE_VERSION})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.still", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the bundle's directory")
    parser.add_argument("--slow", type=int, default=0, metavar="N", help="multiply matrices N times first")
    args = parser.parse_args()
    out, slow = args.out, args.slow
    graph = build(slow)
    sets = golden.record(graph)
    facts = bundle.Facts(
        policy_type="still",
        source_repo="tools/train",
        source_revision="slow" if slow else "still",
        weights_sha256="",
        num_steps=1,
        norm="IDENTITY",
        golden={name: sets[name] for name in sets if name.startswith("b1") or not slow},
        notes=SLOW_NOTES.format(slow=slow, side=SIDE, gflop=round(2 * slow * SIDE**3 / 1e9)) if slow else NOTES,
    )
    bundle.write(out, graph, facts)
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
