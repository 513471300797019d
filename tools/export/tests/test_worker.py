"""lean-server's worker against LeRobot's own predict_action_chunk with its processors, bit for bit."""

import contextlib
import importlib.util
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import checkpoints
import gemma_tokenizer
import numpy as np
import pi_checkpoints
import pytest
import smolvla_checkpoint
import torch
from safetensors.torch import load_file, save_file

SOURCE = Path(__file__).resolve().parents[3] / "server/lerobot/worker.py"
spec = importlib.util.spec_from_file_location("lean_worker", SOURCE)
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)

TASKS = ["pick up the cube", "close the drawer"]
JOINTS = {"names": checkpoints.JOINTS}
INFO = {"fps": 30, "robot_type": "so101_follower", "features": {"action": JOINTS, "observation.state": JOINTS}}


def settings(folder: Path, **more) -> SimpleNamespace:
    """The settings that lean-server gives."""
    inputs = {"fps": 0, "state_names": None, "action_names": None}
    return SimpleNamespace(**{"policy": str(folder), "hub": "", "device": "cpu", "dtype": "", "compile": False, "threads": 1, "info": INFO, "inputs": inputs} | more)


def absolute_tokenizer(folder: Path) -> Path:
    """Names the tokenizer beside the checkpoint by its whole path, as this LeRobot reads it."""
    path = folder / "policy_preprocessor.json"
    text = json.loads(path.read_text())
    for step in text["steps"]:
        if step.get("registry_name") == "tokenizer_processor" and not Path(step["config"]["tokenizer_name"]).is_absolute():
            step["config"]["tokenizer_name"] = str(folder / "tokenizer")
    path.write_text(json.dumps(text))
    return folder


def vqbet(folder: Path) -> Path:
    from lerobot.policies.vqbet.configuration_vqbet import VQBeTConfig
    from lerobot.policies.vqbet.modeling_vqbet import VQBeTPolicy

    torch.manual_seed(0)
    inputs, outputs = checkpoints.features({"front": (96, 96)})
    small = dict(n_obs_steps=3, n_action_pred_token=3, action_chunk_size=5, gpt_input_dim=64, gpt_output_dim=64, gpt_n_layer=2, gpt_n_head=2, gpt_hidden_dim=64, vqvae_enc_hidden_dim=32, vqvae_embedding_dim=32)
    policy = VQBeTPolicy(VQBeTConfig(input_features=inputs, output_features=outputs, device="cpu", pretrained_backbone_weights=None, **small))
    checkpoints.shake(policy)
    return checkpoints.save(policy, folder, checkpoints.stats(["front"]))


def tdmpc(folder: Path) -> Path:
    from lerobot.policies.tdmpc.configuration_tdmpc import TDMPCConfig
    from lerobot.policies.tdmpc.modeling_tdmpc import TDMPCPolicy

    torch.manual_seed(0)
    inputs, outputs = checkpoints.features({"front": (84, 84)})
    rename = lambda features: {k.replace("images.front", "image"): v for k, v in features.items()}  # LeRobot's code has this name
    inputs = rename(inputs)
    policy = TDMPCPolicy(TDMPCConfig(input_features=inputs, output_features=outputs, device="cpu", latent_dim=16, mlp_dim=32, n_gaussian_samples=32, n_pi_samples=8, cem_iterations=2, n_elites=8))
    checkpoints.shake(policy)
    return checkpoints.save(policy, folder, rename(checkpoints.stats(["front"])))


