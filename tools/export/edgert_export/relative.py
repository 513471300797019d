"""Relative actions: the model's rows are differences from the observed state."""

import torch
from torch import Tensor, nn


def mask_of(names: list[str] | None, exclude: list[str], dim: int) -> list[bool]:
    """A mask of the relative joints, by LeRobot's rule: all except those whose name contains
    an entry of `exclude`, in any case; joints without a name are relative."""
    tokens = [str(e).lower() for e in exclude or [] if e]
    if not tokens or names is None:
        return [True] * dim
    mask = [not any(t in str(n).lower() for t in tokens) for n in names[:dim]]
    return mask + [True] * (dim - len(mask))


class Relative(nn.Module):
    """Subtracts the state from actions [B, H, A], and adds it back."""

    def __init__(self, mask: list[bool]):
        super().__init__()
        self.dim = len(mask)
        self.register_buffer("mask", torch.tensor(mask, dtype=torch.float32))

    def offset(self, state: Tensor) -> Tensor:
        return (state[..., : self.dim] * self.mask).unsqueeze(-2)

    def to_relative(self, actions: Tensor, state: Tensor) -> Tensor:
        return actions - self.offset(state)

    def to_absolute(self, actions: Tensor, state: Tensor) -> Tensor:
        return actions + self.offset(state)
