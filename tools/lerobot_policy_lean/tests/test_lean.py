"""LeRobot's own commands and classes with the policy type `lean`, against lean-server with the demo policy."""

from __future__ import annotations

import json
import queue
import time
from pathlib import Path
from types import SimpleNamespace

import lean_client
import numpy as np
import pytest
import torch
from lerobot.motors import Motor, MotorNormMode
from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors
from lerobot.policies.utils import prepare_observation_for_inference
from lerobot.rollout.inference.rtc import supports_rtc_inference

import lerobot_policy_lean  # noqa: F401
from lerobot_policy_lean.modeling_lean import _plausible, _prefix
from lerobot_policy_lean.robot import Robot, _units, differences
from conftest import Server

JOINTS = ["shoulder_pan.pos", "shoulder_lift.pos", "elbow_flex.pos", "wrist_flex.pos", "wrist_roll.pos", "gripper.pos"]
START = np.array([40, -30, 90, 10, -40, 50], "<f4")
PICTURE = np.random.default_rng(0).integers(0, 256, (120, 160, 3), np.uint8)
TASK = "around the post"


def policy_of(server, **settings):
    config = make_policy_config("lean", server=server.address, timeout=30.0, **settings)
    return get_policy_class("lean").from_pretrained(None, config=config)


def batch_of(policy):
    observation = {"observation.state": START.copy(), "observation.images.top": PICTURE.copy()}
    before, _ = make_pre_post_processors(policy.config)
    return before(prepare_observation_for_inference(observation, torch.device("cpu"), TASK, "leanfake"))


def actions(path: Path) -> np.ndarray:
    return np.array([[json.loads(line)[joint] for joint in JOINTS] for line in path.read_text().splitlines()])


def test_chunk_is_the_clients(server):
    """The picture arrives unchanged, so the first chunk has the bits of the chunk that lean_client gets as the same
    robot."""
    policy = policy_of(server, id="twin")
    chunk = policy.predict_action_chunk(batch_of(policy))
    policy.close()
    twin = {"action_names": JOINTS, "cameras": {"top": (120, 160)}, "name": "twin", "rtc": True}
    with lean_client.Client(server.address, **twin) as client:
        client.observe(START, {"top": PICTURE}, task=TASK)
        assert np.array_equal(chunk[0].numpy(), client.chunk(30))
    assert chunk.dtype == torch.float32 and chunk.shape == (1, 50, 6)


def test_a_server_that_warms_up(monkeypatch):
    """No session begins before the server has run its policy: its first inference may take minutes."""
    cold, warm = [{"warmed_up": False}], {"warmed_up": True}
    link, answers = lean_client.Link.__new__(lean_client.Link), iter([cold, cold, cold + [warm]])
    link._timeout = 5.0
    monkeypatch.setattr(link, "statuses", lambda: next(answers))
    assert link.warm() == [warm]
    link._timeout = 0.2
    monkeypatch.setattr(link, "statuses", lambda: cold)
    with pytest.raises(lean_client.Refused, match="warmed_up") as refused:
        link.warm()
    assert refused.value.retry


def test_pictures_are_bytes():
    for picture in (PICTURE.astype("f4"), PICTURE[..., 0], PICTURE.transpose(2, 0, 1), PICTURE.astype("i1")):
        with pytest.raises(ValueError, match="want uint8"):
            lean_client._pictures({"top": picture})


def client_of_nobody():
    """A client with the session ack of a server that is not there, and its newest request."""
    client = lean_client.Client.__new__(lean_client.Client)
    client._answers, client._epoch, client._sequence, client._want = queue.Queue(lean_client.ANSWERS), 3, 7, (7, 77)
    client._width, client.notice, client.ack = 1, "", {"server_id": "s", "nonce": 5}
    return client


def keep(client, kind, body, *, sequence=7, stamp=77, epoch=3):
    client._keep((1, kind, sequence, 0, stamp, epoch), body)


CHUNK = {"chunk_robot": {"dtype": "<f4", "shape": [2, 1], "data": bytes(8)}}


def test_the_newest_answers_stay():
    """A loop may send many observations before it takes a chunk; that of the newest one must be there."""
    client = client_of_nobody()
    for sequence in range(7 - 2 * lean_client.ANSWERS, 8):
        keep(client, lean_client.CHUNK, CHUNK, sequence=sequence)
    assert client.chunk(1.0).shape == (2, 1)


