"""Code common to the flow-matching policies that read their task: the sampler with Real-Time
Chunking around prefix() and step(), the task's tokens, and the reference call of LeRobot."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import rtc, sampler
from ..checkpoint import ACTION, lerobots
from ..errors import ExportError
from .base import Case, Family

TOKENS, TOKEN_MASK = "observation.language.tokens", "observation.language.attention_mask"

# The tasks of golden sets: one as people type it, one with the characters that prompts are cleaned of.
TASKS = ("pick up the red cube and put it into the box", "Open_the drawer,\nthen wait 25 s ")

MODES = {"guided": rtc.GUIDED, "trained": rtc.TRAINED}


class ToModel(nn.Module):
    """Actions in robot units to the model's, and back."""

    def __init__(self, family: Family, back: bool = False):
        super().__init__()
        self.relative, self.back = family.relative, back
        self.scale = family.action_out() if back else family.action_in()

    def forward(self, actions: Tensor, state: Tensor) -> Tensor:
        if self.back:
            robot = self.scale(actions)
            return robot if self.relative is None else self.relative.to_absolute(robot, state)
        return self.scale(actions if self.relative is None else self.relative.to_relative(actions, state))


class FlowFamily(Family):
    """A family with prefix() and step(), whose prefix names its tensors by caches()."""

    sampled = True
    image_transform = ""  # the graph's preprocessing of a picture, for people
    template = ""  # how the prompt is made from the task (and the state)
    kind = "sentencepiece"
    spares_cameras = True
    reads_task = True

    def __init__(self, checkpoint, options):
        self.words = self.find_tokenizer(checkpoint, options)
        super().__init__(checkpoint, options)
        config = self.policy.config
        step = checkpoint.step("tokenizer_processor")
        self.max_len = self.prompt_length(step.config)
        self.check_prompt(step.config)
        self.meta = {
            "chunk_size": config.chunk_size,
            "n_action_steps": config.n_action_steps,
            "image_transform": self.image_transform,
            "num_steps": self.steps(),
            "noise_dim": self.noise_dim(),
            "rtc": "guided,trained" if self.max_delay() else "guided",
            "prefix_end": min(10, config.chunk_size),
            "schedule": ",".join(rtc.SCHEDULES),
            "prefix_space": "robot",
            "tokenizer": self.tokenizer(),
        }
        if self.max_delay():
            self.meta["rtc_max_delay"] = self.max_delay()
        if options.form == "split":
            self.meta["form"] = "split"

    # differences between policies

    steps_key = "num_inference_steps"  # of config.json

    def load(self):
        chosen = {self.steps_key: self.options.steps} if self.options.steps else {}
        return self.checkpoint.policy(**chosen, **self.overrides())

    def overrides(self) -> dict[str, Any]:
        """Further configuration keys with which LeRobot's policy is loaded."""
        return {}

    def steps(self) -> int:
        return int(getattr(self.policy.config, self.steps_key))

    def noise_dim(self) -> int:
        return int(self.policy.config.max_action_dim)

    def max_delay(self) -> int:
        """The longest delay in steps that the policy was trained with, 0 without such training."""
        return 0

    def check_prompt(self, config: dict[str, Any]) -> None:
        for key, want in (("padding", "max_length"), ("padding_side", "right"), ("truncation", True)):
            if config.get(key, want) != want:
                raise ExportError(f"tokenizer_processor has {key} {config[key]!r}, want {want!r}: the server pads every prompt so")

    def prompt_length(self, config: dict[str, Any]) -> int:
        """The number of tokens of a prompt. Without the key LeRobot takes 512, which no training of these policies used."""
        value = config.get("max_length")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ExportError(f"tokenizer_processor has max_length {value!r}, want the number of tokens that training used (tokenizer_max_length in config.json): LeRobot would take 512 without a word")
        return value

    def language_model(self) -> nn.Module:
        raise NotImplementedError

    # the graph

    def flow(self) -> sampler.Flow:
        prefix = self.prefix().eval()
        case = self.case(2, np.random.default_rng(0))
        names = [f"image.{c.name}" for c in self.cameras] + ["state", "tokens", "token_mask"]
        return sampler.Flow(
            prefix=prefix, step=self.step().eval(), observation={n: torch.from_numpy(case.inputs[n]) for n in names}, caches=prefix.caches(),
            steps=self.steps(), rows=self.meta["chunk_size"], width=self.noise_dim(), to_model=ToModel(self), to_robot=ToModel(self, back=True),
            action_dim=self.checkpoint.action_dim(), rtc=self.meta["rtc"], scheduled="," in self.meta["schedule"],
        )  # fmt: skip

    # the task

    def find_tokenizer(self, checkpoint, options) -> Path:
        """The folder with the checkpoint's tokenizer.json."""
        for folder in (checkpoint.dir / "tokenizer", options.vlm):
            if folder and (Path(folder) / "tokenizer.json").is_file():
                return Path(folder)
        step = checkpoint.step("tokenizer_processor")
        name = step.config.get("tokenizer_name") if step else None
        raise ExportError(f"{checkpoint.dir} has no tokenizer/tokenizer.json, only the name {name!r}: fetch it with `hf download {name} --include 'tokenizer*' --local-dir DIR` and give `--vlm DIR`")

    def tokenizer(self) -> dict[str, Any]:
        """The tokenizer's part of bundle.json."""
        words = self.read_tokenizer()
        found = {"kind": self.kind, "max_len": self.max_len, "pad_id": int(words.pad_token_id or 0), "template": self.template}
        if words("a")["input_ids"][0] == words.bos_token_id:
            found["bos_id"] = int(words.bos_token_id)
        return found

    def read_tokenizer(self):
        """The tokenizer as LeRobot loads it from the folder."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(self.words))

    def files(self) -> dict[str, Path | bytes]:
        """tokenizer.json, written by the tokenizer that LeRobot uses, because its class may read
        only a part of the checkpoint's file. A tokenizer that has not run yet stores no padding."""
        return {"tokenizer/tokenizer.json": self.read_tokenizer().backend_tokenizer.to_str().encode()}

    # LeRobot's own answer

    @functools.cached_property
    def lerobot_processors(self):
        """LeRobot's pre- and post-processor of the checkpoint, with the tokenizer found here."""
        return self.checkpoint.processors({"tokenizer_processor": {"tokenizer_name": str(self.words)}})

    def case(self, rows: int, rng: np.random.Generator, note: str = "plain") -> Case:
        """Random observations with the tokens that LeRobot makes of the tasks."""
        from ..golden import observation

        case = super().case(rows, rng, note)
        pre, _ = self.lerobot_processors
        for row in range(rows):
            with lerobots("reads a task"):
                batch = pre(observation(self, case, row, None))
            ids, mask = batch[TOKENS].numpy()[0], batch[TOKEN_MASK].numpy()[0]
            if mask.all() and len(mask) >= self.max_len:
                raise ExportError(f"the prompt of {case.tasks[row]!r}, a task that the exporter tries, has {self.max_len} tokens or more with this policy's {self.checkpoint.state_dim()} state values: LeRobot cuts it there (tokenizer_processor's max_length), so the policy would miss its end, in training too: train with a larger tokenizer_max_length")
            if ids.max() >= (known := self.language_model().embed_tokens.num_embeddings):
                raise ExportError(f"the tokenizer of {self.words} gives {case.tasks[row]!r} the token {ids.max()}, but the policy's language model knows {known}: it is another than the policy was trained with, want the one of its own checkpoint or language model")
            case.inputs["tokens"][row, : len(ids)], case.inputs["token_mask"][row, : len(ids)] = ids, mask
        return case

    def extra_inputs(self, rows: int, rng: np.random.Generator, note: str) -> tuple[dict[str, np.ndarray], list[str]]:
        made = {"tokens": np.zeros((rows, self.max_len), np.int64), "token_mask": np.zeros((rows, self.max_len), bool)}
        return made | self.controls(rows, rng, note), [TASKS[i % len(TASKS)] for i in range(rows)]

    def controls(self, rows: int, rng: np.random.Generator, note: str) -> dict[str, np.ndarray]:
        """Real-Time Chunking's inputs, different in every row. Rows beyond the prefix must not
        affect the chunk, so they are NaN."""
        from ..golden import spread

        high, most = self.meta["chunk_size"], self.max_delay() or self.meta["chunk_size"] - 1
        plain = note not in MODES
        length = np.zeros(rows, np.int64) if plain else rng.integers(1, high + 1, rows)
        delay = np.minimum(rng.integers(0, min(most, high - 1) + 1, rows), length)
        mean, dev = spread(self.action_scale, self.checkpoint.action_dim())
        prefix = mean + dev * rng.standard_normal((rows, high, len(mean)))
        prefix[np.arange(high) >= length[:, None]] = np.nan
        schedules = len(rtc.SCHEDULES) if "," in self.meta["schedule"] else 1
        found = {
            "prefix": prefix.astype(np.float32), "prefix_len": length, "delay": delay, "prefix_end": rng.integers(1, high + 1, rows),
            "rtc_mode": np.full(rows, MODES.get(note, rtc.FREE)), "beta": rng.uniform(1, self.steps(), rows).astype(np.float32),
        }  # fmt: skip
        if schedules > 1:
            # LeRobot has only the prior deviation 1.
            found |= {"schedule": np.arange(rows) % schedules, "sigma_d": np.ones(rows, np.float32)}
        return found

    def notes(self) -> list[str]:
        return ["plain", "guided", *(["trained"] if self.max_delay() else [])]

    def predict(self, batch: dict[str, Any], case: Case) -> Tensor:
        noise = torch.from_numpy(case.inputs["noise"])
        mode, length = int(case.inputs["rtc_mode"][0]), int(case.inputs["prefix_len"][0])
        self.set_rtc(mode, case)
        if mode == rtc.FREE:
            return self.policy.predict_action_chunk(batch, noise=noise)
        return self.policy.predict_action_chunk(
            batch, noise=noise, inference_delay=int(case.inputs["delay"][0]),
            prev_chunk_left_over=self.left_over(case, length), execution_horizon=int(case.inputs["prefix_end"][0]),
        )  # fmt: skip

    def left_over(self, case: Case, length: int) -> Tensor:
        """The prefix in the model's units, by LeRobot's own pre-processor."""
        from ..golden import observation

        pre, _ = self.lerobot_processors
        rows = torch.from_numpy(case.inputs["prefix"][:, :length].copy())
        return pre(observation(self, case, 0, None) | {ACTION: rows})[ACTION]

    def set_rtc(self, mode: int, case: Case) -> None:
        from lerobot.policies.rtc.configuration_rtc import RTCConfig

        config = None
        if mode != rtc.FREE:
            number = int(case.inputs["schedule"][0]) if "schedule" in case.inputs else rtc.LINEAR
            kind = {"mode": "trained"} if mode == rtc.TRAINED else {}
            config = RTCConfig(enabled=True, prefix_attention_schedule=schedule_of(number), max_guidance_weight=float(case.inputs["beta"][0]), execution_horizon=int(case.inputs["prefix_end"][0]), **kind)
        self.policy.config.rtc_config = config
        self.policy.init_rtc_processor()
        # Without RTC, LeRobot's init_rtc_processor leaves the model's old processor in place.
        self.policy.model.rtc_processor = self.policy.rtc_processor


def schedule_of(number: int):
    from lerobot.configs import RTCAttentionSchedule

    return RTCAttentionSchedule(rtc.SCHEDULES[number].upper())
