"""The worker of lean-server's runtime lerobot: it computes a LeRobot policy in the user's environment.

lean-server starts it with three open files: 3, a stream socket with frames; 4, shared memory with the
rows; 5, a pipe that ends with lean-server. doc.go has the layout of frames and rows. Standard output and error are
pipes to lean-server's log, so the policy's prints do not get among the frames.

It needs nothing but Python 3.10, NumPy, torch and LeRobot.
"""

import sys

if sys.version_info < (3, 10):
    sys.exit("model.python is Python %d.%d, want 3.10 or newer with LeRobot" % sys.version_info[:2])

import copy
import inspect
import json
import mmap
import os
import signal
import socket
import struct
import time
import traceback
from collections import OrderedDict
from pathlib import Path

CONTROL, MEMORY, LIFE = 3, 4, 5
MAGIC, VERSION = 0x4B574C45, 1
HEADER = struct.Struct("<IHHIQ")  # magic, kind, count, length of the payload, sequence number
ROW = struct.Struct("<II32sqQiiii")  # slot, flags, session, episode, seed, prefix rows, delay, prefix end, bytes of the task
HELLO, MAP, READY, RUN, DONE, PROGRESS, FAILED = range(1, 8)
OK, ERROR, NO_MEMORY = range(3)
RESET, CONDITIONED, OWN = 1, 2, 4
MAX_FRAME = 1 << 20
MAX_SESSIONS = 256  # number of sessions whose processors and rows are kept
PREFIX = "observation.images."

# Families whose predict_action_chunk depends on nothing but its arguments once their queues hold the
# request's own observations. The others keep state of one robot.
PURE = {
    "act", "diffusion", "vqbet", "multi_task_dit", "smolvla", "pi0", "pi05", "pi0_fast", "xvla", "groot", "eo1",
    "evo1", "wall_x", "molmoact2", "vla_jepa",
}  # fmt: skip
STATEFUL = {"tdmpc", "lingbot_va", "fastwam", "gaussian_actor"}
# Families that compute several robots in one call. True: the family draws noise, and each row gets it from its own
# seed.
TOGETHER = {"act": False, "smolvla": True, "pi0": True, "pi05": True}
MAX_BATCH = 8  # largest number of rows of a call
# The statistics that each mode of LeRobot's normalisation reads.
STATISTICS = {
    "MEAN_STD": ("mean", "std"), "MIN_MAX": ("min", "max"), "QUANTILES": ("q01", "q99"), "QUANTILE10": ("q10", "q90"),
}  # fmt: skip


def aligned(n: int, to: int = 64) -> int:
    return (n + to - 1) // to * to


class Control:
    """The frames to and from lean-server."""

    def __init__(self) -> None:
        os.set_inheritable(CONTROL, False)
        self.socket = socket.socket(fileno=CONTROL)

    def send(self, kind: int, payload: bytes = b"", sequence: int = 0, count: int = 0) -> None:
        self.socket.sendall(HEADER.pack(MAGIC, kind, count, len(payload), sequence) + payload)

    def read(self, n: int) -> bytes:
        data = self.socket.recv(n, socket.MSG_WAITALL) if n else b""
        if len(data) < n:
            os._exit(0)  # lean-server has closed the socket
        return data

    def receive(self) -> tuple[int, int, int, bytes]:
        magic, kind, count, length, sequence = HEADER.unpack(self.read(HEADER.size))
        if magic != MAGIC or length > MAX_FRAME:
            raise ValueError(f"frame with magic {magic:#x} and {length} bytes, want {MAGIC:#x} and at most {MAX_FRAME}")
        return kind, count, sequence, self.read(length)

    def progress(self, text: str) -> None:
        self.send(PROGRESS, text.encode()[:2000])


def guard() -> None:
    """Forks a process that kills this process group, with all programs that the policy has started, as soon as
    lean-server ends in any way."""
    os.setpgid(0, 0) if os.getpgrp() != os.getpid() else None
    if os.fork():
        os.close(LIFE)
        return
    for fd in (CONTROL, MEMORY, 0, 1, 2):
        os.close(fd)
    try:
        while os.read(LIFE, 1):
            pass
    finally:
        os.killpg(0, signal.SIGKILL)


