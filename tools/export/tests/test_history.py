"""Checks the observations sent to a policy with a history against LeRobot's queue of n_obs_steps."""

import json
import subprocess
from collections import deque
from itertools import pairwise
from pathlib import Path

import checkpoints
import numpy as np
import torch
from conftest import ROOT, exported
from mcap_protobuf.reader import read_protobuf_messages
from safetensors.numpy import load_file
from test_server import manifest_of

# Sizes at which the policy is in time also on a slow machine: a step without an action splits the history. The policy
# resizes its pictures to a quarter of the size that the robot sends.
STEPS, FPS, SECONDS = 8, 15, 12
SIZE = (64, 128)


def unpack(data: bytes):
    """Decodes the MessagePack of a capture in the order of its bytes."""
    at = 0

    def take(n: int) -> bytes:
        nonlocal at
        at += n
        return data[at - n : at]

    def number(n: int, signed: bool = False) -> int:
        return int.from_bytes(take(n), "big", signed=signed)

    def value():
        tag = take(1)[0]
        if tag < 0x80 or tag >= 0xE0:
            return tag if tag < 0x80 else tag - 256
        if tag < 0xC0:
            kind, n = (tag >> 4, tag & 15) if tag < 0xA0 else (10, tag & 31)
            return {8: table, 9: row, 10: text}[kind](n)
        constants = {0xC0: None, 0xC2: False, 0xC3: True}
        if tag in constants:
            return constants[tag]
        if 0xC4 <= tag <= 0xC6:
            return take(number(1 << (tag - 0xC4)))
        if tag in (0xCA, 0xCB):
            return float(np.frombuffer(take(4 if tag == 0xCA else 8), ">f4" if tag == 0xCA else ">f8")[0])
        if 0xCC <= tag <= 0xD3:
            return number(1 << (tag & 3), signed=tag >= 0xD0)
        sizes = {0xD9: (text, 1), 0xDA: (text, 2), 0xDB: (text, 4), 0xDC: (row, 2), 0xDD: (row, 4), 0xDE: (table, 2), 0xDF: (table, 4)}
        read, width = sizes[tag]
        return read(number(width))

    def text(n: int) -> str:
        return take(n).decode()

    def row(n: int) -> list:
        return [value() for _ in range(n)]

    def table(n: int) -> dict:
        return {value(): value() for _ in range(n)}

    return value()


def window_of(observation: dict) -> tuple[np.ndarray, list[int]]:
    """States [STEPS, joints] and the numbers in the pictures, the oldest first."""
    past = observation["past_states"]
    states = np.frombuffer(past["data"], "<f4").reshape(past["shape"])
    states = np.concatenate([states, np.frombuffer(observation["state"]["data"], "<f4")[None]])
    (name, newest), = observation["images"].items()
    numbers = [number_in(newest)]
    for picture in reversed(observation["past_images"][name]):
        numbers.insert(0, number_in(picture) if picture else numbers[0])
    assert states.shape[0] == len(numbers) == STEPS
    return states, numbers


