"""The duration of the graph on this machine."""

import platform
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

BATCHES = (1, 2, 4, 8, 16)

# Each batch size is timed at least MIN_RUNS times and for about SECONDS.
MIN_RUNS = 3
SECONDS = 1.0


def table(run, case) -> list[dict[str, Any]]:
    """T(B): milliseconds of one inference for each batch size, best and median."""
    lines = []
    for batch in BATCHES:
        inputs = case.part(0, batch).inputs
        times, began = [], time.perf_counter()
        run(inputs)
        if (first := time.perf_counter() - began) > SECONDS:
            times.append(1e3 * first)  # so long that warming up does not matter
        while len(times) < MIN_RUNS or time.perf_counter() - began < SECONDS:
            start = time.perf_counter()
            run(inputs)
            times.append(1e3 * (time.perf_counter() - start))
        lines.append({"batch": batch, "best_ms": round(min(times), 3), "median_ms": round(float(np.median(times)), 3), "runs": len(times)})
    return lines


def machine() -> dict[str, Any]:
    import os

    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return {"cpu": name, "cores": len(os.sched_getaffinity(0)), "system": platform.system(), "architecture": platform.machine(), "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