def test_events():
    """An event that is only information, such as a quota, ends nothing; an event of another session or server does not
    count."""
    client = client_of_nobody()
    event = {"code": "quota", "text": "0.5 inferences a second", "server_id": "s", "nonce": 5}
    final = {**event, "code": "bad_observation"}
    keep(client, lean_client.EVENT, event, sequence=0, stamp=0)
    keep(client, lean_client.EVENT, {**event, "code": "unheard of"}, sequence=0, stamp=0)
    keep(client, lean_client.EVENT, event, sequence=0, stamp=0)
    keep(client, lean_client.EVENT, {**final, "server_id": "t"})
    keep(client, lean_client.EVENT, {**final, "nonce": 6})
    keep(client, lean_client.EVENT, final, epoch=2)
    keep(client, lean_client.EVENT, final, stamp=76)
    keep(client, lean_client.CHUNK, CHUNK)
    assert client.chunk(1.0).shape == (2, 1) and client.notice == "quota: 0.5 inferences a second"
    keep(client, lean_client.EVENT, final)
    with pytest.raises(lean_client.Refused, match="bad_observation") as refused:
        client.chunk(1.0)
    assert not refused.value.retry
    keep(client, lean_client.EVENT, {**final, "code": "draining"}, sequence=0, stamp=0)
    with pytest.raises(lean_client.Refused, match="draining") as refused:
        client.chunk(1.0)
    assert refused.value.retry


def test_observations_name_the_task_of_the_reset():
    client, sent = client_of_nobody(), []
    client.name, client._key = "arm", "lerobot/arm"
    client._episode, client._task = 0, ""
    put = lambda key, message, attachment: sent.append(lean_client.msgpack.unpackb(message)["task"])
    client._link = SimpleNamespace(ask=lambda key, body: {"ok": True}, session=SimpleNamespace(put=put))
    client.reset("fold")
    client.observe(START, {})
    client.observe(START, {}, task="stack")
    client.reset()
    client.observe(START, {})
    assert sent == ["fold", "stack", "fold"]


@pytest.mark.parametrize("shape", [None, 2, [2], [2, 1, 1], ["2", "1"], [2, 2], [0, 1]])
def test_a_malformed_chunk_is_a_value_error(shape):
    with pytest.raises(ValueError):
        lean_client._chunk({"chunk_robot": {**CHUNK["chunk_robot"], "shape": shape}}, 1)


def test_a_full_server_beside_one_with_room(server):
    """Of two servers of one service the client takes the one that has room, whichever answers first."""
    second = Server()
    second.start("--connect", server.address, "--max-sessions", "1")
    robot = {"action_names": JOINTS, "cameras": {"top": (120, 160)}}
    try:
        clients = [lean_client.Client(server.address, **robot) for _ in range(3)]
        assert len({client.ack["server_id"] for client in clients}) == 2
        for client in clients:
            client.close()
    finally:
        second.stop()


def test_a_picture_with_nan_is_refused(server):
    policy = policy_of(server)
    batch = batch_of(policy)
    batch["observation.images.top"][0, 0, 0, 0] = float("nan")
    with pytest.raises(ValueError, match="want 0 to 1"):
        policy.predict_action_chunk(batch)


def test_what_cannot_arrive(server):
    """The client refuses a wrong address, a wrong name, and a message that the transport would drop for its size."""
    robot = {"action_names": JOINTS, "cameras": {"top": (120, 160)}}
    with pytest.raises(ValueError, match="such as tcp/HOST:7447"):
        lean_client.Client("HOST:7447", **robot)
    with pytest.raises(ValueError, match="want letters"):
        lean_client.Client(server.address, name="a/b", **robot)
    with lean_client.Client(server.address, **robot) as client:
        with pytest.raises(ValueError, match="send smaller pictures"):
            client.observe(START, {"top": np.zeros((2400, 2400, 3), np.uint8)})
        client.observe(START, {"top": PICTURE})
        assert client.chunk(30).shape == (50, 6)


def test_queue_episodes_and_a_restarted_server(server):
    policy = policy_of(server, n_action_steps=3)
    batch = batch_of(policy)
    inferences = 'lean_server_conditioning_total{mode="free"}'
    before = server.metric(inferences)
    for _ in range(6):
        assert policy.select_action(batch).shape == (1, 6)
    assert server.metric(inferences) - before == 2
    policy.select_action(batch)
    policy.reset()
    policy.select_action(batch)
    assert server.metric(inferences) - before == 4
    policy.reset()
    server.stop()
    server.start()
    assert policy.select_action(batch).isfinite().all()
    policy.close()


def test_an_absent_server(server):
    """The wait for a server that is away ends with the time-out, and so does the search for one."""
    policy = policy_of(server)
    batch = batch_of(policy)
    policy.select_action(batch)
    policy.reset()
    policy.config.timeout = 2.0
    server.stop()
    try:
        started = time.monotonic()
        with pytest.raises(TimeoutError, match="within 2 s"):
            policy.select_action(batch)
        with pytest.raises(lean_client.Refused, match="is lean-server running there"):
            lean_client.status(server.address, timeout=1.0)
        assert time.monotonic() - started < 8
    finally:
        server.start()


def test_rtc(server):
    """A trained policy repeats the rows that run meanwhile, so prefix and delay have arrived."""
    policy = policy_of(server)
    assert supports_rtc_inference(policy)
    batch = batch_of(policy)
    chunk = policy.predict_action_chunk(batch)[0]
    padded = torch.cat([chunk[4:10], torch.zeros(4, 6)])
    second = policy.predict_action_chunk(batch, inference_delay=4, prev_chunk_left_over=padded)[0]
    assert torch.allclose(second[:4], chunk[4:8], atol=1e-3)
    assert server.metric('lean_server_conditioning_total{mode="trained"}') >= 1
    policy.close()


