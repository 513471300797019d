"""A whole episode of edge-rt with lean-server against LeRobot's own RTC engine, on the same observations.

edge-rt drives a simulated arm; lean-server computes a SmolVLA with random weights in its worker and keeps each request.
Then LeRobot's RTCInferenceEngine runs that episode again in one thread: its clock is the record's, and its observations
are those on the wire. Its queues, prefixes, delays, chunks and actions have to be the same bytes.
"""

import bisect
import contextlib
import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import checkpoints
import numpy as np
import pytest
import smolvla_checkpoint
import torch
from conftest import ROOT
from lerobot.policies.rtc import ActionQueue
from lerobot.policies.rtc.configuration_rtc import RTCConfig
from mcap.reader import make_reader
from mcap_protobuf.decoder import DecoderFactory
from safetensors import safe_open

pytest.importorskip("lerobot.rollout.inference.rtc", exc_type=ImportError)
from lerobot.rollout.inference import rtc as engine

FPS, THRESHOLD = 30, 30  # LeRobot's threshold of the queue, in actions
TASK = smolvla_checkpoint.TASKS[0]
JOINTS = {"dtype": "float32", "shape": (6,), "names": checkpoints.JOINTS}
INFO = {"fps": FPS, "robot_type": "so101_follower", "features": {"action": JOINTS, "observation.state": JOINTS}}


def unpack(data: bytes, at: int = 0):
    """The MessagePack value at a place, and the place after it, for the kinds of values that the wire uses."""
    kind = data[at]
    at += 1
    number = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
    sized = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}
    if kind in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[kind], at
    if kind <= 0x7F or kind >= 0xE0:
        return (kind if kind <= 0x7F else kind - 256), at
    if kind in number:
        return struct.unpack_from(number[kind], data, at)[0], at + struct.calcsize(number[kind])
    if kind in sized:
        n, at = struct.unpack_from(sized[kind], data, at)[0], at + struct.calcsize(sized[kind])
    else:
        n = kind & (0x1F if kind >= 0xA0 else 0x0F)
    if kind in (0xC4, 0xC5, 0xC6):
        return data[at : at + n], at + n
    if 0xA0 <= kind <= 0xBF or kind in (0xD9, 0xDA, 0xDB):
        return data[at : at + n].decode(), at + n
    values = []
    for _ in range(n * (2 if kind <= 0x8F or kind in (0xDE, 0xDF) else 1)):
        value, at = unpack(data, at)
        values.append(value)
    return (dict(zip(values[::2], values[1::2])) if kind <= 0x8F or kind in (0xDE, 0xDF) else values), at


def tensor(of: dict | None) -> np.ndarray | None:
    return None if of is None else np.frombuffer(of["data"], of["dtype"]).reshape(of["shape"])


def written(captures: Path) -> list[Path]:
    """Waits until lean-server has written the last file of a full ring, and returns the ring's files."""
    sizes = None
    while sizes != (now := [(p, p.stat().st_size) for p in sorted(captures.iterdir())]):
        sizes = now
        time.sleep(0.5)
    return [p for p, size in sizes if size]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


class Episode:
    """The record of edge-rt and the requests that lean-server kept."""

    def __init__(self, name: str, record: Path, captures: Path) -> None:
        self.ticks, asked, joined = [], {}, {}
        for _, channel, _, m in make_reader(record.open("rb"), decoder_factories=[DecoderFactory()]).iter_decoded_messages():
            if channel.topic == "/tick":
                self.ticks.append(m)
            elif channel.topic == "/request":
                asked[m.seq] = m
            elif channel.topic == "/chunk" and m.outcome == "joined":
                joined[m.seq] = m
        begun = [t.t_ns for t in self.ticks]
        at = lambda m: bisect.bisect_right(begun, m.t_ns) - 1
        self.requests = {}  # answered requests, by the tick of the request
        self.unanswered = {at(m) for seq, m in asked.items() if seq not in joined}
        for path in written(captures):
            with safe_open(path, "numpy") as f:
                parts, meta = {k: f.get_tensor(k).tobytes() for k in f.keys()}, f.metadata()
            seq = struct.unpack_from("<Q", parts["header"], 3)[0]
            if seq not in joined or meta["client_uuid"] != name:
                continue
            key = hashlib.sha256(b"".join(struct.pack("<Q", len(n)) + n.encode() for n in (meta["model_sha256"], meta["client_uuid"])))
            self.requests[at(asked[seq])] = SimpleNamespace(
                observation=unpack(parts["observation"])[0], reply=unpack(parts["reply"])[0], joined=at(joined[seq]),
                rtt=joined[seq].rtt_ns / 1e9, dropped=joined[seq].dropped, seed=(struct.unpack("<Q", key.digest()[:8])[0] ^ seq) & (1 << 63) - 1,
            )  # fmt: skip


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    """A policy that wishes for small motions about the simulated arm's first pose: the gate, which limits each goal, must not
    change the prefix in the robot's units, because LeRobot has no gate."""
    pose = torch.tensor([69.4, -30.0, 84.0, 17.4, -69.4, 10.0])
    small = {"mean": pose, "std": torch.full((6,), 0.2), "min": pose - 1, "max": pose + 1}
    with mock.patch.object(checkpoints, "stats", lambda cameras: {"observation.state": small, "action": small}):
        return smolvla_checkpoint.make(tmp_path_factory.mktemp("parity") / "smolvla", cameras={"top": (120, 160)})


