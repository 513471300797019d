"""Writes a Pi0.5 of toy size with random weights, which the Go tests serve in one graph and in two:

    OMP_NUM_THREADS=1 .venv-export/bin/python tools/export/tests/toy.py testdata/pi05
    OMP_NUM_THREADS=1 .venv-export/bin/python tools/export/tests/toy.py testdata/pi05-split --form split
"""

import os
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parent))

import checkpoints
import pi_checkpoints
from edgert_export.cli import main

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, pi_checkpoints.small():
        checkpoint = pi_checkpoints.make("pi05", Path(folder) / "pi05", cameras={"top": (48, 64)})
        sys.exit(main([str(checkpoint), sys.argv[1], "--fps", "30", "--joints", ",".join(checkpoints.JOINTS), *sys.argv[2:]]))
