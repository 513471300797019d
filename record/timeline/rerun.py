"""Streams a run to Rerun, for edge-rt view --live --rerun.

Arguments: the run's name, the address of a viewer (empty: this machine's viewer, started if it does not run), and
the topics of the channels. On stdin, frames: channel (u32), time (i64, ns since 1970), length (u32), little-endian,
and a JSON object of that length, as for Foxglove. Prints a line when the viewer has been reached. Exits with 9 if
Rerun's SDK is missing or too old, and with 8 if the viewer cannot be reached any more.
"""

import base64
import json
import os
import signal
import struct
import sys
import time

signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program ends at the end of stdin
try:
    import numpy
    import rerun as rr
    import rerun.blueprint as rrb

    flush = rr.RecordingStream.flush
    if "timeout_sec" not in flush.__code__.co_varnames:
        raise ImportError(f"Rerun's SDK is {rr.__version__}, which does not tell whether a viewer is there")
except (ImportError, AttributeError) as e:
    print(e, file=sys.stderr)
    sys.exit(9)

START, LOST = 10, 3  # seconds without a viewer, at the start and later
LEVELS = {1: "DEBUG", 2: "INFO", 3: "WARN", 4: "ERROR", 5: "CRITICAL"}  # foxglove.Log's
name, url, *topics = sys.argv[1:]
paths = [topic.split("/")[1:] for topic in topics]
entity = rr.new_entity_path  # escapes the characters that Rerun's paths reserve


def layout(joints):
    """The viewer's views: each camera, the joints' positions and goals, the times, the log."""
    return rrb.Grid(
        *(rrb.Spatial2DView(origin=entity(p), name=p[-1]) for p in paths if p[0] == "camera"),
        rrb.TimeSeriesView(
            name="joints", contents=[entity(["joints", j, v]) for j in joints for v in ("present", "goal")]
        ),
        rrb.TimeSeriesView(name="timing", origin="/timing"),
        rrb.TextLogView(name="log", origin="/log"),
    )


def log(path, m):
    """Logs a message of a topic."""
    if path[0] == "camera":
        rr.log(entity(path), rr.EncodedImage(contents=base64.b64decode(m["data"]), media_type="image/jpeg"))
    elif path[0] == "log":
        rr.log("log", rr.TextLog(m["message"], level=LEVELS.get(m["level"], "INFO")))
    elif path[0] == "status":
        rr.log("status", rr.TextDocument(json.dumps(m, indent=1)))
    else:
        for key, value in m.items():
            if isinstance(value, dict):  # a joint's values
                log([*path, key], value)
            else:
                rr.log(entity([*path, key]), rr.Scalars(float(value)))


def reach(seconds):
    """Waits until the viewer has all messages, or ends the program."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return flush(recording, timeout_sec=seconds)
        except Exception as e:
            if time.monotonic() > deadline:
                print(e, file=sys.stderr)
                sys.exit(8)
            time.sleep(0.2)


def read(size):
    """Reads bytes of stdin, and ends the program at the end of stdin."""
    b = sys.stdin.buffer.read(size)
    if len(b) < size:
        reach(1)
        sys.exit(0)
    return b


ready = os.fdopen(os.dup(1), "w")  # a viewer that starts below does not inherit it
os.dup2(2, 1)
rr.init(name)
recording = rr.get_global_data_recording()
if url:
    rr.connect_grpc(url)
else:
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")
    try:
        rr.spawn()
    except RuntimeError as e:
        print(e, file=sys.stderr)
        sys.exit(8)
reach(START)
print("ready", file=ready, flush=True)
laid = False
while True:
    channel, ns, size = struct.unpack("<IqI", read(16))
    message = json.loads(read(size))
    if not laid and paths[channel] == ["joints"]:
        laid = True
        rr.send_blueprint(rrb.Blueprint(layout(message)))
    rr.set_time("time", timestamp=numpy.datetime64(ns, "ns"))
    log(paths[channel], message)
    if paths[channel] == ["status"]:  # once a second
        reach(LOST)
