"""Real-Time Chunking as torch modules: the effect of a prefix on a flow policy's sampler. All controls are per sample.

Time runs from 1 (noise) to 0 (actions), x_t = t eps + (1 - t) a, and the network's velocity is eps - a.

Sources: Black et al., Real-Time Execution of Action Chunking Flow Policies (2025), and its training-time variant;
LeRobot's modeling_rtc, whose guidance equals the weighted error (no gradient).
"""

import math

import torch
from torch import Tensor, nn

FREE, GUIDED, TRAINED, TRAINED_GUIDED = range(4)

# The schedules: how guidance falls between the delay and the prefix's end. Value 0 of the graph's input is the first.
LINEAR, ZEROS, ONES, EXP = range(4)
SCHEDULES = ("linear", "zeros", "ones", "exp")

# The graph's inputs of one value per sample: those of every policy with RTC, and those of a policy with all schedules.
CONTROLS = ("prefix_len", "delay", "prefix_end", "rtc_mode", "beta")
SCHEDULED = ("schedule", "sigma_d")


class Plan(nn.Module):
    """Computes from the controls of a batch the inputs of the steps: the rows that repeat the prefix (bool [B, rows, 1]),
    the guidance weights of the other rows (float [B, rows, 1]) and the gain of each step (float [B, steps]).

    most: the largest gain. At the number of steps a guided step copies the prefix; above it the step overshoots."""

    def __init__(self, rows: int, steps: int, most: float | None = None) -> None:
        super().__init__()
        self.most = float(steps if most is None else most)
        tau = torch.arange(steps, dtype=torch.float64) / steps
        self.register_buffer("rows", torch.arange(rows)[None])
        self.register_buffer("falling", ((1 - tau) / tau).float()[None])  # infinite at the first step
        self.register_buffer("rising", (tau / (1 - tau)).float()[None])

    def forward(
        self,
        prefix_len: Tensor,
        delay: Tensor,
        prefix_end: Tensor,
        rtc_mode: Tensor,
        beta: Tensor,
        schedule: Tensor | None = None,
        sigma_d: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        delay = torch.minimum(delay, prefix_len)
        hard = (self.rows < delay[:, None]) & (rtc_mode >= TRAINED)[:, None]
        end = torch.minimum(prefix_len, prefix_end)
        weight = self.weights(torch.minimum(delay, end), end, schedule)
        guided = (rtc_mode == GUIDED) | (rtc_mode == TRAINED_GUIDED)
        weight = torch.where(guided[:, None], weight, torch.zeros(()))
        return hard[:, :, None], weight[:, :, None], self.gain(beta, sigma_d)

    def weights(self, start: Tensor, end: Tensor, schedule: Tensor | None) -> Tensor:
        """[B, rows]: 1 up to start, then falling to 0 at end, with start <= end."""
        left = (end[:, None] - self.rows).float()
        linear = torch.clamp(left / (end - start + 1).float()[:, None], 0.0, 1.0)
        if schedule is None:
            return linear
        shapes = {
            ZEROS: (self.rows < start[:, None]).float(),
            ONES: (self.rows < end[:, None]).float(),
            EXP: linear * ((torch.exp(linear) - 1.0) * (1 / (math.e - 1))),
        }
        weight = linear
        for number, shape in shapes.items():
            weight = torch.where((schedule == number)[:, None], shape, weight)
        return weight

    def gain(self, beta: Tensor, sigma_d: Tensor | None) -> Tensor:
        """[B, steps]: min(beta, most, ((1 - tau)^2 + s^2 tau^2) / (s^2 tau (1 - tau))) for actions with a prior
        deviation s."""
        beta = torch.clamp(beta, 0.0, self.most)[:, None]
        falling = self.falling if sigma_d is None else self.falling / (sigma_d * sigma_d)[:, None]
        return torch.minimum(beta, falling + self.rising)


def pulled(v: Tensor, x: Tensor, time: Tensor, goal: Tensor, weight: Tensor, gain: Tensor) -> Tensor:
    """The velocity v of x at one time, corrected by guidance towards the goal."""
    return v - gain * (weight * (goal - (x - time * v)))
