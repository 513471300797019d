"""LeRobot's own policy in torch, a contender of `bench gpu --beside`: python torch_lerobot.py [--compile] CHECKPOINT...

It finds the checkpoint of a bundle by the digest of its weights, and runs in the environment of tools/export with a torch
for the device. It times a whole request: pictures and state from the host, LeRobot's processors, chunk, copy back."""

import argparse
import contextlib
import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import numpy as np
    import torch
    from edgert_export.checkpoint import Checkpoint
    from edgert_export.errors import ExportError
    from timed import Asked
except ImportError as e:
    sys.exit(f"no LeRobot with torch in this Python ({e}): make export-env, and run it by .venv-export/bin/python")


def find(checkpoints: list[str], weights: str) -> Checkpoint:
    found = [c for c in map(Checkpoint, checkpoints) if c.weights_sha256 == weights]
    if not found:
        sys.exit(f"none of {', '.join(checkpoints)} has the weights {weights[:16]} of this bundle")
    return found[0]


def main() -> dict:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--compile", action="store_true")
    arguments.add_argument("checkpoints", nargs="+")
    args = arguments.parse_args()
    asked = Asked()
    where = asked.device
    if asked.kind == "tensorrt":
        sys.exit("torch does not compute by TensorRT")
    if asked.kind != "cpu" and not torch.cuda.is_available():
        sys.exit(f"torch {torch.__version__} finds no CUDA device: want a build of torch for CUDA, and a driver")
    torch.set_num_threads(asked.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    meta = asked.meta
    checkpoint = find(args.checkpoints, meta["weights_sha256"])
    policy = checkpoint.policy().to(where).eval()
    policy.config.device = where
    pre, post = checkpoint.processors({"device_processor": {"device": where}})
    predict = torch.compile(policy.predict_action_chunk) if args.compile else policy.predict_action_chunk
    rng = np.random.default_rng(0)

    def prepare(batch: int):
        pictures = {c["name"]: rng.integers(0, 255, (batch, c["height"], c["width"], 3), dtype=np.uint8) for c in meta["cameras"]}
        state = rng.standard_normal((batch, len(meta["state_names"]))).astype(np.float32)

        def run() -> torch.Tensor:
            given = {f"observation.images.{n}": torch.from_numpy(p).to(where).permute(0, 3, 1, 2).contiguous() / 255 for n, p in pictures.items()}
            given |= {"observation.state": torch.from_numpy(state).to(where), "task": ["pick up the cube"] * batch}
            with torch.inference_mode():
                return post(predict(pre(given))).cpu()

        return run

    return asked.measure(prepare)


if __name__ == "__main__":
    try:
        with contextlib.redirect_stdout(sys.stderr):  # LeRobot prints while it loads
            report = main()
        print(json.dumps(report))
    except ExportError as e:
        sys.exit(str(e))