@pytest.fixture(scope="module")
def episodes(programs: Path, policy: Path, tmp_path_factory):
    """A function that runs an episode with given flags of edge-rt; one lean-server serves all episodes."""
    folder, zenoh, health = tmp_path_factory.mktemp("episodes"), free_port(), free_port()
    info, manifest = folder / "info.json", folder / "server.yaml"
    info.write_text(json.dumps(INFO))
    manifest.write_text(json.dumps({
        "model": {"runtime": "lerobot", "repo_or_path": str(policy), "python": sys.executable, "device": "cpu", "dataset_info": str(info)},
        "threads": 1, "service": "parity", "default_task": TASK, "health_port": health,
        "debug": {"capture_dir": str(folder / "captures"), "capture_max": 100}, "zenoh": {"listen_endpoints": [f"tcp/127.0.0.1:{zenoh}"]},
    }))  # fmt: skip

    def run(name: str, *flags: str) -> Episode:
        arm = ["--bus", "sim", "--camera", "top=sim", "--connect", f"tcp/127.0.0.1:{zenoh}", "--duration", "5s", "--rt", "off", "--jpeg-quality", "0"]
        arm += ["--buffer-time", f"{THRESHOLD / FPS}s", "--id", name, "--record", "all", "--record-dir", folder / name, *flags]
        subprocess.run([programs / "edge-rt", *arm], cwd=ROOT, capture_output=True, check=True, timeout=60)
        return Episode(name, next((folder / name).glob("*.mcap")), folder / "captures")

    command, quiet = [programs / "lean-server", "--manifest", manifest], {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"HF_HUB_OFFLINE": "1"}, **quiet)
    try:
        end = time.monotonic() + 120
        while not serves(health):
            assert server.poll() is None and time.monotonic() < end, "lean-server does not serve"
            time.sleep(0.2)
        yield run
    finally:
        server.terminate()
        server.wait(20)


def serves(port: int) -> bool:
    with contextlib.suppress(OSError):
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2).status == 200
    return False


class Ended(Exception):
    """The episode is over."""


class Queue(ActionQueue):
    """LeRobot's queue, compared with edge-rt's after each merge. clamped: as the draft's section 14 proposes, a merge drops no
    action that the arm has not run."""

    def __init__(self, replay: "Replay", clamped: bool) -> None:
        super().__init__(replay.config)
        self.replay, self.clamped, self.unclamped = replay, clamped, 0

    def merge(self, original, processed, real_delay, action_index_before_inference=None) -> None:
        ran = self.last_index - action_index_before_inference
        self.unclamped += real_delay > ran
        super().merge(original, processed, min(real_delay, ran) if self.clamped else real_delay, action_index_before_inference)
        request = self.replay.request
        model, robot = (tensor(request.reply[k])[request.dropped :] for k in ("chunk_model", "chunk_robot"))
        assert self.queue.numpy().tobytes() == robot.tobytes() and self.original_queue.numpy().tobytes() == model.tobytes()
        self.replay.merges += 1


