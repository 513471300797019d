"""The parity check of every family: 100 random observations against LeRobot's own code."""

import json
from pathlib import Path

import numpy as np

from edgert_export import golden
from edgert_export.bundle import manifest
from edgert_export.checkpoint import Checkpoint
from edgert_export.families import family_of
from edgert_export.onnx_graph import Runner
from edgert_export.options import Options

ROWS = 100
LIMIT = 1e-4


def family_for(checkpoint: Path, bundle: Path, **options):
    """The family of the exporter, with the names of the bundle."""
    meta = json.loads((bundle / "bundle.json").read_text())
    chosen = Options(fps=meta["fps"], action_names=meta["action_names"], state_names=meta["state_names"], **options)
    family = family_of(meta["policy_type"])(Checkpoint(checkpoint), chosen)
    family.meta = {**manifest(family), **family.meta}
    return family


def check(family, bundle: Path, rows: int = ROWS, limit: float = LIMIT) -> float:
    """Compares both outputs, batches of 1, 4 and 16, and returns the worst error."""
    run = Runner(bundle, family.meta)
    rng = np.random.default_rng(11)
    cases = [family.case(max(rows // len(family.notes()), 1), rng, note) for note in family.notes()]
    table = golden.parity(family, run, cases)
    worst = golden.worst(table)
    assert worst["max"] <= limit, worst
    assert {line["batch"] for line in table} == {1, 4, 16}
    return worst["max"]


def check_senses(family, bundle: Path, least: float = 1e-2, deaf: tuple[str, ...] = ()) -> None:
    """Asserts that every input not named in `deaf` changes the chunk by at least `least`
    deviations: a random network that ignores its pictures would pass any comparison of them."""
    run = Runner(bundle, family.meta)
    rng = np.random.default_rng(12)
    here, there = family.case(4, rng), family.case(4, rng)
    base = run(here.inputs)
    for name in here.inputs:
        if name in deaf:
            continue
        moved = run({**here.inputs, name: there.inputs[name]})
        change = golden.errors(family, moved, base)["chunk_robot"].max()
        assert change > least, f"{name} moves the chunk by {change:.2g} deviations only"