class Settings:
    """lean-server's settings, a JSON object in the environment."""

    def __init__(self) -> None:
        given = json.loads(os.environ.pop("LEAN_WORKER"))
        self.policy: str = given["policy"]
        self.hub: str = given["hub"]
        self.device: str = given["device"]
        self.dtype: str = given["dtype"]
        self.compile: bool = given["compile"]
        self.threads: int = given["threads"]
        self.info: dict = given["info"]
        self.inputs: dict = given["inputs"]


class Fault(Exception):
    """An error that the manifest's author can correct. Its text names the manifest's key."""


def names_of(feature: dict | None) -> list[str]:
    """The joint names of a feature of meta/info.json: a list, or a mapping of lists."""
    names = (feature or {}).get("names")
    if isinstance(names, dict):
        names = [n for part in names.values() for n in (part if isinstance(part, list) else [part])]
    return [str(n) for n in names or []]


def broken_plugins() -> list[str]:
    """The errors of LeRobot's plugins that do not import, which LeRobot only logs."""
    import importlib
    import pkgutil

    found = []
    for module in pkgutil.iter_modules():
        if module.name.startswith("lerobot_policy_"):
            try:
                importlib.import_module(module.name)
            except Exception as error:
                found.append(f"model.python: its plugin {module.name} does not import: {type(error).__name__}: {error}")
    return found


class Session:
    """A robot's processors, and the model rows of its last chunks, keyed by the bytes of their robot rows."""

    def __init__(self, processors) -> None:
        self.pre, self.post = processors
        self.rows: OrderedDict[bytes, object] = OrderedDict()


