"""From a trained policy to its bundle."""

import json
from pathlib import Path

import numpy as np

from . import bundle, golden, graph, weights
from .fit import Policy, Recipe

PARITY = 1e-5  # model units, between the graph and a plain loop over the training networks

NOTES = """# Demo policy "around the post"

A flow policy for the simulated SO-101 of this repository, 60 steps a second, 50 rows a chunk: the arm carries its tip
around a post to a target, then to the next one on the other side. Trained on scripted demonstrations alone; no
foreign data or weights.

    cd tools/train && pip install -r requirements.txt
    python -m train --seed {seed} --out ../../testdata/demo/bundle

Seed {seed}, {eyes} steps for the eyes, {hands} for the hands. SHA-256 of the weights: {digest}
Another machine or other versions round differently on the way and end with other weights of the same quality.
"""


def write(out: Path, policy: Policy, seed: int, recipe: Recipe) -> bundle.Facts:
    """Builds the graph, compares it with the training networks, records the golden sets, writes the bundle."""
    digest = weights.digest(policy)
    facts = bundle.Facts(
        policy_type="demo_flow",
        source_repo="tools/train",
        source_revision=f"seed {seed}, {recipe.eyes_steps} + {recipe.hands_steps} steps",
        weights_sha256=digest,
        norm_stats_sha256=weights.stats_digest(policy),
        num_steps=graph.STEPS,
        notes=NOTES.format(seed=seed, eyes=recipe.eyes_steps, hands=recipe.hands_steps, digest=digest),
    )
    manifest = bundle.describe(facts)
    del manifest["batch_invariant"]  # not known yet
    model = graph.build(policy, {k: v if isinstance(v, str) else json.dumps(v) for k, v in manifest.items()})
    facts.golden = golden.record(model)
    facts.batch_invariant = golden.batch_invariant(model)
    for name, arrays in facts.golden.items():
        batch = {k.removeprefix("in/"): v for k, v in arrays.items() if k.startswith("in/")}
        off = float(np.abs(graph.sample(policy, batch) - arrays["out/chunk_model"]).max())
        if off > PARITY:
            raise RuntimeError(f"{name}: the graph is {off:.2g} away from the networks, want at most {PARITY:.0e}")
    bundle.write(out, model, facts)
    return facts
