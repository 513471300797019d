"""An official Zenoh node that a test drives: one JSON command per line on
standard input, one JSON event per line on standard output.

    {"do": "open", "mode": "client", "connect": ["tcp/127.0.0.1:7447"]}
    {"do": "put", "key": "a/b", "hex": "6869", "attachment": "00"}

Every command is answered by {"done": <its "do">, ...}; samples, queries and
token changes come as {"event": ..., ...} whenever they happen. The node ends
when its standard input does.

Needs: pip install eclipse-zenoh==1.9.0
"""

import json
import sys
import threading

import zenoh

out_lock = threading.Lock()


def say(**event):
    with out_lock:
        print(json.dumps(event), flush=True)


def text_of(value):
    return bytes(value).hex() if value is not None else None


class Node:
    def __init__(self):
        self.session = None
        self.held = {}

    def open(self, mode="client", connect=(), listen=(), lease_ms=None, config=None):
        conf = zenoh.Config()
        conf.insert_json5("mode", json.dumps(mode))
        conf.insert_json5("connect/endpoints", json.dumps(list(connect)))
        conf.insert_json5("listen/endpoints", json.dumps(list(listen)))
        conf.insert_json5("scouting/multicast/enabled", "false")
        if lease_ms is not None:
            conf.insert_json5("transport/link/tx/lease", str(lease_ms))
        for path, value in (config or {}).items():
            conf.insert_json5(path, json.dumps(value))
        self.session = zenoh.open(conf)

    def put(self, key, hex="", size=None, attachment=None, priority=None, block=False, express=False):
        payload = bytes.fromhex(hex) if size is None else bytes(i * 7 % 251 for i in range(size))
        self.session.put(
            key,
            payload,
            attachment=None if attachment is None else bytes.fromhex(attachment),
            congestion_control=zenoh.CongestionControl.BLOCK if block else zenoh.CongestionControl.DROP,
            priority=zenoh.Priority.DATA if priority is None else zenoh.Priority(priority),
            express=express,
        )

    def publisher(self, name, key):
        self.held[name] = self.session.declare_publisher(key)

    def publish(self, name, hex):
        self.held[name].put(bytes.fromhex(hex))

    def subscribe(self, name, key):
        def on(sample):
            payload = bytes(sample.payload)
            say(
                event="sample",
                name=name,
                key=str(sample.key_expr),
                size=len(payload),
                hex=payload[:64].hex(),
                sum=sum(payload) % 65521,
                attachment=text_of(sample.attachment),
                priority=int(sample.priority),
                express=sample.express,
            )

        self.held[name] = self.session.declare_subscriber(key, on)

    def queryable(self, name, key, error=False):
        def on(query):
            payload = bytes(query.payload) if query.payload is not None else b""
            say(event="query", name=name, key=str(query.key_expr), hex=payload.hex())
            if error:
                query.reply_err(b"no: " + payload)
            else:
                query.reply(str(query.key_expr), b"re:" + payload)

        self.held[name] = self.session.declare_queryable(key, on)

    def get(self, key, hex=None, timeout=5.0):
        replies = []
        payload = None if hex is None else bytes.fromhex(hex)
        for r in self.session.get(key, payload=payload, timeout=timeout):
            if r.ok is not None:
                replies.append({"key": str(r.ok.key_expr), "hex": bytes(r.ok.payload).hex()})
            else:
                replies.append({"error": bytes(r.err.payload).hex()})
        return {"replies": replies}

    def token(self, name, key):
        self.held[name] = self.session.liveliness().declare_token(key)

    def watch(self, name, key, history=True):
        def on(sample):
            say(event="token", name=name, key=str(sample.key_expr), alive=sample.kind == zenoh.SampleKind.PUT)

        self.held[name] = self.session.liveliness().declare_subscriber(key, on, history=history)

    def tokens(self, key, timeout=5.0):
        keys = [str(r.ok.key_expr) for r in self.session.liveliness().get(key, timeout=timeout) if r.ok is not None]
        return {"keys": sorted(keys)}

    def undeclare(self, name):
        self.held.pop(name).undeclare()

    def matching(self, name):
        return {"matching": bool(self.held[name].matching_status.matching)}

    def close(self):
        self.session.close()


def main():
    node = Node()
    say(event="ready", version=zenoh.__version__ if hasattr(zenoh, "__version__") else "")
    for line in sys.stdin:
        command = json.loads(line)
        do = command.pop("do")
        try:
            answer = getattr(node, do)(**command) or {}
            say(done=do, **answer)
        except Exception as e:
            say(done=do, failed=f"{type(e).__name__}: {e}")


main()