def multi_task_dit(folder: Path) -> Path:
    from lerobot.policies.multi_task_dit.configuration_multi_task_dit import MultiTaskDiTConfig
    from lerobot.policies.multi_task_dit.modeling_multi_task_dit import MultiTaskDiTPolicy
    from transformers import CLIPConfig, CLIPModel

    clip = folder / "clip-small"
    torch.manual_seed(0)
    part = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, projection_dim=32)
    text = part | dict(vocab_size=520, max_position_embeddings=77, eos_token_id=1, bos_token_id=2, pad_token_id=0)
    CLIPModel(CLIPConfig(text_config=text, vision_config=part | dict(image_size=224, patch_size=56))).save_pretrained(clip)
    gemma_tokenizer.write(clip)
    inputs, outputs = checkpoints.features({"front": (224, 224)})
    small = dict(n_obs_steps=2, horizon=8, n_action_steps=6, hidden_dim=32, num_layers=2, num_heads=2, timestep_embed_dim=16, num_inference_steps=3, vision_encoder_name=str(clip), text_encoder_name=str(clip), tokenizer_max_length=16)
    policy = MultiTaskDiTPolicy(MultiTaskDiTConfig(input_features=inputs, output_features=outputs, device="cpu", **small))
    checkpoints.shake(policy)
    return checkpoints.save(policy, folder, checkpoints.stats(["front"]))


def diffusion(folder: Path) -> Path:
    return checkpoints.diffusion(folder, n_obs_steps=2)


def pi0(folder: Path) -> Path:
    return absolute_tokenizer(pi_checkpoints.make("pi0", folder))


def pi05(folder: Path) -> Path:
    return absolute_tokenizer(pi_checkpoints.make("pi05", folder))


FAMILIES = {"act": checkpoints.act, "diffusion": diffusion, "smolvla": smolvla_checkpoint.make, "pi0": pi0, "pi05": pi05, "vqbet": vqbet, "multi_task_dit": multi_task_dit, "tdmpc": tdmpc}


class Reference:
    """LeRobot's policy and processors, called as its rollout calls them."""

    def __init__(self, folder: Path) -> None:
        from lerobot.configs.policies import PreTrainedConfig
        from lerobot.policies.factory import get_policy_class, make_pre_post_processors
        from lerobot.policies.rtc.configuration_rtc import RTCConfig

        config = PreTrainedConfig.from_pretrained(str(folder))
        config.device = "cpu"
        self.policy = get_policy_class(config.type).from_pretrained(str(folder), config=config).eval()
        self.rtc = callable(getattr(self.policy, "supports_rtc", None)) and self.policy.supports_rtc()
        if self.rtc:
            self.policy.config.rtc_config = RTCConfig()
            self.policy.init_rtc_processor()
        self.pre, self.post = make_pre_post_processors(config, pretrained_path=str(folder))

    def chunk(self, pictures: dict[str, np.ndarray], state: np.ndarray, task: str, seed: int, **rtc):
        from lerobot.policies.utils import populate_queues, prepare_observation_for_inference

        torch.manual_seed(seed)
        self.policy.reset()
        queues = getattr(self.policy, "_queues", {})
        for step in range(len(state)):
            frame = {k if k.startswith("observation.") else f"observation.images.{k}": v[step].copy() for k, v in pictures.items()}
            frame["observation.state"] = state[step].copy()
            batch = prepare_observation_for_inference(frame, torch.device("cpu"), task, "so101_follower")
            batch["task"] = [task]
            batch = self.pre(batch)
            batch.pop("action", None)  # as select_action does
            features = self.policy.config.image_features
            if "observation.images" in queues:
                batch["observation.images"] = torch.stack([batch[k] for k in features], dim=-4)
            if "observation.image" in queues:
                batch["observation.image"] = batch[next(iter(features))]
            if self.policy.config.type not in ("smolvla", "act"):
                populate_queues(queues, batch, exclude_keys=["action"])
        actions = self.policy.predict_action_chunk(batch, **rtc)
        actions = actions.transpose(0, 1) if self.policy.config.type == "tdmpc" else actions
        model = actions.squeeze(0).clone()
        return model.numpy(), self.post(actions).squeeze(0).numpy()


def observation(config: worker.Policy, seed: int) -> tuple[dict, dict]:
    rng = np.random.default_rng(seed)
    pictures = {c["name"]: rng.integers(0, 256, (config.steps, c["height"], c["width"], 3), np.uint8) for c in config.cameras}
    state = rng.uniform(-40, 60, (config.steps, 6)).astype(np.float32)
    return pictures, {"pictures": list(pictures.values()), "state": state}


