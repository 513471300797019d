"""Pi0: the state is a token of every Euler step, the task alone is the prompt."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import resize
from ..errors import ExportError
from .flow import FlowFamily
from .paligemma import IMAGE_TRANSFORM, Expert, Prefix, times


class StateToken(nn.Module):
    """The state in robot units to the expert's token [B, 1, width], the same in every step."""

    def __init__(self, family):
        super().__init__()
        self.normalize, self.project = family.state_in(), family.policy.model.state_proj
        self.padding = self.project.in_features - family.checkpoint.state_dim()
        if self.padding < 0:
            raise ExportError(f"the state has {family.checkpoint.state_dim()} values, max_state_dim is {self.project.in_features}: LeRobot's policy cannot take it either")

    def forward(self, state: Tensor) -> Tensor:
        return self.project(resize.padded(self.normalize(state), [0, 0], [0, self.padding]))[:, None]


class Step(nn.Module):
    """forward(x, k, clean, cache...) -> the velocity. The rows are the state's token and the actions."""

    def __init__(self, family, expert: Expert):
        super().__init__()
        model = family.policy.model
        self.expert, self.rows = expert, model.config.chunk_size
        self.action_in, self.action_out = model.action_in_proj, model.action_out_proj
        self.mlp_in, self.mlp_out = model.action_time_mlp_in, model.action_time_mlp_out
        self.register_buffer("times", times(family.policy, family.steps(), self.action_in.out_features))

    def forward(self, x: Tensor, k: Tensor, clean: Tensor, *caches: Tensor) -> Tensor:
        *cache, bias, cos, sin, state = caches
        actions = self.action_in(x)
        time = self.times.index_select(0, k.reshape(1))[:, None] + 0 * actions
        rows = self.mlp_out(F.silu(self.mlp_in(torch.cat([actions, time], dim=2))))
        hidden = self.expert(torch.cat([state, rows], dim=1), tuple(cache), bias, cos, sin)
        return self.action_out(hidden[:, -self.rows :])


class Pi0Export(FlowFamily):
    type = "pi0"
    stores = ()
    pre = ["rename_observations_processor", "pi0_new_line_processor", "tokenizer_processor", "relative_actions_processor", "normalizer_processor"]
    post = ["unnormalizer_processor", "absolute_actions_processor"]
    template = "{task}\n"

    image_transform = IMAGE_TRANSFORM

    def overrides(self) -> dict:
        return {"dtype": "float32", "compile_model": False}

    def language_model(self) -> nn.Module:
        return self.policy.model.paligemma_with_expert.paligemma.model.language_model

    def prefix(self) -> nn.Module:
        rows = 1 + self.policy.config.chunk_size
        among = torch.ones(rows, rows, dtype=torch.bool)
        among[0, 1:] = False  # the state does not attend to the actions
        return Prefix(self, rows, StateToken(self), among)

    def step(self) -> nn.Module:
        return Step(self, Expert(self))
