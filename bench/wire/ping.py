"""The official Python binding as one end of a ping, or as the router between two
ends: ping|pong|route connect|listen ENDPOINT KEY

A ping reads the commands "rtt BYTES COUNT" and "flood BYTES COUNT" as lines of standard
input, and answers each with a line of JSON. All roles end at the end of standard input.
"""

import json
import queue
import sys
import time

import zenoh


def main(role, how, endpoint, key):
    conf = zenoh.Config()
    mode = "router" if role == "route" else "peer" if how == "listen" else "client"
    conf.insert_json5("mode", json.dumps(mode))
    conf.insert_json5(how + "/endpoints", json.dumps([endpoint]))
    conf.insert_json5("scouting/multicast/enabled", "false")
    # Otherwise two nodes on one host would pass large payloads through shared memory.
    conf.insert_json5("transport/shared_memory/enabled", "false")
    session = zenoh.open(conf)

    def publisher(name):
        return session.declare_publisher(
            f"{key}/{name}", congestion_control=zenoh.CongestionControl.BLOCK, express=True
        )

    if role == "ping":
        ping(session, publisher("ping"), publisher("flood"), key)
        return
    if role == "pong":
        pong = publisher("pong")
        count = 0

        def sink(sample):
            nonlocal count
            if len(sample.payload) == 1:
                pong.put(count.to_bytes(8, "little"))
                count = 0
            else:
                count += 1

        held = [
            session.declare_subscriber(f"{key}/ping", lambda sample: pong.put(sample.payload)),
            session.declare_subscriber(f"{key}/flood", sink),
        ]
    say({"version": zenoh.__version__ if hasattr(zenoh, "__version__") else ""})
    for _ in sys.stdin:
        pass


def ping(session, pings, floods, key):
    back = queue.SimpleQueue()
    held = session.declare_subscriber(f"{key}/pong", lambda sample: back.put(sample.payload.to_bytes()))

    def came(seconds):
        try:
            back.get(timeout=seconds)
            return True
        except queue.Empty:
            return False

    while not came(0.1):
        pings.put(bytes(8))
    while came(0.3):
        pass
    say({})
    for line in sys.stdin:
        what, size, count = line.split()
        payload, times = bytes(int(size)), []
        began = time.perf_counter_ns()
        if what == "rtt":
            for _ in range(int(count)):
                sent = time.perf_counter_ns()
                pings.put(payload)
                back.get()
                times.append(time.perf_counter_ns() - sent)
            say({"ns": times})
            continue
        for _ in range(int(count)):
            floods.put(payload)
        floods.put(b"\0")
        received = int.from_bytes(back.get(), "little")
        say({"ns": [time.perf_counter_ns() - began], "received": received})


def say(answer):
    print(json.dumps(answer), flush=True)


main(*sys.argv[1:])
