"""LeRobot's normalisation as modules of the graph, with the statistics as constants."""

import torch
from torch import Tensor, nn

from .errors import ExportError

# The two statistics that each mode needs.
NEEDS = {
    "MEAN_STD": ("mean", "std"),
    "MIN_MAX": ("min", "max"),
    "QUANTILES": ("q01", "q99"),
    "QUANTILE10": ("q10", "q90"),
}


class Scale:
    """The normalisation of one feature: a mode and its statistics.

    `a` and `b` are mean and standard deviation, or the lower and upper bound; both are
    None when the values pass unchanged.
    """

    def __init__(self, feature: str, mode: str = "IDENTITY", stats: dict[str, Tensor] | None = None, eps: float = 1e-8):
        self.feature, self.mode, self.eps = feature, mode, eps
        self.stats = stats or {}
        self.a = self.b = None
        if mode == "IDENTITY" or not self.stats:
            self.mode = "IDENTITY"
            return
        if mode not in NEEDS:
            raise ExportError(f"{feature} is normalised by {mode}, want one of IDENTITY, {', '.join(NEEDS)}")
        low, high = NEEDS[mode]
        for name in (low, high):
            if name not in self.stats:
                raise ExportError(f"{feature} is normalised by {mode} but its statistics lack {name}: they have {', '.join(self.stats)}; write the data set's statistics again and save the checkpoint with them")
        self.a, self.b = (self.stats[n].to(torch.float32) for n in (low, high))

    def span(self) -> Tensor:
        """The width of a bounded mode, eps where both bounds are the same."""
        width = self.b - self.a
        return torch.where(width == 0, torch.full_like(width, self.eps), width)


class Normalize(nn.Module):
    """Robot units to the model's."""

    def __init__(self, scale: Scale):
        super().__init__()
        self.mode = scale.mode
        if self.mode == "IDENTITY":
            return
        self.register_buffer("a", scale.a.clone())
        self.register_buffer("span", scale.b + scale.eps if self.mode == "MEAN_STD" else scale.span())

    def forward(self, x: Tensor) -> Tensor:
        if self.mode == "IDENTITY":
            return x
        if self.mode == "MEAN_STD":
            return (x - self.a) / self.span
        return 2 * (x - self.a) / self.span - 1


class Unnormalize(nn.Module):
    """The model's units to the robot's."""

    def __init__(self, scale: Scale):
        super().__init__()
        self.mode = scale.mode
        if self.mode == "IDENTITY":
            return
        self.register_buffer("a", scale.a.clone())
        self.register_buffer("span", scale.b.clone() if self.mode == "MEAN_STD" else scale.span())

    def forward(self, x: Tensor) -> Tensor:
        if self.mode == "IDENTITY":
            return x
        if self.mode == "MEAN_STD":
            return x * self.span + self.a
        if self.mode == "MIN_MAX":
            return (x + 1) / 2 * self.span + self.a
        return (x + 1) * self.span / 2 + self.a