@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_equal_lerobots(family: str, tmp_path: Path) -> None:
    with pi_checkpoints.small() if family.startswith("pi") else contextlib.nullcontext():
        folder = FAMILIES[family](tmp_path / family)
        folder = folder if (folder / "config.json").exists() else folder / "policy"
        served = worker.Policy(settings(folder), lambda text: None)
        served.warm_up(1)
        reference = Reference(folder)
        assert served.hello()["rtc"] == reference.rtc == (family in ("smolvla", "pi0", "pi05"))
        sessions = [served.session(name, True) for name in (b"a", b"b")]
        last = {}
        for i in range(6):  # two robots in turn, each with its task
            robot = i % 2
            pictures, row = observation(served, i)
            model, chunk = served.chunk(sessions[robot], row, TASKS[robot], seed=i + 9, fresh=True)
            want = reference.chunk(pictures, row["state"], TASKS[robot], i + 9, **(dict(inference_delay=0, prev_chunk_left_over=None) if reference.rtc else {}))
            assert np.array_equal(model.numpy(), want[0]) and np.array_equal(chunk.numpy(), want[1])
            assert np.isfinite(chunk.numpy()).all() and (i < 2 or not np.array_equal(last[robot][1], want[1]))
            last[robot] = want
            if not reference.rtc:
                continue
            left = want[0][3:], want[1][3:]  # 3 actions have run, and 2 more will have when the next chunk arrives
            model, chunk = served.chunk(sessions[robot], row, TASKS[robot], seed=i, fresh=False, prefix=left[1], delay=2, end=8)
            again = reference.chunk(pictures, row["state"], TASKS[robot], i, inference_delay=2, prev_chunk_left_over=torch.from_numpy(left[0][:8]), execution_horizon=8)
            assert np.array_equal(model.numpy(), again[0]) and np.array_equal(chunk.numpy(), again[1])
            free = reference.chunk(pictures, row["state"], TASKS[robot], i, inference_delay=0, prev_chunk_left_over=None)
            assert not np.array_equal(free[1], again[1])  # the prefix changes the chunk
        batches_equal_single_rows(served)


def test_cameras_have_the_data_sets_names(act: Path, tmp_path: Path) -> None:
    """A checkpoint's rename_map gives the data set's names, which robots have, also where they cross the policy's."""
    folder = tmp_path / "renamed"
    shutil.copytree(act, folder)
    path = folder / "policy_preprocessor.json"
    text = json.loads(path.read_text())
    (step,) = [s for s in text["steps"] if s.get("registry_name") == "rename_observations_processor"]
    step["config"]["rename_map"] = {"observation.images.wrist": "observation.images.front", "observation.images.top": "observation.images.wrist"}
    path.write_text(json.dumps(text))
    served = worker.Policy(settings(folder), lambda text: None)
    served.warm_up(1)
    assert [c["name"] for c in served.hello()["cameras"]] == ["wrist", "top"]
    pictures, row = observation(served, 1)
    model, _ = served.chunk(served.session(b"a", True), row, TASKS[0], seed=1, fresh=True)
    assert np.array_equal(model.numpy(), Reference(folder).chunk(pictures, row["state"], TASKS[0], 1)[0])
    step["config"]["rename_map"].popitem()
    path.write_text(json.dumps(text))
    with pytest.raises(worker.Fault, match="camera wrist would be two"):
        worker.Policy(settings(folder), lambda text: None)