class Policy:
    """A loaded policy with its processors."""

    def __init__(self, settings: Settings, progress) -> None:
        progress("importing torch")
        import torch

        progress("importing LeRobot")
        import lerobot
        from lerobot.configs.policies import PreTrainedConfig
        from lerobot.policies.factory import get_policy_class
        from lerobot.policies.utils import populate_queues, prepare_observation_for_inference
        from lerobot.utils.import_utils import register_third_party_plugins

        self.torch, self.populate, self.prepare = torch, populate_queues, prepare_observation_for_inference
        self.version = getattr(lerobot, "__version__", "unknown")
        self.info, self.inputs = settings.info, settings.inputs
        if settings.threads:
            torch.set_num_threads(settings.threads)
        register_third_party_plugins()
        self.folder = settings.policy
        if settings.hub:
            from huggingface_hub import snapshot_download

            progress(f"downloading {settings.policy}")
            self.folder = snapshot_download(settings.policy, revision=settings.hub)
        self.device = settings.device
        if self.device == "auto":
            self.device = "cuda" if torch.cuda.is_available() else "cpu"
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise Fault(f"model.device is {settings.device}, but torch {torch.__version__} finds no GPU: torch.cuda.is_available() is False")
        progress("reading the configuration")
        try:
            config = PreTrainedConfig.from_pretrained(self.folder)
        except ValueError as error:
            raise Fault("; ".join([*broken_plugins(), f"{type(error).__name__}: {error}"])) from error
        except Exception as error:
            if type(error).__name__ != "DecodingError":
                raise
            path = Path(self.folder) / "config.json"
            raise Fault(f"model.repo_or_path: {path}: {error}: install the LeRobot that wrote it, this is {self.version}") from error
        config.device, config.pretrained_path = self.device, Path(self.folder)
        self.dtype = None
        if settings.dtype and hasattr(config, "dtype"):
            config.dtype = settings.dtype
        elif settings.dtype and settings.dtype != "float32":
            self.dtype = getattr(torch, settings.dtype)
        if hasattr(config, "compile_model"):
            config.compile_model = settings.compile
        self.config = config
        self.describe()
        progress(f"loading the weights of {config.type}")
        kind = get_policy_class(config.type)
        self.policy = self.load(kind)
        self.check_weights(kind)
        self.init_rtc()
        self.policy = self.policy.to(self.device).eval()
        if settings.compile and config.type not in ("pi0", "pi05"):
            self.policy.predict_action_chunk = torch.compile(self.policy.predict_action_chunk)
        progress("loading the processors")
        self.processors = self.load_processors()
        self.check_statistics()
        self.sessions: OrderedDict[bytes, Session] = OrderedDict()
        self.max_batch = MAX_BATCH if config.type in TOGETHER and self.steps == 1 and not getattr(config, "use_peft", False) else 1
        self.stateful_steps = any(self.keeps_state(s) for p in self.processors for s in p.steps)
        self.state = "none" if config.type in PURE else "instance" if config.type in STATEFUL else "unknown"
        self.own = self.new_session()
        self.served = False  # a robot's request has been computed

    def load(self, kind):
        if not getattr(self.config, "use_peft", False):
            return kind.from_pretrained(self.folder, config=self.config)
        from peft import PeftConfig, PeftModel

        adapter = PeftConfig.from_pretrained(self.folder)
        return PeftModel.from_pretrained(kind.from_pretrained(adapter.base_model_name_or_path, config=self.config), self.folder, config=adapter)

    def check_weights(self, kind) -> None:
        """Refuses a checkpoint that lacks weights of the policy: LeRobot leaves these at random values, and Pi's
        loaders go on after any error."""
        from lerobot.policies.pretrained import PreTrainedPolicy
        from safetensors import SafetensorError, safe_open

        loaders = lambda c: (c.from_pretrained.__func__, c._load_as_safetensor.__func__)
        fix = getattr(self.policy, "_fix_pytorch_state_dict_keys", None)
        if getattr(self.config, "use_peft", False) or (loaders(kind) != loaders(PreTrainedPolicy) and fix is None):
            return  # a loader whose names of weights are not known
        path = Path(self.folder) / "model.safetensors"
        try:
            with safe_open(path, "pt") as file:
                found = {k: self.torch.empty(file.get_slice(k).get_shape(), device="meta") for k in file.keys()}
        except (OSError, SafetensorError) as error:
            raise Fault(f"model.repo_or_path: {path}: {error}: copy the whole checkpoint again") from None
        if fix:
            found = {k if k.startswith("model.") else f"model.{k}": v for k, v in fix(found, self.config).items()}
        have = dict(self.policy.named_parameters(remove_duplicate=False))
        shared = {have[k].data_ptr() for k in found if k in have}
        fits = lambda k, p: found[k].shape == p.shape if k in found else p.data_ptr() in shared
        if wrong := [k for k, p in have.items() if not fits(k, p)]:
            lacks = f"has no weights for {len(wrong)} of the policy's {len(have)} parameters, such as {wrong[0]}"
            cure = "copy the whole checkpoint again, or install the LeRobot that wrote it"
            raise Fault(f"model.repo_or_path: {path} {lacks}: LeRobot would leave them at random values; {cure}")

    def check_statistics(self) -> None:
        """Refuses a normalisation without its statistics: LeRobot leaves the values as they are, so that an arm would
        get z-scores in place of its units. Also refuses statistics that no data can have, as the export does."""
        own = self.config.input_features | self.config.output_features
        for pipeline, key in zip(self.processors, ("observation.state", "action")):
            for step in pipeline.steps:
                known, features = getattr(step, "_tensor_stats", None), getattr(step, "features", None) or {}
                if known is None or key not in own:
                    continue
                # The shape of the step counts, not the policy's, because EVO1 pads its vectors. A step normalises an
                # action even if its features lack it.
                feature = features.get(key, own[key])
                listed = feature.type in step.norm_map and (key in features or key == "action")
                asked = getattr((getattr(self.config, "normalization_mapping", None) or {}).get(feature.type.value), "value", "IDENTITY")
                if not listed and asked != "IDENTITY":
                    lacks = f"the checkpoint's config.json normalises {key} by {asked}, and its processors leave it out"
                    cure = "copy policy_* from the folder that training wrote"
                    raise Fault(f"model.repo_or_path: {lacks}: LeRobot would pass the values on as they are; {cure}")
                if not listed:
                    continue
                mode = step.norm_map[feature.type].value
                for name in STATISTICS.get(mode, ()):
                    value = known.get(key, {}).get(name)
                    if value is None or value.shape[-1:] != tuple(feature.shape)[-1:] or not value.isfinite().all():
                        has = "no" if value is None else f"an unusable ({tuple(value.shape)})"
                        lacks = f"the checkpoint normalises {key} by {mode}, and its processors have {has} {name} of it"
                        cure = "train the policy on your data first, which writes the statistics"
                        raise Fault(f"model.repo_or_path: {lacks}: LeRobot would pass the values on as they are; {cure}")
                if mode in STATISTICS:
                    low, high = (known[key][name] for name in STATISTICS[mode])
                    width = high if mode == "MEAN_STD" else high - low
                    mirrored = (width < 0).any()
                    if mirrored or not width.any():
                        what = "mirrors an axis" if mirrored else "moves no joint"
                        names = " and ".join(STATISTICS[mode])
                        has = f"the checkpoint normalises {key} by {mode}, and its {names} are {low.tolist()} and {high.tolist()}"
                        cure = "compute the data set's statistics again and save the checkpoint with them"
                        raise Fault(f"model.repo_or_path: {has}, which {what}: {cure}")

    def init_rtc(self) -> None:
        """Enables RTC as lerobot-rollout does, with the checkpoint's settings where it has some."""
        self.rtc = None
        try:
            from lerobot.policies.rtc.configuration_rtc import RTCConfig
        except ImportError:
            return
        # The check of lerobot.rollout, whose import would need data-set packages that inference does not need.
        supports = getattr(self.policy, "supports_rtc", None)
        if not callable(supports) or not supports():
            return
        try:
            call = inspect.signature(self.policy.predict_action_chunk)
            call.bind(object(), inference_delay=0, prev_chunk_left_over=None)
        except (TypeError, ValueError):
            return
        self.rtc = getattr(self.config, "rtc_config", None) or RTCConfig()
        self.rtc.enabled = True
        self.policy.config.rtc_config = self.rtc
        if hasattr(self.policy, "init_rtc_processor"):
            self.policy.init_rtc_processor()

    def load_processors(self):
        from lerobot.policies.factory import make_pre_post_processors

        def overrides(name: str) -> dict:
            file = Path(self.folder) / name
            steps = json.loads(file.read_text()).get("steps", []) if file.exists() else []
            return {"device_processor": {"device": device} for s in steps for device in [self.device if "pre" in name else "cpu"] if s.get("registry_name") == "device_processor"}

        try:
            return make_pre_post_processors(
                self.config,
                pretrained_path=str(self.folder),
                preprocessor_overrides=overrides("policy_preprocessor.json"),
                postprocessor_overrides=overrides("policy_postprocessor.json"),
            )
        except FileNotFoundError as error:
            raise Fault(f"model.repo_or_path: {error}: copy policy_* from the folder that training wrote") from error

    def keeps_state(self, step) -> bool:
        """Whether a step keeps something from one request for the next, as far as its class shows."""
        from lerobot.processor import ProcessorStep

        own = type(step).__module__.startswith("lerobot.") and not hasattr(step, "get_cached_state")
        return not own or type(step).reset is not ProcessorStep.reset

    def new_session(self) -> Session:
        if not self.stateful_steps:
            return Session(self.processors)
        shared = {}  # tokenizers, tensors and networks are read only: a copy of them costs memory and time
        for pipeline in self.processors:
            for step in pipeline.steps:
                for value in vars(step).values():
                    if value is not None and not isinstance(value, (dict, list, set, OrderedDict)) and not hasattr(value, "maxlen"):
                        shared[id(value)] = value
        for pipeline in self.processors:
            for step in pipeline.steps:
                shared.pop(id(step), None)  # a step that refers to another one gets the copy
        return Session(copy.deepcopy(self.processors, shared))

    def describe(self) -> None:
        """Sets the names, the shapes and the rate, before the weights load, so that a missing name is an error at
        once."""
        features, inputs = self.info.get("features", {}), self.inputs
        source = "model.dataset_info has" if self.info else "model.dataset_info is missing, so there are"
        remedy = "name meta/info.json of the data set that the policy was trained with in model.dataset_info, or write model.inputs."
        self.fps = inputs["fps"] or self.info.get("fps")
        if not self.fps:
            raise Fault(f"{'model.dataset_info has no fps' if self.info else 'model.dataset_info is missing, so the rate is unknown'}: {remedy}fps")
        self.cameras = []
        own = {policy: robot for robot, policy in self.renamed().items()}
        for key, feature in self.config.image_features.items():
            if "empty_camera" in key:
                continue
            _, height, width = feature.shape
            key = own.get(key, key)
            self.cameras.append({"key": key, "name": key.removeprefix(PREFIX), "height": height, "width": width})
        known = [c["name"] for c in self.cameras]
        if twice := [n for n in known if known.count(n) > 1]:
            raise Fault(f"model.repo_or_path: the checkpoint renames {self.renamed()}, so that the robot's camera {twice[0]} would be two of the policy's: want another name for each in rename_map of policy_preprocessor.json")
        unknown = [k for k, f in self.config.input_features.items() if k not in self.config.image_features and k != "observation.state"]
        if unknown:
            raise Fault(f"model.repo_or_path: the policy takes {', '.join(unknown)}, want only pictures and observation.state: robots send nothing else")
        self.state_names = inputs["state_names"] or names_of(features.get("observation.state"))
        self.action_names = inputs["action_names"] or names_of(features.get("action"))
        self.steps = max(1, int(getattr(self.config, "n_obs_steps", 1) or 1))
        shape = {"observation.state": self.state_names, "action": self.action_names}
        for key, names in shape.items():
            feature = self.config.input_features.get(key) or self.config.output_features.get(key)
            want = feature.shape[0] if feature else len(names)
            if not names or len(names) != want:
                raise Fault(f"{source} {len(names) or 'no'} names of {key}, want the policy's {want}: {remedy}{'state' if 'state' in key else 'action'}_names")

    def renamed(self) -> dict[str, str]:
        """The checkpoint's rename_map: the robot's and data set's names of observations, and the policy's names."""
        file, found = Path(self.folder) / "policy_preprocessor.json", {}
        for step in json.loads(file.read_text()).get("steps", []) if file.exists() else []:
            if step.get("registry_name") == "rename_observations_processor":
                found |= step.get("config", {}).get("rename_map") or {}
        return found

    def warm_up(self, times: int) -> None:
        """Computes chunks of blank observations. The first chunk shows the size of all."""
        import numpy as np

        for _ in range(times):
            row = {
                "pictures": [np.zeros((self.steps, c["height"], c["width"], 3), np.uint8) for c in self.cameras],
                "state": np.zeros((self.steps, len(self.state_names)), np.float32),
            }
            _, robot = self.chunk(self.own, row, task="", seed=0, fresh=True)
        self.policy.reset()
        self.chunk_size, self.action_dim = robot.shape
        if self.action_dim != len(self.action_names):
            raise Fault(f"the policy's actions have {self.action_dim} values and {len(self.action_names)} names: correct model.dataset_info or model.inputs.action_names")

    def hello(self) -> dict:
        config = self.config
        return {
            "version": VERSION,
            "policy_type": config.type,
            "lerobot": self.version,
            "torch": self.torch.__version__,
            "python": sys.version.split()[0],
            "folder": str(self.folder),
            "device": self.device,
            "fps": float(self.fps),
            "chunk_size": self.chunk_size,
            "n_action_steps": min(self.chunk_size, int(getattr(config, "n_action_steps", 0) or 0)),
            "action_dim": self.action_dim,
            "action_names": self.action_names,
            "state_names": self.state_names,
            "cameras": [{k: c[k] for k in ("name", "height", "width")} for c in self.cameras],
            "observation_steps": self.steps,
            "rtc": self.rtc is not None,
            "num_steps": int(getattr(config, "num_inference_steps", 0) or getattr(config, "num_steps", 0) or 10),
            "execution_horizon": min(self.chunk_size, int(self.rtc.execution_horizon)) if self.rtc else 0,
            "state": self.state,
            "max_batch": self.max_batch,
            "reads_task": self.reads_task(),
        }

    def reads_task(self) -> bool:
        """Whether a step of the preprocessor reads the task, or the policy's own code does."""
        known = {"act", "diffusion", "vqbet", "tdmpc"}
        return self.config.type not in known or any("okeniz" in type(s).__name__ for s in self.processors[0].steps)

    def session(self, name: bytes, fresh: bool) -> Session:
        found = self.sessions.pop(name, None)
        if found is None:
            found = self.new_session()
            while len(self.sessions) >= MAX_SESSIONS:
                self.sessions.popitem(last=False)
        elif fresh:
            found.pre.reset()
            found.post.reset()
            found.rows.clear()
        self.sessions[name] = found
        return found

    def seed(self, seed: int) -> None:
        """Seeds the noise from the request, so that a repeated request gives the same chunk."""
        self.torch.manual_seed(seed & 0x7FFFFFFFFFFFFFFF)

    def observation(self, row: dict, step: int, task: str) -> dict:
        observation = {c["key"]: row["pictures"][i][step] for i, c in enumerate(self.cameras)}
        observation["observation.state"] = row["state"][step].copy()
        batch = self.prepare(observation, self.torch.device(self.device), task, self.info.get("robot_type"))
        batch["task"] = [task]
        return batch

    def fill_queues(self, batch: dict) -> None:
        """Fills the policy's queues of observations, as its select_action does."""
        queues = getattr(self.policy, "_queues", None)
        if not isinstance(queues, dict):
            return
        batch = dict(batch)
        if "observation.images" in queues and self.config.image_features:
            batch["observation.images"] = self.torch.stack([batch[k] for k in self.config.image_features], dim=-4)
        if "observation.image" in queues and self.config.image_features:
            batch["observation.image"] = batch[next(iter(self.config.image_features))]
        self.policy._queues = self.populate(queues, batch, exclude_keys=["action"])

    def needs_queues(self) -> bool:
        return self.steps > 1 or self.config.type in ("diffusion", "vqbet", "multi_task_dit", "tdmpc")

    def chunk(self, session: Session, row: dict, task: str, seed: int, fresh: bool, prefix=None, delay: int = 0, end: int = 0):
        """The chunk of one row: model rows and robot rows, float32 [chunk, joints] on the CPU."""
        self.seed(seed)
        if self.state == "none" or fresh:
            self.policy.reset()
        batch, more = self.inputs_of(session, row, task, prefix, delay, end)
        return self.outputs_of(session, self.predict(batch, more))

    def chunks(self, jobs: list[tuple]) -> list[tuple]:
        """The result of self.chunk for each job, a tuple of its arguments. Rows whose inputs have equal
        shapes share a call of the policy."""
        groups, found = {}, [None] * len(jobs)
        for i, (session, row, task, seed, _, *prefix) in enumerate(jobs):
            batch, more = self.inputs_of(session, row, task, *prefix)
            if TOGETHER[self.config.type]:
                self.seed(seed)
                shape = (1, self.config.chunk_size, self.config.max_action_dim)
                more["noise"] = self.policy.model.sample_noise(shape, self.torch.device(self.device))
            kept = {k: v for k, v in more.items() if not self.torch.is_tensor(v)}
            shapes = [(k, tuple(v.shape)) for d in (batch, more) for k, v in d.items() if self.torch.is_tensor(v)]
            groups.setdefault(repr((shapes, kept)), []).append((i, batch, more))
        for rows in groups.values():
            self.policy.reset()
            batch, more = (self.together([row[n] for row in rows]) for n in (1, 2))
            actions = self.predict(batch, more)
            for n, (i, _, _) in enumerate(rows):
                found[i] = self.outputs_of(jobs[i][0], actions[n : n + 1])
        return found

    def together(self, rows: list[dict]) -> dict:
        """Joins the rows' entries: tensors along the first dimension, lists end to end. Other entries are the first
        row's."""
        torch, joined = self.torch, {}
        for key, first in rows[0].items():
            values = [row[key] for row in rows]
            if torch.is_tensor(first):
                joined[key] = torch.stack(values) if key == "prev_chunk_left_over" else torch.cat(values) if first.ndim else first
            else:
                joined[key] = sum(values, []) if isinstance(first, list) else first
        return joined

    def inputs_of(self, session: Session, row: dict, task: str, prefix=None, delay: int = 0, end: int = 0) -> tuple[dict, dict]:
        """The arguments of predict_action_chunk for one row."""
        torch = self.torch
        for step in range(self.steps):
            batch = session.pre(self.observation(row, step, task))
            batch.pop("action", None)  # as select_action does
            if self.needs_queues():
                self.fill_queues(batch)
        more = self.conditioning(session, batch, prefix, delay, end) if self.rtc else {}
        if self.needs_queues() and "observation.images" in self.policy._queues:
            batch["observation.images"] = torch.stack([batch[k] for k in self.config.image_features], dim=-4)
        if self.needs_queues() and "observation.image" in self.policy._queues:
            batch["observation.image"] = batch[next(iter(self.config.image_features))]
        return batch, more

    def predict(self, batch: dict, more: dict):
        if not self.dtype:
            return self.policy.predict_action_chunk(batch, **more)
        with self.torch.autocast(self.device.split(":")[0], self.dtype):
            return self.policy.predict_action_chunk(batch, **more)

    def outputs_of(self, session: Session, actions):
        """Model rows and robot rows of one row's actions."""
        torch = self.torch
        if actions.ndim == 2:
            actions = actions.unsqueeze(0)
        if actions.shape[0] != 1 and actions.shape[1] == 1:  # tdmpc: [horizon, batch, joints]
            actions = actions.transpose(0, 1)
        model = actions.detach().clone()
        robot = session.post(actions)
        model, robot = (t.squeeze(0).to("cpu", torch.float32).contiguous() for t in (model, robot))
        if self.rtc:
            self.remember(session, model, robot)
        return model, robot

    def conditioning(self, session: Session, batch: dict, prefix, delay: int, end: int) -> dict:
        if prefix is None:
            return {"inference_delay": 0, "prev_chunk_left_over": None}
        more = {"inference_delay": delay, "prev_chunk_left_over": self.model_rows(session, prefix[:end] if end else prefix)}
        if end and end != self.rtc.execution_horizon:
            more["execution_horizon"] = end
        return more

    def remember(self, session: Session, model, robot) -> None:
        for m, r in zip(model, robot.numpy()):
            session.rows[r.tobytes()] = m
            session.rows.move_to_end(r.tobytes())
        while len(session.rows) > 4 * len(model):
            session.rows.popitem(last=False)

    def model_rows(self, session: Session, prefix):
        """The prefix in the policy's own units: the remembered model rows if all are known, else computed from the
        robot's units. Relative actions are always computed, because they depend on the newest state."""
        from lerobot.policies.rtc.relative import reanchor_relative_rtc_prefix
        from lerobot.processor import NormalizerProcessorStep, RelativeActionsProcessorStep, TransitionKey, create_transition

        torch = self.torch
        normalizer = next((s for s in session.pre.steps if isinstance(s, NormalizerProcessorStep)), None)
        relative = next((s for s in session.pre.steps if isinstance(s, RelativeActionsProcessorStep) and s.enabled), None)
        rows = torch.from_numpy(prefix.copy())
        if relative is not None:
            if relative.action_names is None:
                relative.action_names = self.action_names
            return reanchor_relative_rtc_prefix(rows, relative.get_cached_state(), relative, normalizer, self.device)
        known = [session.rows.get(r.tobytes()) for r in prefix]
        if all(k is not None for k in known):
            return torch.stack(known).to(self.device)
        if normalizer is not None and (padded := normalizer.features.get("action")):  # EVO1 pads its actions with zeros
            rows = torch.nn.functional.pad(rows, (0, padded.shape[0] - rows.shape[1]))
        transition = create_transition(action=rows)
        if normalizer is not None:
            transition = normalizer(transition)
        return transition[TransitionKey.ACTION].to(self.device)