class Replay:
    """LeRobot's engine on the clock and the observations of an episode."""

    def __init__(self, episode: Episode, folder: Path, clamped: bool) -> None:
        from lerobot.configs.policies import PreTrainedConfig
        from lerobot.policies.factory import get_policy_class, make_pre_post_processors

        config = PreTrainedConfig.from_pretrained(str(folder))
        config.device = "cpu"
        self.policy = get_policy_class(config.type).from_pretrained(str(folder), config=config).eval()
        self.config = self.policy.config.rtc_config = RTCConfig(enabled=True)
        self.policy.init_rtc_processor()
        self.episode, self.tick, self.merges, self.actions, self.request = episode, -1, 0, 0, None
        pre, post = make_pre_post_processors(config, pretrained_path=str(folder))
        features = {"observation.state": JOINTS, "observation.images.top": {"dtype": "image", "shape": (120, 160, 3), "names": ["height", "width", "channels"]}}
        robot = SimpleNamespace(robot_type=INFO["robot_type"], action_features={})
        self.engine = engine.RTCInferenceEngine(self, pre, post, robot, self.config, features, TASK, FPS, "cpu", rtc_queue_threshold=THRESHOLD)
        self.engine._action_queue = self.queue = Queue(self, clamped)
        self.engine._policy_active.set()
        self.times = iter(())

    def play(self, until: int) -> None:
        """Takes the actions of the ticks up to this one, and shows the engine that tick's observation."""
        while self.tick < until:
            self.tick += 1
            if self.tick == len(self.episode.ticks):
                raise Ended
            recorded = self.episode.ticks[self.tick]
            if len(recorded.action):
                got = self.engine.get_action(None)
                assert got is not None and got.numpy().tobytes() == np.float32(recorded.action).tobytes(), f"action of tick {self.tick}"
                self.actions += 1
            elif recorded.starved:
                assert self.queue.qsize() == recorded.queue  # actions are left if motors were silent
        request = self.episode.requests.get(self.tick)
        seen = {"top": np.zeros((120, 160, 3), np.uint8)} | dict.fromkeys(checkpoints.JOINTS, 0.0)
        if request:
            seen = dict(zip(checkpoints.JOINTS, tensor(request.observation["state"])))
            picture = request.observation["images"]["observation.images.top"]
            seen["top"] = np.frombuffer(picture["data"], np.uint8).reshape(picture["shape"]).copy()
        if request or self.queue.queue is not None:
            self.engine.notify_observation(seen)

    def sleep(self, _seconds: float) -> None:
        self.play(self.tick + 1)

    def perf_counter(self) -> float:
        """The clock that LeRobot reads: 0 when a request begins, and the record's round trip when its chunk has
        arrived."""
        if (now := next(self.times, None)) is None:
            if self.tick in self.episode.unanswered:
                raise Ended  # the run ended first, or edge-rt asked again before the answer, which LeRobot never does
            assert self.tick in self.episode.requests, f"LeRobot asks at tick {self.tick}, edge-rt at {list(self.episode.requests)}"
            self.request = self.episode.requests[self.tick]
            if any(self.tick < asked < self.request.joined for asked in self.episode.requests):
                raise Ended  # edge-rt asked again before the answer, and both requests were answered
            self.times, now = iter((self.request.rtt,)), 0.0
        return now

    def predict_action_chunk(self, batch: dict, inference_delay: int, prev_chunk_left_over):
        wire = self.request.observation
        assert inference_delay == wire["inference_delay_steps"]
        prefix = tensor(wire["prefix_model"])
        assert (prefix is None) == (prev_chunk_left_over is None)
        assert prefix is None or prefix.tobytes() == prev_chunk_left_over.numpy().tobytes()
        torch.manual_seed(self.request.seed)
        actions = self.policy.predict_action_chunk(batch, inference_delay=inference_delay, prev_chunk_left_over=prev_chunk_left_over)
        assert actions.squeeze(0).detach().numpy().tobytes() == tensor(self.request.reply["chunk_model"]).tobytes()
        self.play(self.request.joined)
        return actions.detach()

    def run(self, monkeypatch) -> None:
        monkeypatch.setattr(engine, "time", self)
        monkeypatch.setattr(engine, "_RTC_MAX_CONSECUTIVE_ERRORS", 1)
        monkeypatch.setattr(engine.logger, "error", lambda *a: None)
        raised = []
        monkeypatch.setattr(engine.traceback, "format_exc", lambda: raised.append(sys.exc_info()[1]))
        self.engine._rtc_loop()
        if not isinstance(raised[0], Ended):
            raise raised[0]


@pytest.mark.parametrize("flags", [["--compat"], []], ids=["compat", "default"])
def test_the_queues_are_lerobots(flags, episodes, policy, monkeypatch) -> None:
    for attempt in range(1 if flags else 3):  # a slow machine asks again early, which ends the comparison
        episode = episodes(f"robot-{len(flags)}{attempt}", "--schedule", "rtc", *flags)
        replay = Replay(episode, policy, clamped=not flags)
        replay.run(monkeypatch)
        if replay.merges >= 3:
            break
    print(f"{replay.merges} merges of {len(episode.requests)}, {replay.actions} actions; {replay.queue.unclamped} delays longer than the actions that ran")
    assert replay.merges >= (len(episode.requests) if flags else 3)
