"""LeRobot's control loop without robot, camera and policy, run by `bench jitter --lerobot PYTHON`.

    python - FPS SECONDS

Each turn sleeps as record_loop does, for the rest of its period after its own start, with the installed
LeRobot's precise_sleep. Prints LeRobot's version and, by microseconds, how late the next turn began.
"""

import json
import sys
import time
from collections import Counter
from importlib.metadata import version

sys.path = [folder for folder in sys.path if folder]  # not a lerobot.py of the current folder

from lerobot.utils import robot_utils  # noqa: E402

sleep = getattr(robot_utils, "precise_sleep", None) or robot_utils.busy_wait  # its earlier name
period, seconds = 1 / float(sys.argv[1]), float(sys.argv[2])
late = Counter()
began = start = time.perf_counter()
while start < began + seconds:
    sleep(max(period - (time.perf_counter() - start), 0.0))
    now = time.perf_counter()
    late[max(int((now - start - period) * 1e6), 0)] += 1
    start = now
print(json.dumps({"version": version("lerobot"), "seconds": start - began, "histogram": late}))