def number_in(picture: dict) -> int:
    """The number that the test pattern paints into the picture: its index in the camera's sequence."""
    assert picture["codec"] == "raw" and tuple(picture["shape"]) == (*SIZE, 3)
    pixels = np.frombuffer(picture["data"], np.uint8).reshape(*SIZE, 3)[SIZE[0] - 3, :, 1]
    return int("".join("1" if v >= 128 else "0" for v in pixels[SIZE[1] // 64 :: SIZE[1] // 32]), 2)


def run(programs: Path, bundle: Path, folder: Path) -> tuple[list[dict], list[dict], dict]:
    """Runs a simulated arm on the bundle. Returns the observations sent, the ticks with an action, and the summary."""
    manifest = manifest_of(bundle, health_port=0, debug={"capture_dir": str(folder / "captures"), "capture_max": 1000})
    endpoint = json.loads(manifest.read_text())["zenoh"]["listen_endpoints"][0]
    records, summary = folder / "records", folder / "summary.json"
    with subprocess.Popen([programs / "lean-server", "--manifest", manifest], cwd=ROOT, stderr=subprocess.PIPE, text=True) as serving:
        try:
            assert any("serving" in line for line in serving.stderr)
            flags = ["--id", "looker", "--bus", "sim", "--camera", f"top=pattern:{SIZE[1]}x{SIZE[0]}@{FPS}", "--jpeg-quality", "0", "--connect", endpoint]
            ended = subprocess.run(
                [programs / "edge-rt", *flags, "--rt", "off", "--duration", f"{SECONDS}s", "--record", "all", "--record-dir", records, "--json", summary],
                cwd=ROOT, env={"STATE_DIRECTORY": str(folder), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=120,
            )  # fmt: skip
            assert ended.returncode == 0, ended.stderr
        finally:
            serving.terminate()
    replayed = subprocess.run([programs / "lean-server", "replay", "--manifest", manifest], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert replayed.returncode == 0 and "0 not, 0 unreadable" in replayed.stdout, replayed.stdout + replayed.stderr
    files = sorted((folder / "captures").glob("*.safetensors"))
    sent = [unpack(load_file(file)["observation"].tobytes()) for file in files]
    return sent, recorded(records), json.loads(summary.read_text())


def recorded(folder: Path) -> list[dict]:
    """The ticks on which an action began, from edge-rt's flight recorder."""
    ticks = [m.proto_msg for file in sorted(folder.glob("*.mcap")) for m in read_protobuf_messages(file, topics=["/tick"])]
    return [{"step": tick.step, "t_ns": tick.t_ns, "state": list(tick.state)} for tick in ticks if tick.action]


def lerobots_queue(states: np.ndarray, numbers: list[int]) -> tuple[np.ndarray, list[int]]:
    """The contents of LeRobot's own queues after these steps."""
    from lerobot.policies.utils import populate_queues
    from lerobot.utils.constants import OBS_IMAGES, OBS_STATE

    queues = {OBS_STATE: deque(maxlen=STEPS), OBS_IMAGES: deque(maxlen=STEPS)}
    for state, number in zip(states, numbers, strict=True):
        queues = populate_queues(queues, {OBS_STATE: torch.tensor(state), OBS_IMAGES: torch.tensor(number)})
    return torch.stack(list(queues[OBS_STATE])).numpy(), torch.stack(list(queues[OBS_IMAGES])).tolist()


def test_the_robot_sends_what_lerobots_queue_holds(programs, folder):
    checkpoint = checkpoints.diffusion(folder / "diffusion-look", {"top": SIZE}, n_obs_steps=STEPS, num_inference_steps=2, resize_shape=(SIZE[0] // 2, SIZE[1] // 2))
    sent, ran, summary = run(programs, exported(checkpoint, fps=FPS), folder)
    assert summary["history"]["steps"] == STEPS and summary["history"]["no_room"] == 0 and len(sent) > 5

    states, numbers = window_of(sent[0])
    assert sent[0]["n"] == -1 and len({s.tobytes() for s in states}) == len(set(numbers)) == 1  # the first one fills the queue

    # The flight recorder holds the states of the steps too, recorded elsewhere in the tick.
    record = {line["step"]: (line["t_ns"], np.array(line["state"], np.float32)) for line in ran}
    shown: dict[int, int] = {}  # by step, the number of its picture in an earlier observation
    whole = begun = seen_again = 0
    for observation in sent:
        last = observation["n"]
        steps = range(last - STEPS + 1, last + 1)
        if any(step not in record for step in steps):
            continue
        if any(later - earlier > 1.5e9 / FPS for earlier, later in pairwise(record[step][0] for step in steps)):
            continue  # a tick between them had no action or was missed
        states, numbers = window_of(observation)
        # A joint that does not answer restarts the history: then LeRobot's queue is shorter too.
        age = STEPS
        while age > 1 and not np.array_equal(states[STEPS - age], record[steps[STEPS - age]][1]):
            age -= 1
        begun, whole = begun + (age < STEPS), whole + (age == STEPS)
        for step, number in zip(steps[STEPS - age :], numbers[STEPS - age :], strict=True):
            seen_again += step in shown
            assert shown.setdefault(step, number) == number, f"step {step} has two pictures"
        want = lerobots_queue(np.stack([record[step][1] for step in steps[STEPS - age :]]), numbers[STEPS - age :])
        assert np.array_equal(states, want[0]) and numbers == want[1], f"observation behind step {last}"
    assert whole >= 5 and seen_again >= 10, (whole, begun, seen_again)
    assert begun <= STEPS * summary["history"]["begun_anew"]
    in_order = [shown[step] for step in sorted(shown)]
    assert in_order == sorted(in_order) and len(set(in_order)) > len(in_order) / 2
    # Every picture belongs to its step: its distance from the tick varies by about one frame at most.
    offsets = [record[step][0] / 1e9 - number / FPS for step, number in shown.items()]
    assert np.median(offsets) - min(offsets) < 1.1 / FPS, "a picture is younger than its step"