def batches_equal_single_rows(served: worker.Policy) -> None:
    """Robots that share a call get the chunks of separate calls, except for rounding, in any order: three without a
    prefix, two with a prefix if the family has RTC, and one with a task of another length."""
    assert (served.max_batch > 1) == (served.config.type in ("act", "smolvla", "pi0", "pi05"))
    if served.max_batch == 1:
        return
    rows = [observation(served, 40 + i)[1] for i in range(6)]
    tasks = [TASKS[0], TASKS[0], TASKS[0], TASKS[0], TASKS[0], "stop"]
    sessions = [served.session(b"batch %d" % i, True) for i in range(6)]
    first = [served.chunk(s, r, t, 70 + i, True) for i, (s, r, t) in enumerate(zip(sessions, rows, tasks))]
    prefixes = [(first[i][1].numpy()[2:], 2, 8) if served.rtc and i in (3, 4) else (None, 0, 0) for i in range(6)]
    calls = []
    predict, served.predict = served.predict, lambda batch, more: calls.append(batch) or predict(batch, more)
    alone = [served.chunk(s, r, t, 70 + i, False, *p) for i, (s, r, t, p) in enumerate(zip(sessions, rows, tasks, prefixes))]
    calls.clear()
    together = served.chunks([(sessions[i], rows[i], tasks[i], 70 + i, False, *prefixes[i]) for i in (5, 3, 1, 4, 0, 2)])
    assert len(calls) == {"act": 1, "smolvla": 3, "pi0": 2, "pi05": 2}[served.config.type]
    for i, (model, robot) in zip((5, 3, 1, 4, 0, 2), together):
        np.testing.assert_allclose(model.numpy(), alone[i][0].numpy(), atol=2e-4)
        np.testing.assert_allclose(robot.numpy(), alone[i][1].numpy(), atol=2e-2)