class Rows:
    """The shared memory: pictures, state, prefix and chunks of each row (doc.go)."""

    def __init__(self, policy: Policy, count: int) -> None:
        import numpy as np

        os.set_inheritable(MEMORY, False)
        chunk = 4 * policy.chunk_size * policy.action_dim
        sizes = [policy.steps * c["height"] * c["width"] * 3 for c in policy.cameras]
        sizes += [4 * policy.steps * len(policy.state_names), chunk, chunk, chunk]
        offsets, stride = [], 0
        for size in sizes:
            offsets.append(stride)
            stride += aligned(size)
        stride = aligned(stride, 4096)
        if (have := os.fstat(MEMORY).st_size) != stride * count:
            raise ValueError(f"shared memory has {have} bytes, want {count} rows of {stride}")
        memory = mmap.mmap(MEMORY, stride * count)
        self.rows = []
        for i in range(count):
            at = lambda n, dtype, shape, base=i * stride: np.frombuffer(memory, dtype, int(np.prod(shape)), base + offsets[n]).reshape(shape)
            n = len(policy.cameras)
            shape = (policy.chunk_size, policy.action_dim)
            self.rows.append({
                "pictures": [at(k, np.uint8, (policy.steps, c["height"], c["width"], 3)) for k, c in enumerate(policy.cameras)],
                "state": at(n, np.float32, (policy.steps, len(policy.state_names))),
                "prefix": at(n + 1, np.float32, shape),
                "model": at(n + 2, np.float32, shape),
                "robot": at(n + 3, np.float32, shape),
            })  # fmt: skip


