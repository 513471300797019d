"""Pictures from the server's form to the policy's."""

import torch
from torch import Tensor, nn


def to_float(picture: Tensor) -> Tensor:
    """u8 [..., H, W, 3] to f32 [..., 3, H, W] in 0 to 1, as in LeRobot before its processors."""
    x = picture.to(torch.float32) / 255
    axes = list(range(x.dim() - 3))
    return x.permute(*axes, x.dim() - 1, x.dim() - 3, x.dim() - 2)


class Picture(nn.Module):
    """u8 [..., H, W, 3] to the normalised f32 [..., 3, H, W]."""

    def __init__(self, normalize: nn.Module):
        super().__init__()
        self.normalize = normalize

    def forward(self, picture: Tensor) -> Tensor:
        return self.normalize(to_float(picture))