def test_prefix_is_without_padding():
    rows = torch.ones(3, 2)
    assert len(_prefix(torch.cat([rows, torch.zeros(7, 2)]))) == 3
    assert len(_prefix(rows.unsqueeze(0))) == 3
    assert _prefix(torch.zeros(4, 2)) is None and _prefix(None) is None


def test_differences():
    top = "observation.images.top"
    status = {"action_names": JOINTS, "expected_cameras": [top], "state_dim": 6, "trained_fps": 60.0}
    cameras = {top: (120, 160)}
    good = {"action_names": JOINTS, "state_names": JOINTS, "cameras": cameras, "fps": 60.0}
    assert differences(Robot(**good), status, {}) == []
    swapped = [*JOINTS[:4], JOINTS[5], JOINTS[4]]
    for change, words in [
        ({"action_names": swapped}, "another order"), ({"state_names": swapped}, "another order"),
        ({"action_names": JOINTS[:5]}, "actions: the robot has"), ({"state_names": JOINTS[:5]}, "5 values"),
        ({"cameras": {"observation.images.front": (120, 160)}}, "--policy.rename_map"), ({"fps": 30.0}, "--fps=60"),
    ]:  # fmt: skip
        found = differences(Robot(**{**good, **change}), status, {})
        assert len(found) == 1 and words in found[0]
    front = {"observation.images.front": "observation.images.top"}
    assert differences(Robot(**{**good, "cameras": dict.fromkeys(front, (120, 160))}), status, front) == []


IMPLAUSIBLE = [{"action_names": []}, {"action_names": [1]}, {"chunk_size": 0}, {"state_dim": None}]


def test_units_of_the_motor_bus(server):
    """The server refuses a robot whose motors have other units than the policy."""
    motors = {joint.removesuffix(".pos"): Motor(1, "sts3215", MotorNormMode.RANGE_M100_100) for joint in JOINTS}
    units = _units(SimpleNamespace(bus=SimpleNamespace(motors=motors)), JOINTS)
    assert units == ["range_m100_100"] * 6 and _units(SimpleNamespace(), JOINTS) == []
    policy = policy_of(server)
    policy._robot = Robot(action_names=JOINTS, action_units=units)
    with pytest.raises(lean_client.Refused, match="degrees"):
        policy.predict_action_chunk(batch_of(policy))


@pytest.mark.parametrize("change", IMPLAUSIBLE)
def test_an_implausible_status_is_refused(change):
    status = {"action_names": JOINTS, "expected_cameras": [], "state_dim": 6, "chunk_size": 50}
    _plausible(status)
    with pytest.raises(lean_client.Refused):
        _plausible({**status, **change})


def test_rollout(lerobot, tmp_path):
    log = tmp_path / "actions.jsonl"
    done = lerobot("lerobot_rollout", "--robot.type=leanfake", f"--robot.log={log}", "--fps=60", "--duration=2",
                   f"--task={TASK}", "--return_to_initial_position=false")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(moved := actions(log)) >= 10 and np.abs(moved[-1] - START).max() > 1


def test_rollout_refuses_another_robot(lerobot, tmp_path):
    log = tmp_path / "actions.jsonl"
    done = lerobot("lerobot_rollout", "--robot.type=leanfake", f"--robot.log={log}", "--robot.swap=true", "--fps=30",
                   "--duration=2", "--return_to_initial_position=false")  # fmt: skip
    assert done.returncode == 1 and not log.exists()
    assert "the same in another order" in done.stderr and "--fps=60" in done.stderr


def test_rollout_records_with_rtc(lerobot, tmp_path):
    root = tmp_path / "dataset"
    done = lerobot("lerobot_rollout", "--strategy.type=episodic", "--inference.type=rtc", "--robot.type=leanfake",
                   "--fps=60", "--dataset.fps=60", "--dataset.repo_id=me/rollout_post", f"--dataset.root={root}",
                   f"--dataset.single_task={TASK}", "--dataset.num_episodes=1", "--dataset.episode_time_s=3",
                   "--dataset.push_to_hub=false", "--play_sounds=false")  # fmt: skip
    assert done.returncode == 0, done.stderr
    info = json.loads(next(tmp_path.glob("dataset*/meta/info.json")).read_text())
    assert info["total_episodes"] == 1 and info["total_frames"] >= 10


def test_eval(lerobot, tmp_path):
    rename = '{"observation.image": "observation.images.top"}'
    done = lerobot("lerobot_eval", f"--policy.rename_map={rename}", "--env.type=leanfake", "--eval.n_episodes=1",
                   "--eval.batch_size=1", f"--output_dir={tmp_path / 'eval'}")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "eval/eval_info.json").read_text())["overall"]["n_episodes"] == 1
