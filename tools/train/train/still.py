"""Writes a bundle that answers the present position for all rows: python -m train.still --out DIR

It has the demo policy's inputs and outputs and honours a committed prefix, but never moves: a robot that runs it must
end with no target reached. Tests use it to see that success is not reported by accident.
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


def build() -> bytes:
    """The graph."""
    g = onnxgraph.Graph()
    hard = rtc.hard_rows(g)
    present = g.op("Unsqueeze", "state", g.const([1], np.int64))
    rows = g.op("Where", hard, "prefix", present)
    g.name(rows, "chunk_robot")
    g.name(rows, "chunk_model")
    return g.encode({"policy_type": "still", "bundle_version": bundle.BUNDLE_VERSION})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.still", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the bundle's directory")
    out = parser.parse_args().out
    graph = build()
    facts = bundle.Facts(
        policy_type="still",
        source_repo="tools/train",
        source_revision="still",
        weights_sha256="",
        num_steps=1,
        norm="IDENTITY",
        golden=golden.record(graph),
        notes=NOTES,
    )
    bundle.write(out, graph, facts)
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
