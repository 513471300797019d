"""Trains the policy without a sampler and writes its bundle: python -m train.plain --out ../../testdata/demo/plain

A regression of one scripted teacher who always passes the post on its far side. Its bundle has `rtc: none`: its inputs
are only pictures and state. It serves beside the flow policy for scheduling disciplines without conditioning.
"""

import argparse
import os
from pathlib import Path

# One core, because the training shares its machine. It must be set before JAX is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax  # noqa: E402
import numpy as np  # noqa: E402

from . import bundle, camera, fit, golden, graph, nets, teacher, weights  # noqa: E402
from .onnxgraph import INPUTS, OUTPUTS, Graph  # noqa: E402
from .world import World  # noqa: E402

PORTS = {name: INPUTS[name] for name in ("image.top", "state")}
EXECUTED = 20  # rows of the first chunk that run before the golden sets are recorded

NOTES = """# Demo policy "around the post", without a sampler

A regression policy for the simulated SO-101 of this repository: the same task and the same eyes as the flow policy in
`../bundle`, but the teacher always passes the post on its far side, so that one chunk answers a scene. `rtc: none`.
Trained on scripted demonstrations alone; no foreign data or weights.

    cd tools/train && pip install -r requirements.txt
    python -m train.plain --seed {seed} --out ../../testdata/demo/plain

Seed {seed}, {eyes} steps for the eyes, {plain} for the hands. SHA-256 of the weights: {digest}
"""


def train(seed: int, recipe: fit.Recipe) -> fit.Policy:
    """The flow policy's eyes; hands by regression."""
    data = teacher.demonstrate_one_way(np.random.default_rng(seed), recipe.chunks)
    stats = fit.statistics(data)
    k_eyes, k_hands = jax.random.split(jax.random.key(seed))
    hands = fit.fit_plain(k_hands, data, stats, recipe)
    eyes = fit.fit_eyes(k_eyes, np.random.default_rng(seed + 1), stats, recipe)
    return fit.Policy(jax.tree.map(np.asarray, eyes), jax.tree.map(np.asarray, hands), stats)


def build(policy: fit.Policy) -> bytes:
    """The graph: picture and state to a chunk."""
    g = Graph()
    stats = {name: g.const(value) for name, value in sorted(policy.stats.items())}
    state = graph.normalised(g, "state", stats, "state")
    x = g.op("Concat", state, graph.see(g, policy.eyes, "image.top", state), axis=1)
    for name in ("hidden1", "hidden2"):
        x = graph.silu(g, graph.linear(g, policy.hands[name], x))
    x = g.op("Reshape", graph.linear(g, policy.hands["chunk"], x), g.const([0, nets.ROWS, nets.JOINTS], np.int64))
    g.name(x, "chunk_model")
    g.name(g.op("Add", g.op("Mul", x, stats["action_std"]), stats["action_mean"]), "chunk_robot")
    return g.encode({"policy_type": "demo_plain", "bundle_version": bundle.BUNDLE_VERSION}, PORTS)


def observe(worlds: list[World]) -> golden.Batch:
    """The graph's inputs for the present state of the worlds."""
    return {
        "image.top": np.stack([camera.render(w.q, w.target, w.post) for w in worlds]),
        "state": np.stack([w.q for w in worlds]).astype(np.float32),
    }


def record(model: bytes) -> tuple[dict[str, golden.Batch], bool]:
    """A set of one row and a set of four, and whether a row has the same bytes alone and in the batch."""
    session = golden.session(model)
    run = lambda batch: dict(zip(OUTPUTS, session.run(list(OUTPUTS), batch)))  # noqa: E731
    worlds = [World(7), World(8, -1), World(9), World(10, -1)]
    for world, chunk in zip(worlds, run(observe(worlds))["chunk_robot"]):
        for row in chunk[:EXECUTED].astype(np.float64):
            world.step(row)
    sets, invariant, whole = {}, True, run(observe(worlds))
    for i, world in enumerate(worlds):
        invariant &= run(observe([world]))["chunk_robot"].tobytes() == whole["chunk_robot"][i].tobytes()
    for name, part in (("b1", worlds[:1]), ("b4", worlds)):
        batch = observe(part)
        sets[name] = {f"in/{k}": v for k, v in batch.items()} | {f"out/{k}": v for k, v in run(batch).items()}
    return sets, bool(invariant)


def write(out: Path, policy: fit.Policy, seed: int, recipe: fit.Recipe) -> bundle.Facts:
    """Builds the graph, compares it with the training networks, records the golden sets, writes the bundle."""
    model, digest = build(policy), weights.digest(policy)
    sets, invariant = record(model)
    batch = {k.removeprefix("in/"): v for k, v in sets["b4"].items()}
    off = float(np.abs(sample(policy, batch) - sets["b4"]["out/chunk_model"]).max())
    if off > 1e-5:
        raise RuntimeError(f"the graph is {off:.2g} away from the networks, want at most 1e-05")
    facts = bundle.Facts(
        policy_type="demo_plain", source_repo="tools/train", weights_sha256=digest,
        source_revision=f"plain, seed {seed}, {recipe.eyes_steps} + {recipe.plain_steps} steps",
        num_steps=0, rtc="none", rtc_max_delay=0, prefix_end=0, schedule="", norm_stats_sha256=weights.stats_digest(policy),
        batch_invariant=invariant, golden=sets,
        notes=NOTES.format(seed=seed, eyes=recipe.eyes_steps, plain=recipe.plain_steps, digest=digest),
    )  # fmt: skip
    bundle.write(out, model, facts)
    return facts


def sample(policy: fit.Policy, batch: golden.Batch) -> np.ndarray:
    """chunk_model by the training networks: a second implementation of the graph."""
    s = policy.stats
    state = (batch["state"] - s["state_mean"]) / (s["state_std"] + graph.EPSILON)
    picture = batch["image.top"].astype(np.float32).reshape(-1, 60, 2, 80, 2, 3).mean((2, 4)) * (2 / 255) - 1
    scene = nets.eyes(policy.eyes, picture, state)
    return np.asarray(nets.plain(policy.hands, np.concatenate([state, scene], -1)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.plain", description=__doc__.split(":")[0])
    parser.add_argument("--seed", type=int, default=0, help="of data, initial weights and order (0)")
    parser.add_argument("--out", type=Path, required=True, help="the bundle's directory")
    parser.add_argument("--eyes-steps", type=int, default=fit.Recipe.eyes_steps)
    parser.add_argument("--plain-steps", type=int, default=fit.Recipe.plain_steps)
    args = parser.parse_args()
    say = lambda line: print(line, flush=True)  # noqa: E731
    recipe = fit.Recipe(eyes_steps=args.eyes_steps, plain_steps=args.plain_steps, report=say)
    facts = write(args.out, train(args.seed, recipe), args.seed, recipe)
    say(f"wrote {args.out}: weights {facts.weights_sha256[:16]}, batch invariant {facts.batch_invariant}")


if __name__ == "__main__":
    main()
