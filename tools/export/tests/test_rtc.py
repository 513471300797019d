"""Real-Time Chunking and the sampler's loop against worked examples, in torch and as ONNX graphs of all forms."""

import json
import unittest
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from edgert_export import rtc, sampler
from forms import Runner

EXAMPLES = json.loads((Path(__file__).parents[3] / "testdata" / "golden" / "rtc.json").read_text())


class Same(nn.Module):
    """The model's units equal the robot's."""

    def forward(self, actions: Tensor, state: Tensor) -> Tensor:
        return actions


class Pass(nn.Module):
    def forward(self, state: Tensor) -> Tensor:
        return state * 2


class Toy(nn.Module):
    """The velocity K x - m - drag t x of every example; t is 0 in clean rows."""

    def __init__(self, steps: int, gain: float, drag: float, mean: list[float]) -> None:
        super().__init__()
        self.gain, self.drag = gain, drag
        self.register_buffer("times", torch.tensor([1 - k / steps for k in range(steps)]))
        self.register_buffer("mean", torch.tensor(mean))

    def forward(self, x: Tensor, k: Tensor, clean: Tensor, cache: Tensor) -> Tensor:
        t = self.times.index_select(0, k.reshape(1))
        t = torch.where(clean, torch.zeros_like(t), t)[:, :, None]
        return x * (self.gain - self.drag * t) - self.mean + 0 * cache[:, :1, None]


def toy(example: dict, rows: int, drag: float = 0.0, kind: str = "guided,trained", **more: object) -> sampler.Flow:
    state = torch.zeros(2, 3)
    return sampler.Flow(
        prefix=Pass(), step=Toy(example["N"], example["K"], drag, example["m"]), observation={"state": state}, caches=["cache"],
        steps=example["N"], rows=rows, width=2, to_model=Same(), to_robot=Same(), action_dim=2, rtc=kind, **more,
    )  # fmt: skip


def batch(flow: sampler.Flow, n: int, **given: object) -> dict[str, Tensor]:
    """Inputs of n samples: zeros, except for the given values."""
    whole = {}
    for name, example in flow.inputs().items():
        whole[name] = torch.zeros(n, *example.shape[1:], dtype=example.dtype)
        if name in given:
            value = torch.as_tensor(np.asarray(given[name]))
            whole[name][tuple(slice(size) for size in value.shape)] = value.to(example.dtype)
    return whole


def run(models: dict, flow: sampler.Flow, given: dict[str, Tensor]) -> np.ndarray:
    return Runner(models, flow.steps)({name: value.numpy() for name, value in given.items()})["chunk_model"]


class PlanTest(unittest.TestCase):
    def test_gains(self) -> None:
        for row in EXAMPLES["guidance"]:
            plan = rtc.Plan(10, row["N"])
            for beta, sigma, want in ((10, 1.0, row["g10"]), (5, 1.0, row["g5"]), (10, 0.2, row["soare02"])):
                got = plan.gain(torch.tensor([float(beta)]), torch.tensor([sigma]))[0, row["k"]].item()
                self.assertAlmostEqual(got, want, delta=1e-5)

    def test_gain_stays_between_0_and_the_steps(self) -> None:
        plan = rtc.Plan(4, 5)
        for sigma in (0.0, 1e-20, 0.01, 1.0, 100.0):
            got = plan.gain(torch.tensor([-1.0, 3.0, 1e9]), torch.full((3,), sigma))
            self.assertTrue(bool(((got >= 0) & (got <= 5)).all()), (sigma, got))

    def test_weights_of_all_schedules(self) -> None:
        rows = EXAMPLES["weights"]
        self.assertEqual({w["schedule"] for w in rows}, set(rtc.SCHEDULES))
        for w in rows:
            plan = rtc.Plan(w["H"], 10)
            length, one = torch.tensor([w["H"]]), torch.tensor([1])
            number = torch.tensor([rtc.SCHEDULES.index(w["schedule"])])
            hard, got, _ = plan(length, one * w["d"], one * w["e"], one * rtc.GUIDED, one * 10.0, number, one * 1.0)
            np.testing.assert_allclose(got[0, :, 0], w["w"], atol=1e-6)
            self.assertFalse(bool(hard.any()))


class ExamplesTest(unittest.TestCase):
    def test_guided_example(self) -> None:
        ex = EXAMPLES["ex2"]
        flow = toy(ex, ex["H"], most=10.0)  # more than the steps: it overshoots
        given = batch(
            flow, 2, noise=[ex["x0"]] * 2, prefix=[ex["Y"]] * 2, prefix_len=[4, 4], delay=[ex["d"]] * 2, prefix_end=[ex["e"]] * 2,
            rtc_mode=[rtc.FREE, rtc.GUIDED], beta=[ex["beta"]] * 2, sigma_d=[1, 1],
        )  # fmt: skip
        for form in sampler.FORMS:
            got = run(sampler.build(flow, form), flow, given)
            np.testing.assert_allclose(got[0], ex["plain"], atol=2e-6, err_msg=form)
            np.testing.assert_allclose(got[1], ex["guided"], atol=2e-6, err_msg=form)

    def test_three_modes_in_one_batch(self) -> None:
        ex = EXAMPLES["ex3"]
        flow = toy(ex, 6, drag=0.1, most=10.0)
        goal = np.array(ex["Y"])
        goal[0] = np.nan
        goal[1, 5:], goal[2, 2:] = np.nan, np.inf
        given = batch(
            flow, 3, noise=ex["x0"], prefix=goal, prefix_len=[0, 5, 2], delay=[0, 1, 2], prefix_end=[0, 5, 2],
            rtc_mode=[rtc.FREE, rtc.GUIDED, rtc.TRAINED], beta=[10] * 3, schedule=[rtc.EXP] * 3, sigma_d=[1] * 3,
        )  # fmt: skip
        for form in sampler.FORMS:
            models = sampler.build(flow, form)
            got = run(models, flow, given)
            np.testing.assert_allclose(got, ex["out"], atol=2e-6, err_msg=form)
            for b in range(3):
                alone = run(models, flow, {name: value[b : b + 1] for name, value in given.items()})
                np.testing.assert_array_equal(alone[0], got[b])


if __name__ == "__main__":
    unittest.main()
