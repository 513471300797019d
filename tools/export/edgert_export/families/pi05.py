"""Pi0.5: the state is text in the prompt, the time moves the expert's norms."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import ExportError
from .flow import FlowFamily
from .paligemma import IMAGE_TRANSFORM, Expert, Prefix, times

BINS = 256


class Step(nn.Module):
    """forward(x, k, clean, cache...) -> the velocity."""

    def __init__(self, family, expert: Expert, trained: bool):
        super().__init__()
        model = family.policy.model
        self.expert, self.trained = expert, trained
        self.action_in, self.action_out = model.action_in_proj, model.action_out_proj

    def forward(self, x: Tensor, k: Tensor, clean: Tensor, *caches: Tensor) -> Tensor:
        *cache, bias, cos, sin = caches
        rows = clean[:, :, None] if self.trained else None
        hidden = self.expert(self.action_in(x), tuple(cache), bias, cos, sin, k.reshape(1), rows)
        return self.action_out(hidden)


class Pi05Export(FlowFamily):
    type = "pi05"
    stores = ()
    pre = ["rename_observations_processor", "relative_actions_processor", "normalizer_processor", "pi05_prepare_state_tokenizer_processor_step", "tokenizer_processor"]
    post = ["unnormalizer_processor", "absolute_actions_processor"]
    template = "Task: {task}, State: {state};\nAction: "

    def __init__(self, checkpoint, options):
        for key in ("use_visual_memory", "use_proprioceptive_memory"):
            if checkpoint.config.get(key):
                raise ExportError(f"config.json has {key}: a policy that remembers observations is not served")
        super().__init__(checkpoint, options)

    def max_delay(self) -> int:
        return int(self.checkpoint.config.get("rtc_training_max_delay") or 0)

    def tokenizer(self) -> dict:
        scale = self.state_scale
        mode = {"QUANTILE10": "quantiles"}.get(scale.mode, scale.mode.lower())
        state = {"bins": BINS, "mode": mode}
        if scale.mode != "IDENTITY":
            state |= {"a": numbers(scale.a), "b": numbers(scale.b), "span": numbers(scale.b + scale.eps if scale.mode == "MEAN_STD" else scale.span())}
        return super().tokenizer() | {"clean": True, "state": state}

    def conditions(self) -> Tensor:
        """The conditioning of the norms: a row for each step, and one for time 0."""
        model = self.policy.model
        with torch.no_grad():
            x = times(self.policy, self.steps(), model.time_mlp_in.in_features)
            return F.silu(model.time_mlp_out(F.silu(model.time_mlp_in(x))))

    image_transform = IMAGE_TRANSFORM

    def overrides(self) -> dict:
        return {"dtype": "float32", "compile_model": False}

    def language_model(self) -> nn.Module:
        return self.policy.model.paligemma_with_expert.paligemma.model.language_model

    def prefix(self) -> nn.Module:
        rows = self.policy.config.chunk_size
        return Prefix(self, rows, None, torch.ones(rows, rows, dtype=torch.bool))

    def step(self) -> nn.Module:
        with torch.no_grad():
            expert = Expert(self, self.conditions())
        return Step(self, expert, self.max_delay() > 0)


def numbers(values: Tensor) -> list[float]:
    """float32 values as JSON numbers that parse to the same float32."""
    return [float(v) for v in values.reshape(-1).to(torch.float32)]
