"""Runs the example that trains an ACT for the simulated arm, with a few steps per stage."""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "act_sim"))
import fit
import record
import rollout

from edgert_export import bundle, dataset
from edgert_export.checkpoint import Checkpoint
from edgert_export.options import Options


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, Path]:
    data, out = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as m:
        m.setattr(record, "PART", 60)
        m.setattr(fit, "HELD_OUT", 40)
        m.setattr(sys, "argv", ["record.py", str(data), "--count", "120", "--workers", "1"])
        record.main()
        args = argparse.Namespace(data=data, out=out, seed=0, processes=1, port=0, batch=4, backbone_steps=3, features=80, transformer_steps=24)
        fit.run(0, args)
    return data, out


def test_recording(trained):
    data, _ = trained
    state, action = np.load(data / "state.npy"), np.load(data / "action.npy")
    picture = np.load(data / "picture.npy")
    assert picture.shape == (120, 60, 80, 3) and picture.std() > 10
    # A chunk begins at the arm's present position.
    assert np.abs(action[:, 0] - state)[:, :3].max() < 3
    info = json.loads((data / "meta" / "info.json").read_text())
    assert info["fps"] == 60 and info["features"]["action"]["names"] == record.JOINTS


def test_checkpoint_becomes_a_bundle(trained, tmp_path):
    data, out = trained
    checkpoint, options = Checkpoint(out / "checkpoint"), Options()
    dataset.complete(options, checkpoint, data / "meta" / "info.json", [])
    report = bundle.write(checkpoint, options, tmp_path / "bundle", "")
    assert report["worst"]["max"] < 1e-4
    meta = json.loads((tmp_path / "bundle" / "bundle.json").read_text())
    assert meta["rtc"] == "none" and meta["cameras"] == [{"name": "top", "height": 60, "width": 80}]


def test_loop_closes_on_the_checkpoint(trained):
    _, out = trained
    robots = rollout.simulate(rollout.Checkpoint(out / "checkpoint"), "async", 8, seeds=1, ticks=60)
    assert len(robots) == 2 and all(r.next > 0 and -30 < r.world.q[0] < 115 for r in robots)