def run(policy: Policy, rows: Rows, count: int, payload: bytes) -> None:
    at, targets, jobs = 0, [], []
    for _ in range(count):
        slot, flags, name, _episode, seed, length, delay, end, size = ROW.unpack_from(payload, at)
        at += ROW.size
        task = payload[at : at + size].decode("utf-8", "replace")
        at += size
        row = rows.rows[slot]
        own = bool(flags & OWN)
        if own and policy.served and policy.state != "none":
            row["model"][:], row["robot"][:] = 0, 0  # a run of the server's own must not disturb the robot's state
            continue
        fresh = bool(flags & RESET)
        session = policy.own if own else policy.session(name, fresh)
        policy.served = policy.served or not own
        prefix = row["prefix"][:length] if flags & CONDITIONED and length else None
        targets.append(row)
        jobs.append((session, row, task, seed, fresh, prefix, delay, end))
    chunks = policy.chunks(jobs) if len(jobs) > 1 and policy.max_batch > 1 else [policy.chunk(*job) for job in jobs]
    for row, (model, robot) in zip(targets, chunks):
        if robot.shape != row["robot"].shape:  # NumPy would repeat a single action
            want = f"its first one had {row['robot'].shape}"
            raise ValueError(f"the policy's chunk has the shape {tuple(robot.shape)}, {want}")
        row["robot"][:] = robot.numpy()
        row["model"][:] = model.numpy() if model.shape == robot.shape else robot.numpy()


