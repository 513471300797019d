"""Reads a LeRobot checkpoint folder: its configuration, its processors and weights."""

import contextlib
import dataclasses
import errno
import functools
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from . import stats as statistics
from .errors import ExportError
from .normalize import Scale
from .relative import mask_of

STATE, ACTION = "observation.state", "action"
PRE, POST = "policy_preprocessor", "policy_postprocessor"
WEIGHTS = "model.safetensors"

# Errors of writing and memory, which are independent of the checkpoint's files.
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}

MIGRATE = f"{sys.executable} -m lerobot.processor.migrate_policy_normalization --pretrained-path {{}}"

# Steps that move values without changing them; they may be at any place in the order.
PLUMBING = {"to_batch_processor", "device_processor"}

# The keys of each step that the exporter reproduces. Any other step or key may change
# values in a way that the graph does not.
KNOWN = {
    "rename_observations_processor": {"rename_map"},
    "to_batch_processor": set(),
    "device_processor": {"device", "float_dtype"},
    "normalizer_processor": {"eps", "features", "norm_map", "normalize_observation_keys"},
    "unnormalizer_processor": {"eps", "features", "norm_map", "normalize_observation_keys"},
    "relative_actions_processor": {"enabled", "exclude_joints", "action_names"},
    "absolute_actions_processor": {"enabled"},
    "smolvla_new_line_processor": set(),
    "pi0_new_line_processor": set(),
    "pi05_prepare_state_tokenizer_processor_step": set(),
    "tokenizer_processor": {"max_length", "task_key", "padding_side", "padding", "truncation", "tokenizer_name"},
}


@dataclasses.dataclass
class Step:
    """One processor step: its registry name, configuration and tensors, and its file: that of the tensors, or of the
    steps if it has none."""

    name: str
    config: dict[str, Any]
    state: dict[str, torch.Tensor]
    file: str = ""


@dataclasses.dataclass
class Camera:
    """A camera: the robot's name for it, the policy's key, the size of its pictures, and the robot's (and data set's) key."""

    name: str
    key: str
    height: int
    width: int
    own: str = ""


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ExportError(f"{path} does not exist: want the whole checkpoint folder as LeRobot's save_pretrained writes it") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as e:
        raise ExportError(f"{path}: {e}; want JSON") from None
    if not isinstance(value, dict):
        raise ExportError(f"{path} holds a {type(value).__name__}, want a JSON object")
    return value


def instead(folder: Path) -> str:
    """Describes a path without config.json, and names the path to give instead."""
    if folder.is_file():
        return f"{folder} is a file: want the checkpoint's folder, {folder.parent}"
    if not folder.is_dir():
        word = str(folder)
        hub = f"; if it is a name on the hub: `hf download {word} --local-dir {folder.name}`, then give {folder.name}" if re.fullmatch(r"[\w.-]+/[\w.-]+", word) else ""
        return f"{word} is not a folder: want a LeRobot checkpoint on this machine (outputs/train/NAME/checkpoints/last/pretrained_model){hub}"
    if (folder / "meta" / "info.json").is_file():
        return f"{folder} is a data set, not a checkpoint: want what was trained on it (outputs/train/NAME/checkpoints/last/pretrained_model), with --dataset-info {folder / 'meta' / 'info.json'}"
    if (folder / "bundle.json").is_file():
        return f"{folder} is a bundle already, which lean-server serves: want the LeRobot checkpoint that it was made of"
    # Training leaves OUT/checkpoints/STEP/pretrained_model, and OUT/checkpoints/last links to the newest step.
    for pattern in ("checkpoints/last/pretrained_model", "last/pretrained_model", "pretrained_model", "checkpoints/*/pretrained_model", "*/pretrained_model"):
        if found := sorted(path for path in folder.glob(pattern) if (path / "config.json").is_file()):
            return f"{folder} holds checkpoints and is none: want {found[-1]}"
    return f"{folder} has no config.json: want a checkpoint folder with config.json, {PRE}.json, {POST}.json and {WEIGHTS}, as LeRobot's save_pretrained writes it (outputs/train/NAME/checkpoints/last/pretrained_model)"


def reraise_system(error: BaseException | None) -> None:
    """Raises the system error that caused `error`, if any: LeRobot writes a copy of config.json while it reads it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            raise error
        if isinstance(error, OSError) and error.errno == errno.ENOENT and error.filename is None:  # tempfile finds no usable folder
            raise OSError(errno.ENOSPC, f"{error.strerror}: none of them can be written, is the disk full?")
        error = error.__cause__ or error.__context__


@contextlib.contextmanager
def lerobots(doing: str):
    """Attributes an error to LeRobot, and not to this exporter, where LeRobot's code fails on the checkpoint."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError, IndexError, AssertionError, NotImplementedError, OSError) as e:
        reraise_system(e)
        raise ExportError(f"LeRobot {lerobot_version()} itself fails on this checkpoint while it {doing} ({type(e).__name__}: {e}): want a checkpoint that runs in LeRobot; where lerobot-eval or lerobot-rollout runs it, report this line as a fault of edgert-export") from e


