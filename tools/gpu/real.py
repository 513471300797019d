"""Checkpoints of real size with random weights, and their bundles, for `tools/gpu/bench.sh`: python real.py FOLDER [--small]

FOLDER/checkpoints gets ACT (resnet18, two cameras of 480x640, chunks of 100) and SmolVLA in the shape of the published
checkpoint, FOLDER/bundles gets act, smolvla and smolvla-split. Existing ones are kept."""

import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "export" / "tests"))

CAMERAS = {"front": (480, 640), "wrist": (480, 640)}
ACT = {"dim_model": 512, "n_heads": 8, "dim_feedforward": 3200, "n_encoder_layers": 4, "n_decoder_layers": 1, "latent_dim": 32}
PARTS = ("checkpoints/act", "checkpoints/smolvla/policy", "bundles/act", "bundles/smolvla", "bundles/smolvla-split")


def make(folder: Path, small: bool) -> int:
    """Writes the missing checkpoints and bundles; small: of the tests' size, for a rehearsal."""
    if all((folder / part).exists() for part in PARTS):
        return 0  # before LeRobot is imported, which takes a while
    try:
        import checkpoints
        import smolvla_checkpoint as smolvla
        from edgert_export.cli import main
    except ImportError as e:
        sys.exit(f"real.py: {e}: make export-env, and run it by .venv-export/bin/python")
    joints = ["--fps", "30", "--joints", ",".join(checkpoints.JOINTS)]
    made = folder / "checkpoints"
    if not (made / "act").exists():
        checkpoints.act(made / "act", **({} if small else {"cameras": CAMERAS, **ACT}))
    if not (made / "smolvla" / "policy").exists():
        smolvla.make(made / "smolvla", **({} if small else {"vision": smolvla.REAL_VISION, "text": smolvla.REAL_TEXT, "cameras": CAMERAS}))
    vlm = ["--vlm", str(made / "smolvla" / "vlm")]
    for name, checkpoint, flags in (("act", made / "act", []), ("smolvla", made / "smolvla" / "policy", vlm), ("smolvla-split", made / "smolvla" / "policy", [*vlm, "--form", "split"])):
        out = folder / "bundles" / name
        if not out.exists() and (code := main([str(checkpoint), str(out), *joints, *flags])):
            return code
    return 0


if __name__ == "__main__":
    arguments = [a for a in sys.argv[1:] if a != "--small"]
    if len(arguments) != 1:
        sys.exit(__doc__)
    sys.exit(make(Path(arguments[0]), "--small" in sys.argv))
