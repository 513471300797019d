"""Policy servers for tests: openpi's own server class, and one that speaks GR00T's documented protocol.

    servers.py openpi|gr00t --policy probe|demo [--bundle DIR] [--port N] [--preset ...] [--horizon N]

`demo` runs the demo policy by ONNX Runtime. `probe` answers row i with state + i/100, and the last row
with the middle pixel of the first picture; a task names a fault: fail, shape, nan, slow, die.
Prints its port. Needs openpi-client, openpi-server, pyzmq, msgpack, numpy; onnxruntime for demo.
"""

import argparse
import io
import os
import socket
import sys
import time

import msgpack
import numpy as np
from demo import JOINTS, Demo


class Probe:
    """A policy of known answers. Its inputs are those of infer: pictures, state [D], task."""

    def __init__(self, horizon, seconds):
        self.horizon = horizon
        self.seconds = seconds

    def infer(self, pictures, state, task):
        if task == "fail":
            raise ValueError("no policy for the task 'fail'")
        if task == "slow":
            time.sleep(60)
        if task == "die":
            os._exit(1)
        time.sleep(self.seconds)
        chunk = np.asarray(state, dtype=np.float64)[None] + np.arange(self.horizon)[:, None] / 100
        if pictures:
            middle = pictures[0]
            chunk[-1, :3] = middle[middle.shape[0] // 2, middle.shape[1] // 2]
        if task == "nan":
            chunk[0, 0] = np.nan
        return chunk[:, :-1] if task == "shape" else chunk


def picture(a):
    """Returns a as [H, W, 3]; the picture a may also be [3, H, W]."""
    return a.transpose(1, 2, 0) if a.shape[0] == 3 else a


class OpenPI:
    """A policy of openpi's server: takes the observations of droid, aloha, libero and of one camera."""

    def __init__(self, policy):
        self.policy = policy

    def infer(self, obs):
        pictures = [picture(v) for k, v in sorted(obs.items()) if "image" in k and k != "images"]
        pictures += [picture(v) for _, v in sorted(obs.get("images", {}).items())]
        for p in pictures:
            assert p.dtype == np.uint8 and p.ndim == 3, (p.dtype, p.shape)
        names = ("observation/joint_position", "observation/gripper_position", "observation/state", "state")
        state = np.concatenate([obs[k] for k in names if k in obs])
        began = time.monotonic()
        actions = self.policy.infer(pictures, state, obs.get("prompt", ""))
        return {"actions": actions, "policy_timing": {"infer_ms": (time.monotonic() - began) * 1000}}

    def reset(self):
        pass


def serve_openpi(policy, port, metadata):
    import asyncio

    from openpi_server import WebsocketPolicyServer

    server = WebsocketPolicyServer(OpenPI(policy), host="127.0.0.1", port=port, metadata=metadata)
    print(port, flush=True)
    asyncio.run(server.run())


def unpack(obj):
    if "__ndarray_class__" in obj:
        return np.load(io.BytesIO(obj["as_npy"]), allow_pickle=False)
    return obj


def pack(obj):
    if isinstance(obj, np.ndarray):
        out = io.BytesIO()
        np.save(out, obj, allow_pickle=False)
        return {"__ndarray_class__": True, "as_npy": out.getvalue()}
    raise TypeError(type(obj))


def config(keys, steps):
    return {"__ModalityConfig_class__": True, "as_json": {"modality_keys": keys, "delta_indices": list(range(steps))}}


class Gr00t:
    """GR00T's endpoints for an SO-100 with these cameras; it checks an observation as Gr00tPolicy does."""

    def __init__(self, policy, cameras, horizon):
        self.policy = policy
        self.modalities = {
            "video": config(cameras, 1),
            "state": config(["single_arm", "gripper"], 1),
            "action": config(["single_arm", "gripper"], horizon),
            "language": config(["annotation.human.task_description"], 1),
        }

    def get_action(self, observation, options):
        pictures = []
        for key in self.modalities["video"]["as_json"]["modality_keys"]:
            video = observation["video"][key]
            assert video.dtype == np.uint8 and video.ndim == 5 and video.shape[:2] == (1, 1), video.shape
            pictures.append(video[0, 0])
        parts = []
        for key in self.modalities["state"]["as_json"]["modality_keys"]:
            state = observation["state"][key]
            assert state.dtype == np.float32 and state.ndim == 3, state.shape
            parts.append(state[0, 0])
        task = observation["language"]["annotation.human.task_description"]
        assert isinstance(task, list) and isinstance(task[0], list) and isinstance(task[0][0], str), task
        chunk = self.policy.infer(pictures, np.concatenate(parts), task[0][0]).astype(np.float32)
        return [{"single_arm": chunk[None, :, :5], "gripper": np.asfortranarray(chunk[None, :, 5:])}, {}]

    def answer(self, request):
        endpoint = request.get("endpoint", "get_action")
        if endpoint == "ping":
            return {"status": "ok", "message": "Server is running"}
        if endpoint == "get_modality_config":
            return self.modalities
        if endpoint == "get_action":
            return self.get_action(**request["data"])
        if endpoint == "reset":
            return {}
        raise ValueError(f"Unknown endpoint: {endpoint}")


def serve_gr00t(server, port, token):
    import zmq

    rep = zmq.Context().socket(zmq.REP)
    rep.bind(f"tcp://127.0.0.1:{port}")
    print(port, flush=True)
    while True:
        try:
            request = msgpack.unpackb(rep.recv(), object_hook=unpack)
            if token and request.get("api_token") != token:
                result = {"error": "Unauthorized: Invalid API token"}
            else:
                result = server.answer(request)
        except Exception as e:  # as GR00T's server does
            result = {"error": str(e)}
        rep.send(msgpack.packb(result, default=pack))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("kind", choices=["openpi", "gr00t"])
    p.add_argument("--policy", choices=["probe", "demo"], default="probe")
    p.add_argument("--bundle")
    p.add_argument("--port", type=int, default=0)
    p.add_argument("--cameras", default="front")
    p.add_argument("--horizon", type=int, default=16)
    p.add_argument("--seconds", type=float, default=0, help="duration of one inference of probe")
    p.add_argument("--token", default="")
    args = p.parse_args()
    if args.port == 0:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            args.port = s.getsockname()[1]
    policy = Demo(args.bundle) if args.policy == "demo" else Probe(args.horizon, args.seconds)
    if args.kind == "openpi":
        serve_openpi(policy, args.port, {"reset_pose": [0, 0.5]})
    else:
        serve_gr00t(Gr00t(policy, args.cameras.split(","), args.horizon), args.port, args.token)


if __name__ == "__main__":
    sys.exit(main())
