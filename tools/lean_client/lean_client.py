"""A small client of lean-server for your own control loop, over Zenoh (docs/wire.md, schema 1).

    with Client("tcp/HOST:7447", action_names=JOINTS, cameras={"top": (480, 640)}) as client:
        client.observe(state, {"top": picture}, task="pick the cube")
        chunk = client.chunk(timeout=1.0)   # float32 [rows, joints]; row 0 is the next action; None: none came

Needs eclipse-zenoh, msgpack and numpy.
"""

from __future__ import annotations

import contextlib
import json
import queue
import re
import secrets
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType

import msgpack
import numpy as np
import zenoh

HEADER = struct.Struct("<HBQIqI")  # schema, type, sequence, episode, stamp, epoch
OBSERVATION, CHUNK, EVENT = 1, 2, 3
LATER = ("late", "unavailable", "draining", "unknown_session")  # codes of events after which another attempt may succeed
FINAL = (*LATER, "bad_observation")  # codes of events instead of a chunk; others are information
ANSWERS = 16  # most chunks and events that wait for the caller


MAX_ROWS = 4096  # docs/wire.md, "Limits"
MAX_MESSAGE = 16 << 20  # largest message of lean-server's transport, in bytes (docs/zenoh.md)
SOON = 1.0  # seconds in which the servers of a service report their loads


class Refused(RuntimeError):
    """The server opened no session, or sent an event; the text has its reason.

    code is the event's, or empty; retry is whether a later attempt may succeed.
    """

    def __init__(self, text: str, code: str = "", retry: bool = False) -> None:
        super().__init__(text)
        self.code, self.retry = code, retry


def _tensor(value: np.ndarray) -> dict:
    value = np.ascontiguousarray(value, "<f4")
    return {"dtype": "<f4", "shape": list(value.shape), "data": value.tobytes()}


def _pictures(images: Mapping[str, np.ndarray]) -> dict[str, dict]:
    for name, p in images.items():
        if p.dtype != np.uint8 or p.ndim != 3 or p.shape[2] != 3:
            raise ValueError(f"picture {name}: got {p.dtype} {p.shape}, want uint8 (height, width, 3)")
    return {
        f"observation.images.{name}": {"codec": "raw", "shape": list(p.shape), "data": p.tobytes()}
        for name, p in images.items()
    }


def _chunk(body: dict, width: int) -> np.ndarray:
    """Returns the actions of an ActionChunk; raises ValueError where they are no finite float matrix of this width."""
    t = body.get("chunk_robot")
    if not isinstance(t, dict) or t.get("dtype") not in ("<f4", "<f8") or not isinstance(t.get("data"), bytes):
        raise ValueError("a chunk without chunk_robot")
    shape = t.get("shape")
    if not isinstance(shape, list) or len(shape) != 2 or not all(isinstance(n, int) for n in shape):
        raise ValueError(f"a chunk of the shape {shape}, want [rows, joints]")
    rows, columns = shape
    if not 0 < rows <= MAX_ROWS or columns != width:
        raise ValueError(f"a chunk of {rows} x {columns} actions, want at most {MAX_ROWS} x {width}")
    chunk = np.frombuffer(t["data"], t["dtype"]).reshape(rows, columns).astype("<f4")
    if not np.isfinite(chunk).all():
        raise ValueError("a chunk with actions that are not finite")
    return chunk


