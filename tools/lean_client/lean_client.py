"""A small client of lean-server for your own control loop, over Zenoh (docs/wire.md, schema 1).

    with Client("tcp/HOST:7447", action_names=JOINTS, cameras={"top": (480, 640)}) as client:
        client.observe(state, {"top": picture}, task="pick the cube")
        chunk = client.chunk(timeout=1.0)   # float32 [rows, joints]; row 0 is the next action; None: none came

Needs eclipse-zenoh, msgpack and numpy.
"""

from __future__ import annotations

import json
import queue
import secrets
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

import msgpack
import numpy as np
import zenoh

HEADER = struct.Struct("<HBQIqI")  # schema, type, sequence, episode, stamp, epoch
OBSERVATION, CHUNK, EVENT = 1, 2, 3


class Refused(RuntimeError):
    """The server opened no session, or sent an event; the text has its reason."""


def _tensor(value: np.ndarray) -> dict:
    value = np.ascontiguousarray(value, "<f4")
    return {"dtype": "<f4", "shape": list(value.shape), "data": value.tobytes()}


class Client:
    """One robot's session with one lean-server.

    action_names are the joints in the policy's order; cameras maps a name to (height, width) of its pictures.
    Raises Refused where no server answers, there are several services, or the server refuses.
    """

    def __init__(
        self,
        server: str,
        *,
        action_names: Sequence[str],
        cameras: Mapping[str, tuple[int, int]],
        name: str = "",
        fps: float = 0,
        task: str = "",
        rtc: bool = False,
        timeout: float = 5.0,
    ) -> None:
        self.name = name or f"python-{secrets.token_hex(4)}"
        self._timeout, self._sequence, self._want = timeout, 0, None
        self._answers: queue.Queue[tuple[tuple, dict]] = queue.Queue(maxsize=16)
        config = zenoh.Config()
        config.insert_json5("mode", '"client"')
        config.insert_json5("connect/endpoints", json.dumps([server]))
        config.insert_json5("scouting/multicast/enabled", "false")
        self._session = zenoh.open(config)
        try:
            prefix = self._service()
            self._key = f"{prefix}/{self.name}"
            self._subscriber = self._session.declare_subscriber(self._key + "/action", self._receive)
            names = [f"observation.images.{camera}" for camera in cameras]
            status = self._ask(f"{prefix}/status", b"")
            self.ack = self._ask(
                self._key + "/session",
                msgpack.packb({
                    "op": "open", "client_uuid": self.name, "robot_type": "python", "policy_type": "", "fps": float(fps),
                    "action_names": list(action_names), "camera_names": names, "state_dim": 0, "schema_version": 1,
                    "rtc_enabled": rtc, "task": task, "tags": {}, "server_id": status.get("server_id", ""),
                    "session_epoch": 1, "instance": secrets.token_hex(8), "host": socket.gethostname(),
                    "camera_shapes": {f"observation.images.{c}": [*size, 3] for c, size in cameras.items()},
                    "raw_images": names,
                }),
            )
            if not self.ack.get("accepted"):
                raise Refused(self.ack.get("error") or "the server refuses the session")
            self._token = self._session.liveliness().declare_token(f"{self._key}/1/alive")
        except BaseException:
            self._session.close()
            raise

    def _service(self) -> str:
        deadline = time.monotonic() + self._timeout
        while True:
            tokens = self._session.liveliness().get("@lerobot/*/*/*/server/alive", timeout=self._timeout)
            found = sorted({str(reply.ok.key_expr).removesuffix("/server/alive") for reply in tokens if reply.ok})
            if len(found) == 1:
                return found[0]
            if found:
                raise Refused(f"several services: {', '.join(found)}")
            if time.monotonic() > deadline:
                raise Refused("no server is there: is lean-server running, and is this its address?")
            time.sleep(0.1)

    def _ask(self, key: str, body: bytes) -> dict:
        for reply in self._session.get(key, payload=body, timeout=self._timeout):
            if reply.ok:
                return msgpack.unpackb(reply.ok.payload.to_bytes())
        raise Refused(f"no answer at {key} within {self._timeout} s")

    def _receive(self, sample: zenoh.Sample) -> None:
        if sample.attachment is None:
            return
        try:
            header = HEADER.unpack(sample.attachment.to_bytes())
            self._answers.put_nowait((header, msgpack.unpackb(sample.payload.to_bytes())))
        except (struct.error, ValueError, queue.Full, msgpack.UnpackException):
            return

    def observe(
        self,
        state: np.ndarray,
        images: Mapping[str, np.ndarray],
        *,
        task: str = "",
        prefix: np.ndarray | None = None,
        delay: int = 0,
    ) -> None:
        """Sends an observation: state [joints] in robot units, images [height, width, 3] of uint8 RGB.

        prefix [rows, joints] are the actions that run until the chunk arrives, the next one first; delay is how
        many of them will have run by then. Both only with rtc=True.
        """
        self._sequence += 1
        self._want = (self._sequence, secrets.randbits(62))
        body = {
            "state": _tensor(np.asarray(state)),
            "images": {
                f"observation.images.{name}": {"codec": "raw", "shape": list(p.shape), "data": p.tobytes()}
                for name, p in images.items()
            },
            "task": task, "inference_delay_steps": int(delay), "prefix_model": None,
            "prefix_robot": None if prefix is None or not len(prefix) else _tensor(prefix),
            "episode_start": self._sequence == 1, "t": self._sequence,
        }
        header = HEADER.pack(1, OBSERVATION, self._sequence, 0, self._want[1], 1)
        self._session.put(self._key + "/obs", msgpack.packb(body), attachment=header)

    def chunk(self, timeout: float) -> np.ndarray | None:
        """Returns the chunk of the newest observation, float32 [rows, joints], or None after timeout seconds.

        Raises Refused with the server's text where there will be no chunk.
        """
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            try:
                header, body = self._answers.get(timeout=left)
            except queue.Empty:
                return None
            _, kind, sequence, _, stamp, _ = header
            if kind == CHUNK and (sequence, stamp) == self._want:
                t = body["chunk_robot"]
                return np.frombuffer(t["data"], t["dtype"]).reshape(t["shape"]).astype("<f4")
            if kind == EVENT and (sequence in (0, self._sequence)):
                raise Refused(f"{body.get('code')}: {body.get('text')}")
        return None

    def close(self) -> None:
        """Ends the session."""
        try:
            body = {"op": "close", "client_uuid": self.name, "session_id": self.ack.get("session_id", "")}
            self._ask(self._key + "/session", msgpack.packb(body))
        except Refused:
            pass  # the server is gone
        finally:
            self._session.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
