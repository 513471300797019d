"""Training-time RTC for a LeRobot without it (0.6.1): patches the installed version's own
modules to compute as the next version does. A version with training-time RTC is unchanged.

The rule: before every step the rows of the prefix are the prefix and their time is 0, and
after the last step they are the prefix again."""

import contextlib
import dataclasses
from unittest import mock

import torch
from lerobot.policies import pi_gemma
from lerobot.policies.pi05 import configuration_pi05, modeling_pi05
from lerobot.policies.rtc import configuration_rtc

NATIVE = "rtc_training_max_delay" in {f.name for f in dataclasses.fields(configuration_pi05.PI05Config)}


def row_times(time, dimension, min_period, max_period, device="cpu"):
    """LeRobot's embedding of time, for [B] or [B, rows]."""
    fraction = torch.linspace(0.0, 1.0, dimension // 2, dtype=torch.float64)
    angle = time[..., None] * (1.0 / (min_period * (max_period / min_period) ** fraction) * 2 * torch.pi)
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


def row_norm(norm, x, cond=None):
    """The adaptive norm, with a separate condition for every row."""
    if cond is None or norm.dense is None or cond.dim() == 2:
        return plain_norm(norm, x, cond)
    scale, shift, gate = norm.dense(cond).chunk(3, dim=-1)
    return norm._norm(x) * (1 + scale) + shift, gate


plain_norm = pi_gemma.PiGemmaRMSNorm.forward


class Clamped:
    """euler_integrate for a policy whose configuration enables the trained prefix."""

    def __init__(self, policy):
        self.policy, self.plain = policy, modeling_pi05.euler_integrate

    def __call__(self, denoise, noise, num_steps, *, inference_delay=None, prev_chunk_left_over=None, rtc_enabled=False, **rest):
        trained = rtc_enabled and self.policy().config.rtc_config.mode == "trained"
        if not trained or not inference_delay:
            return self.plain(denoise, noise, num_steps, rtc_enabled=rtc_enabled and not trained, inference_delay=inference_delay, prev_chunk_left_over=prev_chunk_left_over, **rest)
        clean = torch.zeros(noise.shape[:2], dtype=torch.bool)
        clean[:, :inference_delay] = True
        goal = torch.zeros_like(noise)
        goal[:, :inference_delay, : prev_chunk_left_over.shape[2]] = prev_chunk_left_over[:, :inference_delay]
        x = noise
        for step in range(num_steps):
            x = torch.where(clean[:, :, None], goal, x)
            time = torch.full(noise.shape[:2], 1.0 - step / num_steps)
            x = x - denoise(x, time.masked_fill(clean, 0.0)) / num_steps
        return torch.where(clean[:, :, None], goal, x)


@contextlib.contextmanager
def supported():
    """Pi0.5's classes with `rtc_training_max_delay` and RTC's mode."""
    if NATIVE:
        yield
        return

    @dataclasses.dataclass
    class Config(configuration_rtc.RTCConfig):
        mode: str = "guided"

    policies = []
    init = modeling_pi05.PI05Policy.__init__

    def remember(policy, *args, **kwargs):
        init(policy, *args, **kwargs)
        policies.append(policy)

    with contextlib.ExitStack() as stack:
        for owner, name, value in (
            (modeling_pi05, "create_sinusoidal_pos_embedding", row_times),
            (pi_gemma.PiGemmaRMSNorm, "forward", row_norm),
            (modeling_pi05, "euler_integrate", Clamped(lambda: policies[-1])),
            (modeling_pi05.PI05Policy, "__init__", remember),
            (configuration_rtc, "RTCConfig", Config),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield
