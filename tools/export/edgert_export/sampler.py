"""Builds the sampler's loop by editing ONNX graphs: joins the network that embeds an observation and the network of a
step into the whole policy, with Real-Time Chunking and the robot's units.

A `Flow` describes a family; `build` returns the graphs of a bundle in one of these forms:
  loop      one graph with an ONNX Loop: few nodes, loads fast
  unrolled  one graph with a copy of the step's nodes for every step, sharing their weights: CUDA graphs can record it
  split     prefix.onnx and step.onnx: the server runs the first once and the second `steps` times
`sample` computes the same by a plain torch loop, for tests.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

from . import resize, rtc, tracing

FORMS = ("loop", "unrolled", "split")
POLICY, PREFIX, STEP = "policy.onnx", "prefix.onnx", "step.onnx"


@dataclass
class Flow:
    """A sampled policy. Tensors are batch first; A is the robot's action width, `width` is the model's.

    prefix(*observation) returns the tensors named in `caches`; a step takes them unchanged.
    step(x [B, rows, width], k int64 [], clean bool [B, rows], *caches) returns the velocity at time 1 - k / steps; clean
    rows are at time 0 (only a policy that was trained with clean rows reads the mask).
    to_model(actions [B, rows, A] in robot units, state [B, S] in robot units) returns the model's actions [B, rows, A],
    to_robot is its inverse; model columns from A on are padding, 0 in a prefix.
    """

    prefix: nn.Module
    step: nn.Module
    observation: dict[str, Tensor]  # example inputs of prefix, by graph name, in order, batch >= 2; "state" is among them
    caches: list[str]
    steps: int
    rows: int
    width: int
    to_model: nn.Module
    to_robot: nn.Module
    action_dim: int
    rtc: str = "none"  # as in bundle.json: none, guided, or guided,trained
    scheduled: bool = True  # with RTC: whether it takes schedule and sigma_d
    chunk: tuple[int, int] | None = None  # the rows of x that are the chunk, [first, last); None: all
    update: nn.Module | None = None  # update(x, v, k) for a sampler other than Euler's; only without RTC
    most: float | None = None  # the largest guidance gain; None: the number of steps
    extra: dict[str, Tensor] = field(default_factory=dict)  # example inputs that the contract requires and no node uses

    def __post_init__(self) -> None:
        if self.rtc != "none" and (self.update or self.chunk):
            raise ValueError("Real-Time Chunking needs Euler steps over the rows of the chunk")
        if "state" not in self.observation and "state" not in self.extra:
            raise ValueError("a flow policy takes a state: put it into observation, or into extra when the network does not")

    def controls(self) -> tuple[str, ...]:
        if self.rtc == "none":
            return ()
        return rtc.CONTROLS + (rtc.SCHEDULED if self.scheduled else ())

    def inputs(self) -> dict[str, Tensor]:
        """Example inputs of the whole policy, by graph name."""
        given = dict(self.observation) | self.extra
        batch = given["state"].shape[0]
        given["noise"] = torch.zeros(batch, self.rows, self.width)
        if self.rtc != "none":
            given["prefix"] = torch.zeros(batch, self.rows, self.action_dim)
        for name in self.controls():
            kind = torch.float32 if name in ("beta", "sigma_d") else torch.int64
            given[name] = torch.ones(batch, dtype=kind)
        return given


class Head(nn.Module):
    """The part before the first step: the caches, x at time 1 and RTC's inputs of every step."""

    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self.observation, self.names, self.controls = list(flow.observation), list(flow.inputs()), flow.controls()
        self.prefix, self.to_model = flow.prefix, flow.to_model
        self.padding = flow.width - flow.action_dim
        self.plan = rtc.Plan(flow.rows, flow.steps, flow.most) if self.controls else None

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(self.names, values, strict=True))
        caches = self.prefix(*[given[name] for name in self.observation])
        caches = (caches,) if isinstance(caches, Tensor) else tuple(caches)
        if self.plan is None:
            return given["noise"], *caches
        hard, weight, gain = self.plan(*[given[name] for name in self.controls])
        goal = self.to_model(given["prefix"], given["state"])
        # Rows beyond the prefix may hold any value, also NaN: they are replaced by a selection, not multiplied by 0.
        known = self.plan.rows < given["prefix_len"][:, None]
        goal = torch.where(known[:, :, None], goal, torch.zeros(()))
        goal = resize.padded(goal, [0, 0, 0], [0, 0, self.padding])
        return torch.where(hard, goal, given["noise"]), goal, hard, weight, gain, *caches

    def outputs(self, caches: list[str]) -> list[str]:
        return ["x", *(RTC if self.plan is not None else ()), *caches]