def memory_short(error: BaseException) -> bool:
    text = str(error)
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "out of memory" in text or "can't allocate memory" in text


def serve(control: Control, policy: Policy) -> None:
    import gc

    control.send(HELLO, json.dumps(policy.hello()).encode())
    kind, count, _, _ = control.receive()
    if kind != MAP:
        raise ValueError(f"frame {kind}, want {MAP}")
    rows = Rows(policy, count)
    control.send(READY)
    while True:
        kind, count, sequence, payload = control.receive()
        if kind != RUN:
            raise ValueError(f"frame {kind}, want {RUN}")
        status, text = OK, ""
        try:
            run(policy, rows, count, payload)
        except Exception as error:
            status, text = (NO_MEMORY if memory_short(error) else ERROR), f"{type(error).__name__}: {error}"
            traceback.print_exc()
        if status == NO_MEMORY:
            gc.collect()
            if policy.device.startswith("cuda"):
                policy.torch.cuda.empty_cache()
        control.send(DONE, text.encode()[:2000], sequence, status)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    guard()
    control = Control()
    begun = time.monotonic()
    try:
        settings = Settings()
        policy = Policy(settings, control.progress)
        control.progress("computing the first chunks")
        policy.warm_up(3 if settings.compile else 1)
        control.progress(f"loaded in {time.monotonic() - begun:.1f} s")
    except BaseException as error:
        traceback.print_exc()
        text = str(error) if isinstance(error, Fault) else f"{type(error).__name__}: {error}"
        control.send(FAILED, text.encode()[:2000], count=NO_MEMORY if memory_short(error) else ERROR if isinstance(error, Fault) else OK)
        sys.stderr.flush()
        os._exit(1)
    serve(control, policy)


if __name__ == "__main__":
    main()
