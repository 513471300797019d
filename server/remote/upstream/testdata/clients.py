"""Measures the times of requests by the Python clients of openpi and GR00T.

    clients.py openpi|gr00t PORT TOKEN

Reads a number per line from standard input, sends that many requests with two pictures of 640x480, and prints the
times in ms as JSON. openpi's pictures are scaled to 224x224 first, as its examples do; GR00T's client is written from
the documented protocol, with the calls of gr00t/policy/server_client.py.
"""

import json
import sys
import time

import msgpack
import numpy as np

from servers import pack, unpack

PICTURE = (np.arange(480 * 640 * 3) % 251).astype(np.uint8).reshape(480, 640, 3)


def openpi(port, _):
    from openpi_client import image_tools, websocket_client_policy

    policy = websocket_client_policy.WebsocketClientPolicy("127.0.0.1", int(port))

    def ask():
        pictures = [image_tools.resize_with_pad(PICTURE, 224, 224) for _ in range(2)]
        obs = {"observation/image": pictures[0], "observation/wrist_image": pictures[1], "prompt": "pick"}
        return policy.infer(obs | {"observation/state": np.ones(8, np.float32)})["actions"]

    return ask


def gr00t(port, token):
    import zmq

    socket = zmq.Context().socket(zmq.REQ)
    socket.connect(f"tcp://127.0.0.1:{port}")

    def ask():
        state = {"single_arm": np.ones((1, 1, 5), np.float32), "gripper": np.ones((1, 1, 1), np.float32)}
        obs = {
            "video": {"front": PICTURE[None, None], "wrist": PICTURE[None, None]},
            "state": state,
            "language": {"annotation.human.task_description": [["pick"]]},
        }
        request = {"endpoint": "get_action", "data": {"observation": obs, "options": None}, "api_token": token}
        socket.send(msgpack.packb(request, default=pack))
        return msgpack.unpackb(socket.recv(), object_hook=unpack)[0]["single_arm"]

    return ask


def main():
    ask = {"openpi": openpi, "gr00t": gr00t}[sys.argv[1]](*sys.argv[2:])
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            began = time.perf_counter()
            ask()
            times.append((time.perf_counter() - began) * 1000)
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
