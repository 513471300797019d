"""Resizing and padding as one node each with constant sizes: torch's own exporter computes them from the batch's shape."""

import torch
from torch import Tensor
from torch.nn import functional


class _Bilinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor, height: int, width: int) -> Tensor:
        return functional.interpolate(x, size=(height, width), mode="bilinear", align_corners=False)

    @staticmethod
    def symbolic(g: object, x: object, height: int, width: int) -> object:
        none = g.op("Constant", value_t=torch.tensor([], dtype=torch.float32))
        sizes = g.op("Constant", value_t=torch.tensor([height, width]))
        made = g.op("Resize", x, none, none, sizes, axes_i=[2, 3], mode_s="linear", coordinate_transformation_mode_s="half_pixel")
        return made.setType(x.type().with_sizes([None, None, height, width]))


def bilinear(x: Tensor, height: int, width: int) -> Tensor:
    """[B, C, h, w] to [B, C, height, width]; the sizes are Python integers, which become constants in a trace."""
    return _Bilinear.apply(x, height, width)


class _Padded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor, before: list[int], after: list[int]) -> Tensor:
        pads = [n for pair in zip(reversed(before), reversed(after), strict=True) for n in pair]
        return functional.pad(x, pads)

    @staticmethod
    def symbolic(g: object, x: object, before: list[int], after: list[int]) -> object:
        pads = g.op("Constant", value_t=torch.tensor([*before, *after]))
        made = g.op("Pad", x, pads, g.op("Constant", value_t=torch.tensor(0.0)), mode_s="constant")
        return made.setType(x.type().with_sizes([None] * len(before)))


def padded(x: Tensor, before: list[int], after: list[int]) -> Tensor:
    """x padded with the given numbers of zeros before and after each dimension."""
    return _Padded.apply(x, before, after)