class Client:
    """The server's side of the worker's frames, written from doc.go."""

    def __init__(self, folder: Path, rows: int = 2) -> None:
        ours, theirs = socket.socketpair()
        alive, self.life = os.pipe()
        self.memory = os.memfd_create("rows")
        given = vars(settings(folder))
        code = f"import os\n[os.dup2(f, f + 100) for f in ({theirs.fileno()}, {self.memory}, {alive})]\n"
        code += f"[os.dup2(f, n) for n, f in ((3, {theirs.fileno() + 100}), (4, {self.memory + 100}), (5, {alive + 100}))]\n"
        code += f"import sys; sys.argv = ['worker']; exec(compile(open({str(SOURCE)!r}).read(), 'worker', 'exec'))"
        env = os.environ | {"LEAN_WORKER": json.dumps(given)}
        self.process = subprocess.Popen([sys.executable, "-c", code], env=env, pass_fds=[theirs.fileno(), self.memory, alive], process_group=0)
        theirs.close()
        os.close(alive)
        self.socket, self.sequence = ours, 0
        while (frame := self.read())[0] == 6:  # progress
            pass
        self.hello = json.loads(frame[2])
        h, up = self.hello, lambda n, to: -(-n // to) * to
        chunk = 4 * h["chunk_size"] * h["action_dim"]
        sizes = [3 * c["height"] * c["width"] for c in h["cameras"]] + [4 * len(h["state_names"]), chunk, chunk, chunk]
        self.stride, self.at = up(sum(up(n, 64) for n in sizes), 4096), np.cumsum([0] + [up(n, 64) for n in sizes])
        os.ftruncate(self.memory, self.stride * rows)
        self.view = np.memmap(os.fdopen(os.dup(self.memory), "r+b"), np.uint8, "r+")
        self.send(2, rows, b"")
        assert self.read()[0] == 3

    def send(self, kind: int, count: int, payload: bytes) -> None:
        self.socket.sendall(struct.pack("<IHHIQ", 0x4B574C45, kind, count, len(payload), self.sequence) + payload)

    def read(self) -> tuple[int, int, bytes]:
        _, kind, count, length, sequence = struct.unpack("<IHHIQ", self.socket.recv(20, socket.MSG_WAITALL))
        assert sequence in (0, self.sequence)
        return kind, count, self.socket.recv(length, socket.MSG_WAITALL) if length else b""

    def part(self, row: int, n: int, data: np.ndarray) -> None:
        self.view[row * self.stride + self.at[n] :][: data.nbytes] = np.frombuffer(data.tobytes(), np.uint8)

    def chunk(self, row: int, pictures: dict, state: np.ndarray, task: str, seed: int, session: bytes) -> np.ndarray:
        for n, picture in enumerate(pictures.values()):
            self.part(row, n, picture)
        self.part(row, len(pictures), state)
        self.sequence += 1
        text = task.encode()
        self.send(4, 1, struct.pack("<II32sqQiiii", row, 1, session, 0, seed, 0, 0, 0, len(text)) + text)
        kind, status, error = self.read()
        assert (kind, status) == (5, 0), error
        h, at = self.hello, row * self.stride + self.at[len(pictures) + 3]
        return np.frombuffer(self.view[at:][: 4 * h["chunk_size"] * h["action_dim"]].tobytes(), np.float32).reshape(-1, h["action_dim"])


def test_a_process_answers_with_the_same_bytes(act: Path) -> None:
    client, reference = Client(act), Reference(act)
    try:
        probe = SimpleNamespace(steps=1, cameras=client.hello["cameras"])
        for i in range(4):
            pictures, row = observation(probe, i)
            got = client.chunk(i % 2, pictures, row["state"], TASKS[i % 2], i, b"robot %d" % (i % 2))
            assert np.array_equal(got, reference.chunk(pictures, row["state"], TASKS[i % 2], i)[1])
    finally:
        os.close(client.life)  # the guard ends the process group
        assert client.process.wait(10) != 0


def test_faults_name_the_manifests_key(act: Path) -> None:
    with pytest.raises(worker.Fault, match="model.inputs.fps"):
        worker.Policy(settings(act, info={}), lambda text: None)
    with pytest.raises(worker.Fault, match="5 names of observation.state, want the policy's 6"):
        five = {"names": checkpoints.JOINTS[:5]}
        worker.Policy(settings(act, info=INFO | {"features": {"action": JOINTS, "observation.state": five}}), lambda text: None)
    with pytest.raises(worker.Fault, match="model.device is cuda"):
        if torch.cuda.is_available():
            pytest.skip("a GPU is here")
        worker.Policy(settings(act, device="cuda"), lambda text: None)


def changed(checkpoint: Path, folder: Path, pattern: str, change) -> Path:
    """A copy of a checkpoint with other tensors in its file of this pattern."""
    shutil.copytree(checkpoint, folder)
    file = next(folder.glob(pattern))
    save_file(change(load_file(file)), file)
    return folder


def without(key: str):
    return lambda tensors: {k: v for k, v in tensors.items() if key not in k}


def test_statistics_that_lerobot_would_miss(act: Path, tmp_path: Path) -> None:
    """Absent or unusable statistics are refused, because with them the arm would get z-scores as degrees."""
    std = lambda value: lambda tensors: tensors | {"action.std": torch.full((6,), value)}
    for i, (pattern, change, says) in enumerate([
        ("policy_postprocessor*.safetensors", without("action."), "normalises action by MEAN_STD, and its processors have no mean"),
        ("policy_preprocessor*.safetensors", without("observation.state."), "normalises observation.state"),
        ("policy_postprocessor*.safetensors", std(torch.nan), "an unusable .* std"),
        ("policy_postprocessor*.safetensors", std(-2.0), "mean and std are .*, which mirrors an axis"),
        ("policy_postprocessor*.safetensors", std(0.0), "which moves no joint"),
    ]):  # fmt: skip
        folder = changed(act, tmp_path / str(i), pattern, change)
        with pytest.raises(worker.Fault, match=says):
            worker.Policy(settings(folder), lambda text: None)


def test_a_normalisation_that_a_step_leaves_out(act: Path, tmp_path: Path) -> None:
    """LeRobot then passes the values on as they are, although config.json normalises them."""
    for file, part, key, feature in (("policy_preprocessor.json", "features", "observation.state", "observation.state"), ("policy_postprocessor.json", "norm_map", "ACTION", "action")):
        path = shutil.copytree(act, tmp_path / key) / file
        text = json.loads(path.read_text())
        for step in text["steps"]:
            step["config"].get(part, {}).pop(key, None)
        path.write_text(json.dumps(text))
        with pytest.raises(worker.Fault, match=f"normalises {feature} by MEAN_STD, and its processors leave it out"):
            worker.Policy(settings(path.parent), lambda text: None)


def test_padded_vectors() -> None:
    """EVO1 pads the state and the action, and its processors have statistics of the padded vectors."""
    from lerobot.policies.evo1.configuration_evo1 import Evo1Config
    from lerobot.policies.evo1.processor_evo1 import make_evo1_pre_post_processors

    inputs, outputs = checkpoints.features({"front": (64, 64)})
    config = Evo1Config(input_features=inputs, output_features=outputs, device="cpu")
    processors = make_evo1_pre_post_processors(config, checkpoints.stats(["front"]))
    policy = SimpleNamespace(config=config, processors=processors, torch=torch, device="cpu")
    worker.Policy.check_statistics(policy)
    prefix = np.random.default_rng(0).uniform(-20, 20, (3, 6)).astype(np.float32)
    rows = worker.Policy.model_rows(policy, worker.Session(processors), prefix)
    np.testing.assert_allclose(processors[1](rows[None])[0], prefix, rtol=1e-4, atol=1e-4)
    assert rows.shape == (3, config.max_action_dim) and not rows[:, 6:].any()


def test_files_of_another_lerobot_and_absent_ones(act: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(act, tmp_path / "act")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"new_key": 1}))
    with pytest.raises(worker.Fault, match="`new_key` are not valid for ACTConfig: install the LeRobot that wrote it"):
        worker.Policy(settings(folder), lambda text: None)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "policy_postprocessor.json").unlink()
    with pytest.raises(worker.Fault, match="policy_postprocessor.json' not found .*: copy policy_\\* from"):
        worker.Policy(settings(folder), lambda text: None)


