#!/usr/bin/env python3
"""An official Zenoh router from the Python wheel, for hosts without zenohd.

    pip install eclipse-zenoh
    python3 router.py CONFIG.json5

It runs until SIGINT or SIGTERM. Unlike zenohd it has no plugins and no REST, and its
administration space is off.
"""

import os
import signal
import sys

# A robot that is cut off occupies a thread of the router for seconds; with no free thread, all robots
# wait.
os.environ.setdefault("ZENOH_RUNTIME", "(rx: (worker_threads: 64), tx: (worker_threads: 64), net: (worker_threads: 64))")

import zenoh  # noqa: E402 (it reads the variable)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # before the library starts its threads
    zenoh.init_log_from_env_or("error")
    config = zenoh.Config.from_file(sys.argv[1])
    config.insert_json5("mode", '"router"')
    with zenoh.open(config):
        print("router listens at", config.get_json("listen/endpoints"), flush=True)
        signal.sigwait(ends)


if __name__ == "__main__":
    main()
