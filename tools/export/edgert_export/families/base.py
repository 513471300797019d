"""The interface of a policy family to the exporter, and the code that all families share."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .. import onnx_graph, sampler
from ..checkpoint import ACTION, STATE, Checkpoint
from ..errors import ExportError
from ..normalize import Normalize, Unnormalize
from ..options import Options
from ..relative import Relative

RTC_INTS = ("prefix_len", "delay", "prefix_end", "rtc_mode")


@dataclasses.dataclass
class Port:
    """One input or output of the graph: its shape without the batch dimension."""

    name: str
    dtype: str  # numpy's name: uint8, float32, int64 or bool
    shape: tuple[int, ...]


@dataclasses.dataclass
class Case:
    """A batch of observations: the graph's inputs, and the tasks as text.

    `note` is the kind of the case in one word and names its golden set.
    """

    note: str
    inputs: dict[str, np.ndarray]
    tasks: list[str] = dataclasses.field(default_factory=list)

    def rows(self) -> int:
        return len(self.inputs["state"])

    def part(self, first: int, last: int) -> "Case":
        return Case(self.note, {k: v[first:last] for k, v in self.inputs.items()}, self.tasks[first:last])


class Family:
    """One policy type's export.

    A one-pass family gives graph(). A sampled one (it takes --steps) gives prefix() and
    step(), and build() composes them. The reference is LeRobot's own code and never the graph.
    """

    type = ""
    sampled = False
    reads_task = False  # whether the policy has a language model; --vlm gives the model's folder
    stores = ("fp16", "bf16")  # types that weights may be rounded to while the graph computes in fp32
    pre: list[str] = ["rename_observations_processor", "normalizer_processor"]
    post: list[str] = ["unnormalizer_processor"]
    spares_cameras = False  # whether the policy takes an observation that lacks a picture

    def __init__(self, checkpoint: Checkpoint, options: Options):
        self.checkpoint, self.options = checkpoint, options
        checkpoint.require(self.pre, self.post)
        for name, (kind, _) in checkpoint.inputs.items():
            if kind != "VISUAL" and name != STATE:
                raise ExportError(f"the policy takes {name} ({kind}), want pictures and {STATE}: the server has nothing else to send")
        if options.form != "loop" and not self.sampled:
            raise ExportError(f"--form is {options.form}, but {self.type} does not denoise: leave it out")
        if options.steps and not self.sampled:
            raise ExportError(f"--steps is {options.steps}, but {self.type} does not denoise: leave it out")
        if options.vlm and not self.reads_task:
            raise ExportError(f"--vlm is {options.vlm}, but {self.type} has no language model: leave it out")
        missing = [name for name, size in options.cameras.items() if size is None]
        if missing and not self.spares_cameras:
            raise ExportError(f"--cameras says that {', '.join(missing)} is missing, but a policy of type {self.type} needs every camera that it was trained with: give the robot one of that name, or train without it")
        self.cameras = checkpoint.cameras(options.cameras)
        self.state_scale, self.action_scale = checkpoint.scale(STATE), checkpoint.scale(ACTION)
        self._check_action()
        for camera in self.cameras:
            checkpoint.scale(camera.key)  # notes absent statistics before the graph is written
        mask = checkpoint.relative_mask()
        self.relative = Relative(mask) if mask and any(mask) else None
        self.policy = self.load()
        self.meta: dict[str, Any] = {}
        self.shrunk = 0  # bytes of float32 weights that are stored in half as many

    def _check_action(self) -> None:
        """Refuses pre- and post-processors that are not inverse to each other: they would
        change the actions of a prefix."""
        before = self.checkpoint.scale(ACTION, before=True)
        if before.mode != self.action_scale.mode or not all(torch.equal(getattr(before, n), getattr(self.action_scale, n)) for n in "ab" if before.mode != "IDENTITY"):
            raise ExportError(f"the pre-processor normalises the action by {before.mode} and the post-processor by {self.action_scale.mode}, or by other statistics: want the same in both, as training had it")

    # methods that a family may override

    def load(self):
        """LeRobot's policy with the checkpoint's weights."""
        return self.checkpoint.policy()

    def graph(self) -> nn.Module:
        """forward(graph inputs in the order of ports_in) -> (chunk_model, chunk_robot)."""
        raise NotImplementedError

    def prefix(self) -> nn.Module:
        """forward(images..., state, tokens, token_mask) -> cache tensors, batch first."""
        raise NotImplementedError

    def step(self) -> nn.Module:
        """forward(x, k, clean, cache...) -> v."""
        raise NotImplementedError

    def flow(self) -> sampler.Flow:
        """A sampled family's network for the sampler."""
        raise NotImplementedError

    def build(self, out: Path) -> None:
        """Writes policy.onnx, or the graphs of the split form, into the folder `out`."""
        if self.sampled:
            models = sampler.build(self.flow(), self.options.form)
        else:
            models = {sampler.POLICY: onnx_graph.trace(self, self.graph())}
        for name, model in models.items():
            onnx_graph.finish(self, model, out / name)

    def extra_inputs(self, rows: int, rng: np.random.Generator, note: str) -> tuple[dict[str, np.ndarray], list[str]]:
        """A family's inputs beyond pictures, state and noise (tokens, RTC), and the tasks."""
        return {}, []

    def notes(self) -> list[str]:
        """The kinds of cases that extra_inputs makes. Each kind has its own golden set."""
        return ["plain"]

    def predict(self, batch: dict[str, Any], case: Case) -> torch.Tensor:
        """LeRobot's own chunk, in the model's units, of one preprocessed observation.
        `case` has one row and holds the noise and the RTC controls."""
        return self.policy.predict_action_chunk(batch)

    @functools.cached_property
    def lerobot_processors(self):
        """LeRobot's own pre- and post-processor."""
        return self.checkpoint.processors()

    def files(self) -> dict[str, Path | bytes]:
        """More files of the bundle, by slash path (the tokenizer)."""
        return {}

    # common to all families

    def observation_steps(self) -> int:
        return self.meta.get("observation_steps", 1)

    def state_in(self) -> Normalize:
        return Normalize(self.state_scale)

    def action_in(self) -> Normalize:
        return Normalize(self.action_scale)

    def action_out(self) -> Unnormalize:
        return Unnormalize(self.action_scale)

    def picture_in(self, key: str) -> Normalize:
        return Normalize(self.checkpoint.scale(key))

    def ports_in(self) -> list[Port]:
        """The graph's inputs that follow from bundle.json, in the server's order."""
        m, past = self.meta, ()
        if self.observation_steps() > 1:
            past = (self.observation_steps(),)
        ports = [Port(f"image.{c.name}", "uint8", (*past, c.height, c.width, 3)) for c in self.cameras]
        ports.append(Port("state", "float32", (*past, self.checkpoint.state_dim())))
        if t := m.get("tokenizer"):
            ports += [Port("tokens", "int64", (t["max_len"],)), Port("token_mask", "bool", (t["max_len"],))]
        if m.get("noise_dim"):
            ports.append(Port("noise", "float32", (m.get("noise_rows", m["chunk_size"]), m["noise_dim"])))
        if m.get("rtc", "none") != "none":
            ports.append(Port("prefix", "float32", (m["chunk_size"], self.checkpoint.action_dim())))
            ports += [Port(name, "int64", ()) for name in RTC_INTS] + [Port("beta", "float32", ())]
        if "," in m.get("schedule", ""):
            ports += [Port("schedule", "int64", ()), Port("sigma_d", "float32", ())]
        return ports

    def ports_out(self) -> list[Port]:
        shape = (self.meta["chunk_size"], self.checkpoint.action_dim())
        return [Port("chunk_model", "float32", shape), Port("chunk_robot", "float32", shape)]

    def case(self, rows: int, rng: np.random.Generator, note: str = "plain") -> Case:
        """Random observations: half of the pictures noise and half smooth, and states
        out to five deviations."""
        from ..golden import random_pictures, random_states

        inputs = {}
        for p in self.ports_in():
            if p.name.startswith("image."):
                inputs[p.name] = random_pictures(rows, p.shape, rng)
            elif p.name == "state":
                inputs[p.name] = random_states(rows, p.shape, self.state_scale, rng)
            elif p.name == "noise":
                inputs[p.name] = rng.standard_normal((rows, *p.shape), dtype=np.float32)
        extra, tasks = self.extra_inputs(rows, rng, note)
        case = Case(note, {**inputs, **extra}, tasks)
        missing = [p.name for p in self.ports_in() if p.name not in case.inputs]
        if missing:
            raise ExportError(f"the {self.type} family makes no values for the graph's inputs {missing}")
        return case