def test_weights_that_lerobot_would_fill(act: Path, tmp_path: Path) -> None:
    folder = changed(act, tmp_path / "act", "model.safetensors", without("action_head"))
    with pytest.raises(worker.Fault, match="no weights for 2 of .* such as model.action_head"):
        worker.Policy(settings(folder), lambda text: None)


def test_weights_that_pi_would_fill(tmp_path: Path) -> None:
    """A cut file of weights is refused, because Pi's loaders print an error and go on with random weights."""
    with pi_checkpoints.small():
        folder = pi0(tmp_path / "pi0")
        folder = folder if (folder / "config.json").exists() else folder / "policy"
        weights = folder / "model.safetensors"
        whole = weights.read_bytes()
        weights.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(worker.Fault, match="copy the whole checkpoint again"):
            worker.Policy(settings(folder), lambda text: None)
        weights.write_bytes(whole)
        save_file(without("action_out_proj")(load_file(weights)), weights)
        with pytest.raises(worker.Fault, match="such as model.action_out_proj"):
            worker.Policy(settings(folder), lambda text: None)


def test_a_chunk_of_another_length(act: Path) -> None:
    """A chunk of another length is an error; NumPy would repeat a single action in all rows."""
    one, row = torch.zeros(1, 6), {"model": np.zeros((4, 6), np.float32), "robot": np.ones((4, 6), np.float32)}
    policy = SimpleNamespace(served=True, state="none", max_batch=1, session=lambda *a: None, chunk=lambda *a: (one, one))
    request = worker.ROW.pack(0, 0, bytes(32), 0, 0, 0, 0, 0, 0)
    with pytest.raises(ValueError, match="shape \\(1, 6\\)"):
        worker.run(policy, SimpleNamespace(rows=[row]), 1, request)


def test_a_plugin_that_does_not_import(act: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the plugin; LeRobot logs the failed import, and then does not know the policy's type."""
    plugin = tmp_path / "lerobot_policy_broken"
    plugin.mkdir()
    (plugin / "__init__.py").write_text("raise RuntimeError('no such accelerator')")
    monkeypatch.syspath_prepend(tmp_path)
    folder = shutil.copytree(act, tmp_path / "act")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"type": "broken"}))
    with pytest.raises(worker.Fault, match="model.python: its plugin lerobot_policy_broken does not import: RuntimeError: no such accel"):
        worker.Policy(settings(folder), lambda text: None)


def test_the_revision_of_a_name_on_the_hub(act, monkeypatch):
    asked = []
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **more: asked.append((name, more)) or str(act))
    worker.Policy(settings("me/pick", hub="v2"), lambda text: None)
    assert asked == [("me/pick", {"revision": "v2"})]