class Checkpoint:
    """A checkpoint folder that has been read, without the policy's weights in memory."""

    def __init__(self, folder: Path | str):
        self.dir = Path(folder)
        if not (self.dir / "config.json").is_file():
            raise ExportError(instead(self.dir))
        self.config = read_json(self.dir / "config.json")
        self.type = self._type()
        self.warnings: dict[str, None] = {}  # each text once, in the order of finding
        # A merged policy keeps use_peft where it was loaded with the adapter's configuration.
        if (self.dir / "adapter_config.json").exists() or self.config.get("use_peft") and not (self.dir / WEIGHTS).exists():
            raise ExportError(f"{self.dir} holds a PEFT adapter, not whole weights: merge it into its base policy (PeftModel.merge_and_unload, then save_pretrained into another folder), copy policy_* of {self.dir} beside it, and export that folder")
        self._check_weights()
        self.pre = self._steps(PRE)
        self.post = self._steps(POST)
        self.inputs = self._features("input_features")
        self.outputs = self._features("output_features")
        if ACTION not in self.outputs:
            raise ExportError(f"config.json's output_features are {sorted(self.outputs)}, want {ACTION}")

    # contents of the files

    def _type(self) -> str:
        kind, path = self.config.get("type"), self.dir / "config.json"
        if isinstance(kind, str) and kind:
            return kind
        if other := self.config.get("model_type"):
            raise ExportError(f"{path} has no policy type of LeRobot (type is {json.dumps(kind)}) but model_type {other!r}: it is a model of the transformers library, want the checkpoint of a LeRobot policy")
        raise ExportError(f"{path} names no policy type (type is {json.dumps(kind)}): want the config.json of a LeRobot policy, which has one such as \"act\"")

    def _object(self, value: Any, key: str, path: Path) -> dict[str, Any]:
        """A JSON object, {} where it is absent or null."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ExportError(f"{path}: {key} is {json.dumps(value)[:80]}, want a JSON object: copy the checkpoint again, or write it again with LeRobot's save_pretrained")
        return value

    def _check_weights(self) -> None:
        path = self.dir / WEIGHTS
        if not path.is_file():
            parts = sorted(p.name for p in self.dir.iterdir() if p.name.startswith("model-") or p.suffix in (".bin", ".pt", ".ckpt"))
            other = f"; {', '.join(parts[:3])}{' ...' if len(parts) > 3 else ''} is another form of them: load the policy with LeRobot and save_pretrained it, which writes one file" if parts else ""
            raise ExportError(f"{path} does not exist: want the weights beside config.json{other}")
        try:
            with safe_open(path, "pt") as f:
                keys = list(f.keys())
        except (SafetensorError, OSError) as e:
            raise ExportError(f"{path}: {e}; want a safetensors file: copy it again") from None
        old = [k for k in keys if k.startswith(("normalize_inputs.", "unnormalize_outputs.", "normalize_targets."))]
        if old:
            raise ExportError(f"{self.dir} is a checkpoint from before LeRobot's processors: {WEIGHTS} holds the statistics ({old[0]}); migrate it with `{MIGRATE.format(self.dir)}` and export {self.dir}_migrated, which that writes (without a network it ends with an error once all but the model card is there)")
        if not (self.dir / f"{PRE}.json").exists():
            raise ExportError(f"{self.dir / PRE}.json does not exist, and {WEIGHTS} holds no statistics: a policy's save_pretrained writes no processors; copy policy_* from the folder that training wrote")

    def _steps(self, name: str) -> list[Step]:
        path = self.dir / f"{name}.json"
        steps, entries = [], read_json(path).get("steps", [])
        if not isinstance(entries, list):
            raise ExportError(f"{path}: steps is {json.dumps(entries)[:80]}, want a list: copy the checkpoint again")
        for i, entry in enumerate(entries):
            entry = self._object(entry, f"step {i}", path)
            step = entry.get("registry_name") or entry.get("class") or ""
            if not isinstance(step, str) or step not in KNOWN:
                raise ExportError(f"{path}: step {i} is {step!r}, which this exporter does not know; it knows {', '.join(sorted(KNOWN))}: export without it only if training did not use it")
            config = self._object(entry.get("config"), f"step {i} ({step}) config", path)
            if extra := set(config) - KNOWN[step]:
                raise ExportError(f"{path}: step {i} ({step}) has {', '.join(sorted(extra))}, which this exporter does not know: it would leave out what that does")
            if step == "device_processor" and config.get("float_dtype") not in (None, "float32"):
                raise ExportError(f"{path}: step {i} ({step}) casts to {config['float_dtype']}, want float32: set float_dtype to null, the graph computes in the type of --dtype")
            for key in ("norm_map", "features", "rename_map"):
                if key in config:
                    config = config | {key: self._object(config[key], f"step {i} ({step}) {key}", path)}
            state = entry.get("state_file")
            steps.append(Step(step, config, self._state(path, state, i), f"{path.name}, step {i} ({step})" + (f", state_file {state}" if state else ", which names no state_file")))
        return steps

    def _state(self, path: Path, name: Any, i: int) -> dict[str, torch.Tensor]:
        if not name:
            return {}
        if not isinstance(name, str):
            raise ExportError(f"{path}: step {i} has state_file {json.dumps(name)[:80]}, want the name of a file: copy the checkpoint again")
        try:
            return load_file(path.parent / Path(name).name)
        except (SafetensorError, OSError) as e:
            raise ExportError(f"{path} names {name}: {e}; copy the whole checkpoint folder") from None

    def _features(self, key: str) -> dict[str, tuple[str, tuple[int, ...]]]:
        features = {}
        for name, f in self._object(self.config.get(key), key, self.dir / "config.json").items():
            try:
                features[name] = (str(f["type"]), tuple(int(n) for n in f["shape"]))
            except (TypeError, KeyError, ValueError):
                raise ExportError(f"config.json: {key}[{name!r}] is {f!r}, want a type and a shape") from None
            if not features[name][1] or min(features[name][1]) < 1:
                raise ExportError(f"config.json: {key}[{name!r}] has the shape {f['shape']!r}, want sizes above 0")
        return features

    # queries of the exporter

    def require(self, pre: list[str], post: list[str]) -> None:
        """Refuses an order of steps that the family's graph does not reproduce."""
        for name, have, want in ((PRE, self.pre, pre), (POST, self.post, post)):
            got = [s.name for s in have if s.name not in PLUMBING and not _idle(s)]
            want = [w for w in want if w in got or w not in OPTIONAL]
            if got != want:
                raise ExportError(f"{name}.json has the steps {' -> '.join(got) or 'none'}, want {' -> '.join(want)} for {self.type}: the graph would compute something else")

    def step(self, name: str) -> Step | None:
        return next((s for s in self.pre + self.post if s.name == name), None)

    def rename(self) -> dict[str, str]:
        """Maps the robot's keys to the policy's."""
        step = self.step("rename_observations_processor")
        return dict(step.config.get("rename_map") or {}) if step else {}

    def cameras(self, sizes: dict[str, tuple[int, int] | None]) -> list[Camera]:
        """The cameras of the robot in the policy's order, under the robot's names.
        `sizes` overrides the checkpoint's sizes by camera name; None marks a missing camera."""
        cameras, known = [], []
        for key, (kind, shape) in self.inputs.items():
            if kind != "VISUAL" or ".empty_camera_" in key:
                continue
            if len(shape) != 3 or shape[0] != 3:
                raise ExportError(f"config.json: {key} has shape {list(shape)}, want [3, height, width]")
            sources = [own for own, policy in self.rename().items() if policy == key] or [key]
            own = sources[-1]
            if not own.startswith("observation."):
                raise ExportError(f"{PRE}.json renames {own} to {key}, but the names of LeRobot's observations begin with observation., so that it renames nothing: write observation.images.{own} into rename_map, or leave it out")
            if len(sources) > 1:
                self.warnings.setdefault(f"{PRE}.json renames {' and '.join(sources)} to {key}: the bundle takes the last one, LeRobot any that the robot has")
            name = own.removeprefix("observation.images.").removeprefix("observation.")
            known.append(name)
            if size := sizes.get(name, shape[1:]):
                cameras.append(Camera(name, key, *size, own))
        if twice := [n for n in known if known.count(n) > 1]:
            raise ExportError(f"{PRE}.json renames {self.rename()}, so that the robot's camera {twice[0]} would be two of the policy's: want another name for each camera in rename_map, LeRobot feeds one of the two nothing")
        if unknown := set(sizes) - set(known):
            raise ExportError(f"--cameras names {', '.join(sorted(unknown))}, but this policy has {', '.join(known) or 'no camera'}: want these names; on the robot, edge-rt --camera NAME=DEVICE gives them to its devices")
        return cameras

    def state_dim(self) -> int:
        if STATE not in self.inputs:
            raise ExportError(f"config.json's input_features are {sorted(self.inputs)}, want {STATE}: a policy without joint state is not served")
        return self.inputs[STATE][1][0]

    def action_dim(self) -> int:
        return self.outputs[ACTION][1][0]

    def scale(self, feature: str, before: bool = False) -> Scale:
        """The processors' normalisation of one of the policy's features. For the action it is the
        post-processor's, or the pre-processor's with `before`. An action or state that is to be
        normalised and has no statistics is refused, while LeRobot silently leaves it unchanged;
        pictures without statistics are noted in `warnings`."""
        step = self.step("unnormalizer_processor" if feature == ACTION and not before else "normalizer_processor")
        known = self.outputs if feature == ACTION else self.inputs
        if step is None:
            return Scale(feature)
        kind, shape = known[feature]
        asked = str(self._object(self.config.get("normalization_mapping"), "normalization_mapping", self.dir / "config.json").get(kind) or "IDENTITY")
        mode = self._mode(step, feature, kind, asked)
        if mode == "IDENTITY":
            return Scale(feature)
        found = {k.removeprefix(feature + "."): v for k, v in step.state.items() if k.rpartition(".")[0] == feature}
        found = statistics.usable(feature, mode, found, shape, kind == "VISUAL", lambda text: self.warnings.setdefault(text))
        if not found:
            self._lacking(feature, statistics.absent(feature, mode, step.file, list(step.state)), statistics.cure(feature))
        return Scale(feature, mode, found, self._eps(step))

    def _mode(self, step: Step, feature: str, kind: str, asked: str) -> str:
        """The mode by which a step normalises a feature. LeRobot is silent where config.json normalises a feature that
        the step leaves out through a missing key."""
        features, norm_map = step.config.get("features"), step.config.get("norm_map") or {}
        keys = step.config.get("normalize_observation_keys")
        entry = features.get(feature) if features is not None else None
        named = str(entry.get("type", kind)) if isinstance(entry, dict) else kind
        mode = str(norm_map.get(named, "IDENTITY"))
        if features is not None and feature not in features:
            if mode != "IDENTITY" or asked != "IDENTITY":
                by = f"its norm_map has {mode} for it" if mode != "IDENTITY" else f"config.json normalises {kind} by {asked}"
                self._lacking(feature, f"{step.file}, does not list {feature} among its features ({', '.join(features) or 'none'}), so that LeRobot leaves it unchanged, but {by}", statistics.cure(feature))
            return "IDENTITY"
        if named not in norm_map and asked != "IDENTITY":
            self._lacking(feature, f"{step.file}, has no entry for {named} in its norm_map ({', '.join(norm_map) or 'none'}), so that LeRobot leaves {feature} unchanged, but config.json normalises {kind} by {asked}", f"put {named} into norm_map as training had it")
        elif mode != asked and kind in (self.config.get("normalization_mapping") or {}):
            self.warnings.setdefault(f"{step.file}, normalises {feature} by {mode}, config.json says {asked}: the bundle does as the step says, as LeRobot does")
        if keys is not None and feature != ACTION and feature not in keys and mode != "IDENTITY":
            self.warnings.setdefault(f"{step.file}, normalises only {', '.join(keys) or 'nothing'} (normalize_observation_keys): {feature} is left unchanged, as LeRobot does")
            return "IDENTITY"
        return mode

    def _lacking(self, feature: str, text: str, cure: str) -> None:
        """Refuses a missing normalisation of state or action, which would move joints wrongly, and notes any other."""
        if feature in (STATE, ACTION):
            raise ExportError(f"{text}: {'z-scores or shares would go to the arm as its units' if feature == ACTION else 'the policy would see joints that it was never trained on'}. Cure: {cure}")
        self.warnings.setdefault(f"{text}, and so does the bundle. If training normalised it: {cure}")

    def _eps(self, step: Step) -> float:
        eps = step.config.get("eps", 1e-8)
        if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not 0 <= eps < 1:
            raise ExportError(f"{step.file}, has eps {json.dumps(eps)[:80]}, want a small number above 0: LeRobot writes 1e-08")
        return float(eps)

    def training(self, section: str, key: str) -> str:
        """A text of train_config.json. It is used for hints only: LeRobot's policy runs without that file."""
        path = self.dir / "train_config.json"
        if not path.is_file():
            return ""
        try:
            value = read_json(path).get(section)
        except ExportError as e:
            self.warnings.setdefault(f"{e}; it is not used")
            return ""
        value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, str) else ""

    def relative_mask(self) -> list[bool] | None:
        """A mask of the action's joints that are relative to the state; None without relative actions."""
        step = self.step("relative_actions_processor")
        if step is None or not step.config.get("enabled"):
            return None
        return mask_of(step.config.get("action_names"), step.config.get("exclude_joints") or [], self.action_dim())

    # LeRobot's own objects, the reference of the graph

    def policy(self, **overrides: Any):
        """The policy as LeRobot loads it, on the CPU, with some keys of its configuration
        replaced. Its weights are compared with the file's, because LeRobot leaves a weight
        that the file lacks at random values."""
        from lerobot.configs.policies import PreTrainedConfig
        from lerobot.policies.factory import get_policy_class

        try:
            config = PreTrainedConfig.from_pretrained(str(self.dir))
        except Exception as e:
            reraise_system(e)
            raise ExportError(f"config.json is not one that the installed LeRobot reads: {e}; install the LeRobot that wrote it") from None
        config.device = "cpu"
        for key, value in overrides.items():
            setattr(config, key, value)
        try:
            policy = get_policy_class(self.type).from_pretrained(str(self.dir), config=config)
        except (RuntimeError, ValueError, AssertionError, OSError) as e:
            reraise_system(e)
            raise ExportError(f"LeRobot {lerobot_version()} does not load {self.dir}: {e}; config.json and the weights do not belong together") from None
        self.compare(policy)
        return policy.eval()

    def compare(self, policy) -> None:
        """Refuses a policy whose tensors differ from the file's."""
        have = policy.state_dict()
        with safe_open(self.dir / WEIGHTS, "pt") as f:
            file = set(f.keys())
            if wild := [k for k in sorted(file) if not torch.isfinite(f.get_tensor(k)).all()]:
                raise ExportError(f"{WEIGHTS} has values that are not finite in {', '.join(wild[:5])}: the training diverged, or the file is damaged; want an earlier checkpoint")
            differ = [k for k in sorted(file & set(have)) if not _same(f.get_tensor(k), have[k])]
        shared = {t.data_ptr() for k, t in have.items() if k in file}
        lost = [k for k, t in have.items() if k not in file and t.data_ptr() not in shared]
        extra = sorted(file - set(have))
        for what, keys in (("lacks", lost), ("holds what the policy has not:", extra), ("differs from the loaded policy in", differ)):
            if keys:
                raise ExportError(f"{WEIGHTS} {what} {', '.join(keys[:5])}{' ...' if len(keys) > 5 else ''}: config.json and the weights do not belong together, or LeRobot {lerobot_version()} names them otherwise; want the folder as save_pretrained wrote it")

    def processors(self, overrides: dict[str, dict[str, Any]] | None = None):
        """LeRobot's own pre- and post-processor of this checkpoint, on the CPU. overrides:
        keys of the pre-processor's steps, by their names."""
        from lerobot.configs.policies import PreTrainedConfig
        from lerobot.policies.factory import make_pre_post_processors

        with lerobots("makes the processors"):
            config = PreTrainedConfig.from_pretrained(str(self.dir))
            config.device = "cpu"
            return make_pre_post_processors(config, pretrained_path=str(self.dir), preprocessor_overrides={"device_processor": {"device": "cpu"}, **(overrides or {})})

    @functools.cached_property
    def weights_sha256(self) -> str:
        return sha256(self.dir / WEIGHTS)

    @functools.cached_property
    def stats_sha256(self) -> str:
        """The digest of the statistics of both processors."""
        whole = hashlib.sha256()
        for step in self.pre + self.post:
            for name in sorted(step.state):
                whole.update(f"{step.name} {name} ".encode() + step.state[name].to(torch.float32).numpy().tobytes())
        return whole.hexdigest()


# Optional steps, which a family reproduces where a checkpoint has them.
OPTIONAL = {"rename_observations_processor", "relative_actions_processor", "absolute_actions_processor"}


def _idle(step: Step) -> bool:
    """Whether the step, as configured, changes nothing."""
    if step.name in ("relative_actions_processor", "absolute_actions_processor"):
        return not step.config.get("enabled")
    if step.name == "rename_observations_processor":
        return not step.config.get("rename_map")
    return False


def _same(file: torch.Tensor, own: torch.Tensor) -> bool:
    return file.shape == own.shape and torch.equal(file.to(own.dtype), own.cpu())


def sha256(path: Path) -> str:
    whole = hashlib.sha256()
    with path.open("rb") as f:
        while block := f.read(1 << 20):
            whole.update(block)
    return whole.hexdigest()


def lerobot_version() -> str:
    import lerobot

    return lerobot.__version__
