"""openpi's released client against a server: requests for some seconds, statistics as JSON.

    client.py URL [--seconds N] [--key API_KEY] [--cameras observation/image,...] [--size HEIGHTxWIDTH]
              [--state observation/state:6,...] [--rate HZ]
"""

import argparse
import json
import time
import urllib.request

import numpy as np
from openpi_client import websocket_client_policy


def main():
    p = argparse.ArgumentParser()
    p.add_argument("url")
    p.add_argument("--seconds", type=float, default=1)
    p.add_argument("--key")
    p.add_argument("--cameras", default="observation/image")
    p.add_argument("--size", default="224x224")
    p.add_argument("--state", default="observation/state:6")
    p.add_argument("--rate", type=float, default=0)
    p.add_argument("--prompt", default="")
    args = p.parse_args()
    height, width = map(int, args.size.split("x"))
    noise = np.random.default_rng(0)
    policy = websocket_client_policy.WebsocketClientPolicy(args.url, api_key=args.key)
    obs = {k: noise.integers(0, 256, (height, width, 3), dtype=np.uint8) for k in args.cameras.split(",")}
    for part in args.state.split(","):
        key, size = part.rsplit(":", 1)
        obs[key] = np.zeros(int(size))
    if args.prompt:
        obs["prompt"] = args.prompt
    took, timing = [], []
    exceptions, shape, first = [], None, None
    end = time.monotonic() + args.seconds
    while time.monotonic() < end or not took:
        began = time.monotonic()
        try:
            answer = policy.infer(obs)
            shape, first = answer["actions"].shape, answer["actions"][0].tolist()
            assert answer["actions"].dtype.kind == "f" and np.isfinite(answer["actions"]).all()
            timing.append(answer["server_timing"]["infer_ms"])
        except Exception as e:
            exceptions.append(repr(e))
            if len(exceptions) > 10:
                break
        took.append((time.monotonic() - began) * 1000)
        if args.rate:
            time.sleep(max(0, 1 / args.rate - (time.monotonic() - began)))
    health = urllib.request.urlopen(args.url.replace("ws://", "http://") + "/healthz").read().decode()
    print(json.dumps({
        "metadata": policy.get_server_metadata(),
        "shape": shape,
        "first": first,
        "requests": len(took),
        "exceptions": exceptions,
        "ms_p50": float(np.percentile(took, 50)),
        "ms_p99": float(np.percentile(took, 99)),
        "server_ms_p50": float(np.percentile(timing, 50)) if timing else None,
        "health": health,
    }))


if __name__ == "__main__":
    main()