# RTC's inputs of a step, beside x, by name.
RTC = ("rtc.goal", "rtc.hard", "rtc.weight", "rtc.gain")


class Step(nn.Module):
    """One step: x at time 1 - k / steps to x at time 1 - (k + 1) / steps."""

    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self.step, self.update, self.guided = flow.step, flow.update, flow.rtc != "none"
        self.size = 1 / flow.steps
        times = [1.0 + k * (-1.0 / flow.steps) for k in range(flow.steps)]
        self.register_buffer("times", torch.tensor(times, dtype=torch.float32))
        self.register_buffer("never", torch.zeros(1, flow.rows, dtype=torch.bool))

    def forward(self, x: Tensor, k: Tensor, *rest: Tensor) -> Tensor:
        at = k.reshape(1)
        if not self.guided:
            # A mask with the rows of x, without a shape computed at run time.
            clean = (x[:, :, 0] != x[:, :, 0]) & self.never
            v = self.step(x, k, clean, *rest)
            return x - self.size * v if self.update is None else self.update(x, v, k)
        goal, hard, weight, gain, *caches = rest
        v = self.step(x, k, hard[:, :, 0], *caches)
        gain = gain.index_select(1, at)[:, :, None]
        v = rtc.pulled(v, x, self.times.index_select(0, at), goal, weight, gain)
        return torch.where(hard, goal, x - self.size * v)


class Tail(nn.Module):
    """The last x to the chunk, in the model's and in the robot's units."""

    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self.to_robot, self.action_dim = flow.to_robot, flow.action_dim
        self.first, self.last = flow.chunk or (0, flow.rows)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        chunk = x[:, self.first : self.last, : self.action_dim]
        return chunk, self.to_robot(chunk, state)


OUTPUTS = ["chunk_model", "chunk_robot"]


