"""Trains the demo policy and writes its bundle: python -m train --seed 0 --out ../../testdata/demo/bundle"""

import argparse
import os
from pathlib import Path

# One core, because the training shares its machine. It must be set before JAX is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

from . import export, fit, weights  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train", description=__doc__.split(":")[0])
    parser.add_argument("--seed", type=int, default=0, help="of data, initial weights and order (0)")
    parser.add_argument("--out", type=Path, required=True, help="the bundle's directory")
    parser.add_argument("--weights", type=Path, help="trained weights: read when the file exists, else written")
    parser.add_argument("--eyes-steps", type=int, default=fit.Recipe.eyes_steps)
    parser.add_argument("--hands-steps", type=int, default=fit.Recipe.hands_steps)
    args = parser.parse_args()
    say = lambda line: print(line, flush=True)  # noqa: E731
    recipe = fit.Recipe(eyes_steps=args.eyes_steps, hands_steps=args.hands_steps, report=say)

    if args.weights and args.weights.exists():
        policy = weights.load(args.weights)
        say(f"weights from {args.weights}")
    else:
        policy = fit.fit(args.seed, recipe)
        if args.weights:
            weights.save(args.weights, policy)
    facts = export.write(args.out, policy, args.seed, recipe)
    say(f"wrote {args.out}: weights {facts.weights_sha256[:16]}, batch invariant {facts.batch_invariant}")
    say(f"try it: python -m train.rollout {args.out} --delay 8")


if __name__ == "__main__":
    main()
