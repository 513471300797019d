"""An official Zenoh node that a test drives.

It reads commands from standard input and writes answers and events to standard
output, as frames: three little-endian numbers of four bytes (the lengths of the
header, the payload and the attachment; 0xffffffff: absent), then the header in JSON,
the payload and the attachment. Every command has an id, and its answer is
{"answer": id, ...}; samples, queries, replies and token changes are written as
{"event": ..., ...} when they happen. The node ends at the end of standard input.
"""

import itertools
import json
import os
import struct
import sys
import threading

import zenoh
from zenoh.handlers import Callback

NONE = 0xFFFFFFFF

PRIORITIES = "REAL_TIME INTERACTIVE_HIGH INTERACTIVE_LOW DATA_HIGH DATA DATA_LOW BACKGROUND".split()

# The library logs to standard output, which only frames may use: its output is
# redirected to standard error.
out = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
out_lock = threading.Lock()


def say(payload=None, attachment=None, **header):
    text = json.dumps(header).encode()
    sizes = [len(text)] + [NONE if b is None else len(b) for b in (payload, attachment)]
    with out_lock:
        out.write(struct.pack("<III", *sizes) + text)
        out.write(payload or b"")
        out.write(attachment or b"")
        out.flush()


def hear():
    """The next frame, or None at the end."""
    read = sys.stdin.buffer.read
    head = read(12)
    if len(head) < 12:
        return None
    size, payload, attachment = struct.unpack("<III", head)
    header = json.loads(read(size))
    blobs = [None if n == NONE else read(n) for n in (payload, attachment)]
    return header, *blobs


def bytes_of(value):
    return None if value is None else value.to_bytes()


def content_of(sample):
    """The contents of a sample, also of a reply's, as the arguments of say."""
    return dict(key=str(sample.key_expr), payload=bytes_of(sample.payload), attachment=bytes_of(sample.attachment))


class Node:
    def __init__(self):
        self.session = None
        self.held = {}
        self.queries = {}
        self.numbers = itertools.count(1)

    def open(self, mode, connect, listen, config):
        conf = zenoh.Config()
        conf.insert_json5("mode", json.dumps(mode))
        conf.insert_json5("connect/endpoints", json.dumps(connect))
        conf.insert_json5("listen/endpoints", json.dumps(listen))
        conf.insert_json5("scouting/multicast/enabled", "false")
        conf.insert_json5("transport/shared_memory/enabled", "false")
        for path, value in config.items():
            conf.insert_json5(path, json.dumps(value))
        self.session = zenoh.open(conf)

    def close(self):
        self.session.close()
        self.held.clear()
        self.queries.clear()

    def connected(self):
        return {"yes": len(self.session.info.transports()) > 0}

    def publisher(self, name, key, priority, block, express, reliable):
        self.held[name] = self.session.declare_publisher(
            key,
            congestion_control=zenoh.CongestionControl.BLOCK if block else zenoh.CongestionControl.DROP,
            priority=getattr(zenoh.Priority, PRIORITIES[priority - 1]),
            express=express,
            reliability=zenoh.Reliability.RELIABLE if reliable else zenoh.Reliability.BEST_EFFORT,
        )

    def put(self, name, payload, attachment):
        self.held[name].put(payload, attachment=attachment)

    def subscribe(self, name, key):
        def on(sample):
            say(event="sample", name=name, **content_of(sample))

        # Samples are handled on the receiving thread itself, so that a slow subscriber
        # blocks the sender. No other callback runs on it: the replies to a query on that
        # thread and a query sent at the same time would block each other for five
        # seconds, which ends the link.
        self.held[name] = self.session.declare_subscriber(key, Callback(on, indirect=False))

    def queryable(self, name, key):
        def on(query):
            number = next(self.numbers)  # atomic, unlike +=: queries arrive on several threads
            self.queries[number] = query
            say(event="query", name=name, query=number, key=str(query.key_expr), payload=bytes_of(query.payload))

        self.held[name] = self.session.declare_queryable(key, Callback(on))

    def reply(self, query, key, payload, attachment):
        self.queries[query].reply(key, payload)

    def reply_err(self, query, payload, attachment):
        self.queries[query].reply_err(payload)

    def finish(self, query):
        self.queries.pop(query).drop()

    def get(self, name, key, payload, attachment, timeout):
        def on(reply):
            if reply.ok is not None:
                say(event="reply", name=name, **content_of(reply.ok))
            else:
                say(event="reply", name=name, error=True, payload=bytes_of(reply.err.payload))

        self.session.get(
            key,
            Callback(on, lambda: say(event="final", name=name)),
            payload=payload,
            target=zenoh.QueryTarget.ALL,
            consolidation=zenoh.ConsolidationMode.NONE,
            timeout=timeout,
        )

    def token(self, name, key):
        self.held[name] = self.session.liveliness().declare_token(key)

    def watch(self, name, key, history):
        def on(sample):
            say(event="token", name=name, key=str(sample.key_expr), alive=sample.kind == zenoh.SampleKind.PUT)

        self.held[name] = self.session.liveliness().declare_subscriber(key, Callback(on), history=history)

    def tokens(self, name, key, timeout):
        def on(reply):
            if reply.ok is not None:
                say(event="reply", name=name, key=str(reply.ok.key_expr))

        self.session.liveliness().get(key, Callback(on, lambda: say(event="final", name=name)), timeout=timeout)

    def undeclare(self, name):
        self.held.pop(name).undeclare()


def main():
    zenoh.init_log_from_env_or("error")
    node = Node()
    say(event="ready")
    while frame := hear():
        command, payload, attachment = frame
        number, do = command.pop("id"), command.pop("do")
        if do in ("put", "reply", "reply_err", "get"):
            command.update(payload=payload, attachment=attachment)
        try:
            say(answer=number, **(getattr(node, do)(**command) or {}))
        except Exception as e:
            say(answer=number, failed=f"{type(e).__name__}: {e}"[:500])


main()