class Link:
    """A connection to the server, and the service that it offers.

    server is a Zenoh endpoint, such as tcp/HOST:7447; service chooses among several, by the last part of their keys;
    config is a file of Zenoh settings (JSON5), for TLS. Raises Refused where no server answers within timeout seconds,
    or there are several services.
    """

    def __init__(self, server: str, *, service: str = "", config: str = "", timeout: float = 5.0) -> None:
        if "/" not in server:
            raise ValueError(f"server is {server!r}, want an endpoint of Zenoh, such as tcp/{server or 'HOST:7447'}")
        self._server, self._timeout = server, timeout
        settings = zenoh.Config.from_file(config) if config else zenoh.Config()
        settings.insert_json5("mode", '"client"')
        settings.insert_json5("connect/endpoints", json.dumps([server]))
        settings.insert_json5("connect/timeout_ms", str(int(timeout * 1000)))
        settings.insert_json5("scouting/multicast/enabled", "false")
        try:
            self.session = zenoh.open(settings)
        except zenoh.ZError as error:
            reason = str(error).split(" at /")[0]  # without the path of Zenoh's source
            raise Refused(f"no connection to {server}: is lean-server running there? ({reason})", retry=True) from error
        try:
            self.prefix = self._service(service)
        except BaseException:
            self.session.close()
            raise

    def _service(self, service: str) -> str:
        deadline = time.monotonic() + self._timeout
        while True:
            tokens = self.session.liveliness().get("@lerobot/*/*/*/server/alive", timeout=self._timeout)
            found = sorted({str(reply.ok.key_expr).removesuffix("/server/alive") for reply in tokens if reply.ok})
            if service:
                found = [prefix for prefix in found if prefix.endswith("/" + service)]
            if len(found) == 1:
                return found[0]
            if found:
                raise Refused(f"several services at {self._server}: {', '.join(found)}")
            if time.monotonic() > deadline:
                raise Refused(f"no policy server at {self._server}: is lean-server running there?", retry=True)
            time.sleep(0.1)

    def answers(self, key: str, body: bytes, timeout: float) -> Iterator[dict]:
        """Yields the answers of all servers to a query, in the order of their arrival."""
        every = {"target": zenoh.QueryTarget.ALL, "consolidation": zenoh.ConsolidationMode.NONE}
        for reply in self.session.get(key, payload=body, timeout=timeout, **every):
            if reply.ok and isinstance(answer := msgpack.unpackb(reply.ok.payload.to_bytes()), dict):
                yield answer

    def ask(self, key: str, body: bytes) -> dict:
        for answer in self.answers(key, body, self._timeout):
            return answer
        raise Refused(f"no answer at {key} within {self._timeout} s", retry=True)

    def status(self) -> dict:
        """Returns the server's Status (docs/wire.md): names of actions and cameras, chunk size, rate."""
        return self.ask(f"{self.prefix}/status", b"")

    def statuses(self) -> list[dict]:
        """Returns the Status of every server that answers soon, the least loaded first; if none does, that of the
        first to answer."""
        found = list(self.answers(f"{self.prefix}/status", b"", min(self._timeout, SOON))) or [self.status()]
        return sorted(found, key=lambda s: (bool(s.get("draining")), float(s.get("server_load") or 0)))

    def warm(self) -> list[dict]:
        """Returns the statuses of the servers that have run their policy; raises Refused where none has within timeout
        seconds.

        The first inference of many policies takes longer than an arm may wait.
        """
        deadline = time.monotonic() + self._timeout
        while not (warm := [s for s in self.statuses() if s.get("warmed_up")]):
            if time.monotonic() > deadline:
                text = f"the server has not warmed its policy up within {self._timeout:g} s (warmed_up): wait longer"
                raise Refused(text, retry=True)
            time.sleep(0.1)
        return warm


def status(server: str, *, service: str = "", config: str = "", timeout: float = 5.0) -> dict:
    """Returns the server's Status without a session; raises Refused as Link does."""
    link = Link(server, service=service, config=config, timeout=timeout)
    try:
        return link.status()
    finally:
        link.session.close()


