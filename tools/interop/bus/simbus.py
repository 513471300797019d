"""Runs a simulated bus for the duration of a judge's part."""

import contextlib
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

START = 10  # s


class Report:
    """The report that edge-rt sim-bus prints at its end."""

    def __init__(self):
        self.requests = self.replies = self.wrong = self.garbage = None


@contextlib.contextmanager
def serve(edge_rt, robot, *flags, clean=True):
    """Runs edge-rt sim-bus and yields (path of the port, report). The report is filled at the end; clean asserts that it
    counts no wrong checksum and no byte of garbage."""
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / "bus"
        sim = subprocess.Popen([edge_rt, "sim-bus", "--robot", robot, "--link", str(link), *flags], stdout=subprocess.PIPE, text=True)
        report = Report()
        try:
            end = time.monotonic() + START
            while not link.is_symlink():
                assert sim.poll() is None, f"edge-rt sim-bus --robot {robot} ends with {sim.returncode}"
                assert time.monotonic() < end, f"no port after {START} s"
                time.sleep(0.01)
            yield str(link), report
        finally:
            sim.send_signal(signal.SIGTERM)
            out, _ = sim.communicate(timeout=START)
        assert sim.returncode == 0, f"edge-rt sim-bus ends with {sim.returncode}"
        found = re.search(r"(\d+) requests, (\d+) replies, (\d+) wrong checksums, (\d+) bytes of garbage", out)
        assert found, f"no report in {out!r}"
        report.requests, report.replies, report.wrong, report.garbage = map(int, found.groups())
        if clean:
            assert report.wrong == report.garbage == 0, f"not a clean line: {out.splitlines()[-1]}"


def until(read, want, near=0):
    """Waits until every value of read() is within near of want."""
    end = time.monotonic() + START
    while True:
        got = read()
        pairs = zip(got, want) if isinstance(want, list) else [(got, want)]
        if all(abs(g - w) <= near for g, w in pairs):
            return got
        assert time.monotonic() < end, f"stays at {got}, want {want}"
