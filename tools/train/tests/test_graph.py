"""The graph computes the same as the training networks. Needs JAX; skipped without it."""

import tempfile
import unittest
from pathlib import Path

import numpy as np

try:
    import jax

    from train import fit, golden, graph, nets, rtc, weights
except ImportError as err:
    raise unittest.SkipTest(f"needs JAX, onnx and onnxruntime: {err}") from err

from train import teacher
from train.world import World


def _untrained(seed: int) -> "fit.Policy":
    eyes, hands = jax.random.split(jax.random.key(seed))
    stats = fit.statistics(teacher.demonstrate(np.random.default_rng(seed), 500))
    return fit.Policy(
        jax.tree.map(np.asarray, nets.init_eyes(eyes)), jax.tree.map(np.asarray, nets.init_hands(hands)), stats
    )


class GraphTest(unittest.TestCase):
    def test_all_modes_agree_with_a_plain_loop(self) -> None:
        policy = _untrained(3)
        session = golden.session(graph.build(policy, {}))
        worlds = [World(i, 1 - 2 * (i % 2)) for i in range(4)]
        first = golden.run(session, golden.request(worlds, 1, [rtc.FREE] * 4))["chunk_robot"]
        batch = golden.request(worlds, 2, [rtc.FREE, rtc.GUIDED, rtc.TRAINED, rtc.TRAINED_GUIDED], first, 12)
        batch["beta"][1] = 3.0
        got = golden.run(session, batch)["chunk_model"]
        np.testing.assert_allclose(got, graph.sample(policy, batch), atol=1e-5)

    def test_a_row_does_not_depend_on_its_batch(self) -> None:
        self.assertTrue(golden.batch_invariant(graph.build(_untrained(4), {})))

    def test_weights_survive_a_file(self) -> None:
        policy = _untrained(5)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "nets.safetensors"
            weights.save(path, policy)
            again = weights.load(path)
        self.assertEqual(weights.digest(again), weights.digest(policy))
        self.assertEqual(graph.build(again, {}), graph.build(policy, {}))

    def test_the_same_seed_trains_the_same_weights(self) -> None:
        recipe = fit.Recipe(eyes_steps=2, hands_steps=5, pictures=256, chunks=1000, report=lambda line: None)
        self.assertEqual(weights.digest(fit.fit(1, recipe)), weights.digest(fit.fit(1, recipe)))

    def test_training_lowers_the_loss(self) -> None:
        lines: list[str] = []
        recipe = fit.Recipe(eyes_steps=1, hands_steps=250, pictures=256, chunks=2000, report=lines.append)
        data = teacher.demonstrate(np.random.default_rng(0), recipe.chunks)
        fit.fit_hands(jax.random.key(0), data, fit.statistics(data), recipe)
        loss = float(lines[-1].split("loss ")[1].split(",")[0])
        self.assertLess(loss, 0.9)  # the mean over the first 250 steps; predicting nothing gives about 2


if __name__ == "__main__":
    unittest.main()