class _Last(nn.Module):
    """A step with its chunk, for the split form: the server keeps the last step's chunk."""

    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self.step, self.tail = Step(flow), Tail(flow)

    def forward(self, x: Tensor, k: Tensor, state: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        x = self.step(x, k, *rest)
        return x, *self.tail(x, state)


@torch.no_grad()
def sample(flow: Flow, given: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """chunk_model and chunk_robot by a plain torch loop over the modules of the graphs."""
    step, tail = Step(flow).eval(), Tail(flow).eval()
    x, *rest = Head(flow).eval()(*[given[name] for name in flow.inputs()])
    for k in range(flow.steps):
        x = step(x, torch.tensor(k), *rest)
    return tail(x, given["state"])


def build(flow: Flow, form: str = "loop") -> dict[str, onnx.ModelProto]:
    """The bundle's graphs by file name."""
    if form not in FORMS:
        raise ValueError(f"form {form!r}, want one of {', '.join(FORMS)}")
    inputs, head = flow.inputs(), Head(flow)
    names = head.outputs(flow.caches)
    first, made = tracing.trace(head, inputs, names)
    x, rest = made["x"], {name: made[name] for name in names[1:]}
    stepped = {"x": x, "k": torch.tensor(0)}
    if form == "split":
        step, _ = tracing.trace(_Last(flow), stepped | {"state": inputs["state"]} | rest, ["x_next", *OUTPUTS])
        return {PREFIX: first, STEP: step}
    step, _ = tracing.trace(Step(flow), stepped | rest, ["x_next"])
    last, chunk = tracing.trace(Tail(flow), {"x": x, "state": inputs["state"]}, OUTPUTS)

    whole = Composer()
    whole.add(first, "prefix", {name: name for name in inputs}, {name: name for name in names})
    same = {name: name for name in rest}
    repeat: Callable[..., str] = whole.loop if form == "loop" else whole.unrolled
    x_last = repeat(step, "x", same, flow.steps)
    whole.add(last, "last", {"x": x_last, "state": "state"}, {name: name for name in OUTPUTS})
    return {POLICY: whole.model(inputs, chunk)}


def keys(flow: Flow, form: str) -> dict[str, object]:
    """The sampler's keys of bundle.json."""
    found: dict[str, object] = {"num_steps": flow.steps, "noise_dim": flow.width, "rtc": flow.rtc}
    if flow.rtc != "none":
        found |= {"schedule": ",".join(rtc.SCHEDULES) if flow.scheduled else rtc.SCHEDULES[0], "prefix_space": "robot"}
    if form == "split":
        found["form"] = form
    return found


class Composer:
    """Joins graphs into one. Every part has its own prefix of names; values passed between parts keep their names."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}

    def add(self, part: onnx.ModelProto, place: str, inputs: dict[str, str], outputs: dict[str, str], weights: str = "") -> None:
        """Adds a part at a place. inputs and outputs: from the part's names to the whole's. weights: the place whose
        initialisers are used, when the same part was added before."""
        self.nodes += self._placed(part.graph, place, inputs, outputs, weights or place)

    def _placed(self, graph: onnx.GraphProto, place: str, inputs: dict, outputs: dict, weights: str) -> list[onnx.NodeProto]:
        names = dict(inputs)
        for tensor in graph.initializer:
            names[tensor.name] = shared = f"{weights}/{tensor.name}"
            self.initializers.setdefault(shared, tensor)
        names |= outputs
        placed = []
        for node in graph.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = f"{place}/{node.name}"
            for side in (copy.input, copy.output):
                for i, name in enumerate(side):
                    side[i] = names.get(name) or (name and f"{place}/{name}")
            placed.append(copy)
        direct = [name for name in outputs if name in inputs or any(t.name == name for t in graph.initializer)]
        if direct:
            raise ValueError(f"the outputs {direct} of {place} are its inputs or constants")
        return placed

    def unrolled(self, step: onnx.ModelProto, x: str, same: dict[str, str], steps: int) -> str:
        for k in range(steps):
            self.constant(f"step.{k}", np.array(k, np.int64))
            self.add(step, f"step.{k}", same | {"x": x, "k": f"step.{k}"}, {"x_next": f"x.{k + 1}"}, weights="step")
            x = f"x.{k + 1}"
        return x

    def loop(self, step: onnx.ModelProto, x: str, same: dict[str, str], steps: int) -> str:
        """Adds the loop. Its body uses the caches and the weights of the enclosing graph; only x passes from step to
        step."""
        nodes = self._placed(step.graph, "step", same | {"x": "x.now", "k": "k"}, {"x_next": "x.next"}, "step")
        nodes.append(helper.make_node("Identity", ["go"], ["go.on"], name="step/go"))
        shape = [d.dim_param or d.dim_value for d in step.graph.output[0].type.tensor_type.shape.dim]
        body = helper.make_graph(
            nodes,
            "step",
            [
                helper.make_tensor_value_info("k", TensorProto.INT64, []),
                helper.make_tensor_value_info("go", TensorProto.BOOL, []),
                helper.make_tensor_value_info("x.now", TensorProto.FLOAT, shape),
            ],
            [
                helper.make_tensor_value_info("go.on", TensorProto.BOOL, []),
                helper.make_tensor_value_info("x.next", TensorProto.FLOAT, shape),
            ],
        )
        self.constant("steps", np.array(steps, np.int64))
        self.nodes.append(helper.make_node("Loop", ["steps", "", x], ["x.last"], name="steps", body=body))
        return "x.last"

    def constant(self, name: str, value: np.ndarray) -> None:
        self.initializers[name] = tracing.initializer(name, value)

    def model(self, inputs: dict[str, Tensor], outputs: dict[str, Tensor]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "policy",
            [tracing.port(name, value) for name, value in inputs.items()],
            [tracing.port(name, value) for name, value in outputs.items()],
        )
        for name, tensor in self.initializers.items():
            added = graph.initializer.add()
            added.CopyFrom(tensor)
            added.name = name
            tensor.ClearField("raw_data")  # weights are large and must not be kept twice
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", tracing.OPSET)], ir_version=IR_VERSION)


IR_VERSION = 10
