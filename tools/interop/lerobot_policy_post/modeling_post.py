"""The policy type `post`: ONNX Runtime computes the demo's graph."""

import torch
from demo import Demo
from lerobot.policies.pretrained import PreTrainedPolicy

from .configuration_post import PostConfig


class PostPolicy(PreTrainedPolicy):
    config_class, name = PostConfig, "post"

    def __init__(self, config: PostConfig, **_) -> None:
        super().__init__(config)
        self.demo = Demo(config.bundle)

    @classmethod
    def from_pretrained(cls, folder, *, config: PostConfig | None = None, **_):
        return cls(config or PostConfig.from_pretrained(folder)).eval()

    def predict_action_chunk(self, batch: dict, **_) -> torch.Tensor:
        picture = (batch["observation.images.top"][0] * 255).round().byte().permute(1, 2, 0)
        return torch.from_numpy(self.demo.infer([picture.numpy()], batch["observation.state"][0].numpy(), ""))[None]

    def select_action(self, batch: dict, **_) -> torch.Tensor:
        raise NotImplementedError("chunks only")

    def reset(self) -> None: ...
    def get_optim_params(self) -> dict: ...
    def forward(self, batch: dict): ...