class Client:
    """One robot's session with one lean-server.

    action_names are the joints in the policy's order, action_units their units, where they are known; cameras maps a
    name to (height, width) of its pictures. instance identifies this process when it opens the same name again.
    Raises Refused as Link does, and where the server refuses.
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
        robot_type: str = "python",
        action_units: Sequence[str] = (),
        observation_steps: int = 1,
        instance: str = "",
        epoch: int = 1,
        service: str = "",
        config: str = "",
    ) -> None:
        if not re.fullmatch("[A-Za-z0-9_.-]*", name):
            raise ValueError(f"name is {name!r}, want letters, digits, _ . and -")
        self.name = name or f"python-{secrets.token_hex(4)}"
        self._sequence, self._episode, self._epoch, self._want = 0, 0, epoch, None
        self._width, self._first = len(action_names), True
        self._task = ""  # of the newest reset with one
        self._answers: queue.Queue[tuple[tuple, dict]] = queue.Queue(maxsize=ANSWERS)
        self.notice = ""  # text of the newest event that was information, such as a quota
        self._link = Link(server, service=service, config=config, timeout=timeout)
        try:
            prefix = self._link.prefix
            self._key = f"{prefix}/{self.name}"
            # Zenoh would call a callback in a thread that keeps the program alive after its main thread's end.
            subscriber = self._link.session.declare_subscriber(self._key + "/action", zenoh.handlers.FifoChannel(ANSWERS))
            threading.Thread(target=self._receive, args=(subscriber,), name="lean_client", daemon=True).start()
            names = [f"observation.images.{camera}" for camera in cameras]
            body = {
                "op": "open", "client_uuid": self.name, "robot_type": robot_type, "policy_type": "",
                "fps": float(fps), "action_names": list(action_names), "camera_names": names, "state_dim": 0,
                "schema_version": 1, "rtc_enabled": rtc, "task": task, "tags": {},
                "session_epoch": epoch,
                "camera_shapes": {f"observation.images.{c}": [*size, 3] for c, size in cameras.items()},
                "instance": instance or secrets.token_hex(8), "host": socket.gethostname(),
                "observation_steps": observation_steps, "raw_images": names,
            }
            if action_units:
                body["action_units"] = list(action_units)
            self.ack = self._open(body)
            self._token = self._link.session.liveliness().declare_token(f"{self._key}/{epoch}/alive")
        except BaseException:
            self._link.session.close()
            raise

    def _open(self, body: dict) -> dict:
        """Returns the ack of the first server that accepts the session; else raises the Refused that gives another
        attempt the best chance."""
        refused = None
        for status in self._link.warm():
            body["server_id"] = status.get("server_id", "")
            try:
                ack = self._link.ask(self._key + "/session", msgpack.packb(body))
            except Refused as error:  # the server has ended since
                refused = refused or error
                continue
            if ack.get("accepted"):
                return ack
            text = ack.get("error") or "the server refuses the session"
            temporary = ack.get("draining") or ack.get("retry_after_ms") or text.startswith("server full: ")
            if refused is None or temporary and not refused.retry:
                refused = Refused(text, retry=bool(temporary))
        raise refused

    def _receive(self, subscriber: zenoh.Subscriber) -> None:
        for sample in subscriber:
            try:
                header = HEADER.unpack(sample.attachment.to_bytes() if sample.attachment else b"")
                body = msgpack.unpackb(sample.payload.to_bytes())
            except (struct.error, ValueError, msgpack.UnpackException):
                continue
            if isinstance(body, dict):
                self._keep(header, body)

    def _keep(self, header: tuple, body: dict) -> None:
        """Keeps an answer for chunk(). If there are too many, drops the oldest, since only the newest request
        counts."""
        while True:
            try:
                return self._answers.put_nowait((header, body))
            except queue.Full:
                with contextlib.suppress(queue.Empty):  # chunk has just taken it
                    self._answers.get_nowait()

    def observe(
        self,
        state: np.ndarray,
        images: Mapping[str, np.ndarray],
        *,
        task: str = "",
        prefix: np.ndarray | None = None,
        delay: int = 0,
        past: Sequence[tuple[np.ndarray, Mapping[str, np.ndarray]]] = (),
    ) -> None:
        """Sends an observation: state [joints] in robot units, images [height, width, 3] of uint8 RGB; else ValueError.

        prefix [rows, joints] are the actions that run until the chunk arrives, the next one first; delay is how
        many of them will have run by then. Both only with rtc=True. past has the state and the images of the control
        steps before this one, the oldest first, as many as the session's observation_steps less one.
        """
        self._sequence += 1
        self._want = (self._sequence, secrets.randbits(62))
        body = {
            "state": _tensor(np.asarray(state)),
            "images": _pictures(images),
            "task": task or self._task, "inference_delay_steps": int(delay), "prefix_model": None,
            "prefix_robot": None if prefix is None or not len(prefix) else _tensor(prefix),
            "episode_start": self._first, "t": self._sequence,
        }
        if past:
            earlier = [_pictures(pictures) for _, pictures in past]
            body["past_states"] = _tensor(np.stack([state for state, _ in past]))
            body["past_images"] = {name: [pictures[name] for pictures in earlier] for name in body["images"]}
        self._first = False
        header = HEADER.pack(1, OBSERVATION, self._sequence, self._episode, self._want[1], self._epoch)
        message = msgpack.packb(body)
        if len(message) > MAX_MESSAGE:  # the server's transport would drop it, and nothing would answer
            raise ValueError(f"an observation of {len(message)} bytes, want at most {MAX_MESSAGE}: send smaller pictures")
        self._link.session.put(self._key + "/obs", message, attachment=header)

    def chunk(self, timeout: float) -> np.ndarray | None:
        """Returns the chunk of the newest observation, float32 [rows, joints], or None after timeout seconds.

        Raises Refused with the server's text where there will be no chunk, and ValueError for a malformed chunk.
        """
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            try:
                header, body = self._answers.get(timeout=left)
            except queue.Empty:
                return None
            _, kind, sequence, _, stamp, _ = header
            if kind == CHUNK and (sequence, stamp) == self._want:
                return _chunk(body, self._width)
            if kind == EVENT and self._concerns(header, body):
                code = str(body.get("code"))
                if code in FINAL:
                    raise Refused(f"{code}: {body.get('text')}", code, code in LATER)
                self.notice = f"{code}: {body.get('text')}"
        return None

    def _concerns(self, header: tuple, body: dict) -> bool:
        """Returns whether an event is of this session, and of its newest observation or of none."""
        _, _, sequence, _, stamp, epoch = header
        if (body.get("server_id"), body.get("nonce")) != (self.ack.get("server_id"), self.ack.get("nonce")):
            return False  # another server of the service, or any other client, may publish here
        return epoch == self._epoch and (sequence == 0 or (sequence, stamp) == self._want)

    def reset(self, task: str = "") -> None:
        """Begins an episode: the policy forgets the past. The task is that of later observations without one. Raises
        Refused where the server refuses the task."""
        body = {"client_uuid": self.name, "episode_id": self._episode + 1}
        if task:
            body["task"] = task
        answer = self._link.ask(self._key + "/reset", msgpack.packb(body))
        if not answer.get("ok", True):
            raise Refused(answer.get("error") or "the server refuses the reset")
        self._episode += 1
        self._first, self._want = True, None
        self._task = task or self._task

    def close(self) -> None:
        """Ends the session."""
        try:
            body = {"op": "close", "client_uuid": self.name, "session_id": self.ack.get("session_id", "")}
            self._link.ask(self._key + "/session", msgpack.packb(body))
        except Refused:
            pass  # the server is gone
        finally:
            self._link.session.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
