"""Drives our bus simulator with clients of other authors: python judge.py EDGE_RT

Each part starts edge-rt sim-bus for its arm and drives it over the port. The clients' own time limits are lengthened,
because a shared machine sometimes withholds a core for longer; where a client's limit is fixed, a part has a few tries,
of which one must pass as a whole.
"""

import contextlib
import importlib
import os
import sys
import time
import traceback
from importlib.metadata import version

JUDGES = [("feetech-servo-sdk", "feetech_sdk"), ("dynamixel-sdk", "dynamixel_sdk_judge"), ("lerobot", "lerobot_bus")]
TRIES = 6


def passes(judge, edge_rt):
    """Returns the number of the try that passed, 0 when all failed."""
    for attempt in range(TRIES):
        try:
            judge(edge_rt)
            return attempt + 1
        except Exception as problem:
            if attempt + 1 == TRIES:
                traceback.print_exc()
            else:
                print(f"  once more after: {problem}", flush=True)
    return 0


def main(edge_rt):
    with contextlib.suppress(PermissionError):
        os.nice(-10)
    failed = False
    for package, module in JUDGES:
        for what, judge in importlib.import_module(module).PARTS.items():
            start = time.monotonic()
            tries = passes(judge, edge_rt)
            failed = failed or not tries
            verdict = f"accepts it at try {tries}" if tries else "refuses it"
            print(f"{package} {version(package)} {verdict}, {time.monotonic() - start:.1f} s: {what}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
