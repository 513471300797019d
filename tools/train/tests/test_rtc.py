"""Real-Time Chunking nodes against worked examples (testdata/golden/rtc.json). Needs onnx; skipped without it."""

import json
import unittest
from pathlib import Path

import numpy as np

try:
    from train import golden, rtc, still
    from train.onnxgraph import INPUTS, ROWS, Graph
except ImportError as err:
    raise unittest.SkipTest(f"needs onnx and onnxruntime: {err}") from err

from train.world import JOINTS

EXAMPLES = json.loads((Path(__file__).parents[3] / "testdata" / "golden" / "rtc.json").read_text())


def _batch(n: int, **given: object) -> golden.Batch:
    """Inputs of n samples: zeros, except for the given values."""
    types = {1: np.float32, 2: np.uint8, 7: np.int64}
    batch = {}
    for name, (kind, shape) in INPUTS.items():
        value = np.zeros([n] + shape[1:], types[kind])
        if name in given:
            part = np.asarray(given[name])
            value[tuple(slice(size) for size in part.shape)] = part
        batch[name] = value
    return batch


def _run(g: Graph, rows: str, batch: golden.Batch) -> np.ndarray:
    """Runs a graph whose result [B, ROWS, 6] or [B, ROWS, 1] is `rows`."""
    whole = g.op("Add", rows, g.const(np.zeros((ROWS, JOINTS))))
    g.name(whole, "chunk_model")
    g.name(whole, "chunk_robot")
    return golden.run(golden.session(g.encode({})), batch)["chunk_model"]


def _toy(batch: golden.Batch, steps: int, drag: float, example: dict, limit: list[float] | None = None) -> np.ndarray:
    """Samples with the velocity K x - m - drag t x of every example. limit: replaces the graph's own limits."""
    g = Graph()
    hard, weight = rtc.hard_rows(g), rtc.guidance(g)
    mean = np.zeros(JOINTS)
    mean[:2] = example["m"]
    x = g.op("Where", hard, "prefix", "noise")
    for step in range(steps):
        t = 1 - step / steps
        time = g.op("Where", hard, g.const(0.0), g.const(t))
        gain = g.op("Sub", g.const(example["K"]), g.op("Mul", time, g.const(drag)))
        v = g.op("Sub", g.op("Mul", x, gain), g.const(mean))
        x = rtc.euler(g, x, v, t, 1 / steps, g.const(limit[step]) if limit else rtc.limit(g, step, steps), "prefix", weight, hard)
    return _run(g, x, batch)


class RTCTest(unittest.TestCase):
    def test_guidance_limits(self) -> None:
        for row in EXAMPLES["guidance"]:
            self.assertAlmostEqual(rtc.guidance_limit(row["k"], row["N"]), row["g10"], places=12)
            self.assertAlmostEqual(rtc.guidance_limit(row["k"], row["N"], 0.2), row["soare02"], places=12)

    def test_limits_in_the_graph(self) -> None:
        for sigma in (1.0, 0.5, 0.2, 0.0):
            for step in range(10):
                g = Graph()
                value = g.op("Add", rtc.limit(g, step, 10), g.op("Mul", "sigma_d", g.const(0.0)))
                got = _run(g, rtc.column(g, value, 3), _batch(1, sigma_d=[sigma]))[0, 0, 0]
                np.testing.assert_allclose(got, rtc.guidance_limit(step, 10, sigma), rtol=1e-6)

    def test_weights_of_all_schedules(self) -> None:
        rows = EXAMPLES["weights"]
        self.assertEqual({w["schedule"] for w in rows}, set(rtc.SCHEDULES))
        g, n = Graph(), len(rows)
        got = _run(
            g,
            rtc.guidance(g),
            _batch(
                n,
                prefix_len=[ROWS] * n,
                delay=[w["d"] for w in rows],
                prefix_end=[w["e"] for w in rows],
                rtc_mode=[rtc.GUIDED] * n,
                schedule=[rtc.SCHEDULES.index(w["schedule"]) for w in rows],
            ),
        )
        for b, w in enumerate(rows):
            want = np.zeros(ROWS)
            want[: w["H"]] = w["w"]
            np.testing.assert_allclose(got[b, :, 0], want, atol=2e-7, err_msg=f"{w['schedule']}, d {w['d']}, e {w['e']}")
            again = rtc.weights(rtc.SCHEDULES.index(w["schedule"]), w["d"], w["e"])
            np.testing.assert_allclose(again, want, atol=1e-12)

    def test_weights_end_with_the_prefix(self) -> None:
        """A prefix that is shorter than prefix_end must not pull the rows beyond its end towards zero."""
        g = Graph()
        batch = _batch(1, prefix_len=[5], delay=[9], prefix_end=[24], rtc_mode=[rtc.GUIDED])
        got = _run(g, rtc.guidance(g), batch)[0, :, 0]
        np.testing.assert_array_equal(got, np.arange(ROWS) < 5)

    def test_plain_and_guided_sampling(self) -> None:
        e = EXAMPLES["ex2"]
        limits = [row["g"] for row in e["trace"]]  # the example does not clamp to the number of steps
        for name, mode in (("plain", rtc.FREE), ("guided", rtc.GUIDED)):
            batch = _batch(
                1, noise=[e["x0"]], prefix=[e["Y"]], prefix_len=[4], delay=[e["d"]], prefix_end=[e["e"]],
                rtc_mode=[mode], beta=[e["beta"]],
            )  # fmt: skip
            got = _toy(batch, e["N"], 0.0, e, limits)
            np.testing.assert_allclose(got[0, : e["H"], : e["A"]], e[name], atol=2e-6, err_msg=name)

    def test_free_guided_and_trained_samples_share_a_batch(self) -> None:
        e = EXAMPLES["ex3"]
        taus = [k / e["N"] for k in range(e["N"])]
        limits = [e["beta"]] + [((1 - t) ** 2 + t**2) / (t * (1 - t)) for t in taus[1:]]  # also not clamped to the number of steps
        batch = _batch(
            3, noise=e["x0"], prefix=e["Y"], prefix_len=[0, 6, 2], delay=[0, 1, 2], prefix_end=[0, 5, 6],
            rtc_mode=[rtc.FREE, rtc.GUIDED, rtc.TRAINED], beta=[e["beta"]] * 3, schedule=[rtc.LINEAR, rtc.EXP, rtc.LINEAR],
        )  # fmt: skip
        got = _toy(batch, e["N"], 0.1, e, limits)
        want = np.array(e["out"])
        np.testing.assert_allclose(got[:, : want.shape[1], : want.shape[2]], want, atol=2e-6)


class StillTest(unittest.TestCase):
    def test_answers_the_present_position_behind_the_prefix(self) -> None:
        state = np.arange(2 * JOINTS).reshape(2, JOINTS)
        prefix = np.full((2, ROWS, JOINTS), 99.0)
        batch = _batch(2, state=state, prefix=prefix, prefix_len=[30, 30], delay=[8, 8], rtc_mode=[rtc.FREE, rtc.TRAINED])
        got = golden.run(golden.session(still.build()), batch)["chunk_robot"]
        np.testing.assert_array_equal(got[0], np.broadcast_to(state[0], (ROWS, JOINTS)))
        np.testing.assert_array_equal(got[1, :8], prefix[1, :8])
        np.testing.assert_array_equal(got[1, 8:], np.broadcast_to(state[1], (ROWS - 8, JOINTS)))


if __name__ == "__main__":
    unittest.main()
