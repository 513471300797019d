"""The common part of the contenders of `bench gpu --beside`: environment, timing and report."""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

WARM = 3  # uncounted runs of each batch size
LEAST = 5  # smallest number of counted runs, however long they take


class Asked:
    """The environment set by `bench gpu`: BENCH_BUNDLE, BENCH_DEVICE (cpu, cuda[:N], tensorrt[:N]), BENCH_BATCHES,
    BENCH_SECONDS for all batch sizes together, and BENCH_THREADS of the CPU."""

    def __init__(self):
        missing = [name for name in ("BENCH_BUNDLE", "BENCH_DEVICE", "BENCH_BATCHES", "BENCH_SECONDS") if name not in os.environ]
        if missing:
            sys.exit(f"{', '.join(missing)} not set: this is run by `bin/bench gpu --beside NAME=COMMAND`")
        self.bundle = Path(os.environ["BENCH_BUNDLE"])
        self.meta = json.loads((self.bundle / "bundle.json").read_text())
        self.device = os.environ["BENCH_DEVICE"]
        self.kind, _, number = self.device.partition(":")
        self.number = int(number or 0)
        self.batches = [int(n) for n in os.environ["BENCH_BATCHES"].split(",")]
        self.seconds = float(os.environ["BENCH_SECONDS"]) / len(self.batches)
        self.threads = int(os.environ.get("BENCH_THREADS", "1"))
        self.began = time.perf_counter()

    def measure(self, prepare: Callable[[int], Callable[[], object]]) -> dict:
        """The report: prepare(batch) returns a function for one run. The time before the call counts as loading."""
        opened = time.perf_counter() - self.began
        batches = [{"batch": n, **timed(prepare(n), self.seconds)} for n in self.batches]
        return {"open_s": opened, "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "batches": batches}


def timed(run: Callable[[], object], seconds: float) -> dict:
    for _ in range(WARM):
        run()
    times, end = [], time.perf_counter() + seconds
    while len(times) < LEAST or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        times.append((time.perf_counter() - begin) * 1e3)
    return {"p50_ms": float(np.quantile(times, 0.5)), "p99_ms": float(np.quantile(times, 0.99)), "runs": len(times)}
