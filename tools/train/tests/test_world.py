"""The world agrees with the frozen scenes and draws that the Go world is compared with."""

import gzip
import json
import tempfile
import unittest
from pathlib import Path

import numpy as np

from train import camera, teacher, tensors
from train.world import REACHED, TIMEOUT, Draws, World, tip_of

FROZEN = Path(__file__).parents[3] / "testdata" / "sim"


def _scenes() -> dict[str, np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "scenes.safetensors"
        plain.write_bytes(gzip.decompress((FROZEN / "scenes.safetensors.gz").read_bytes()))
        return tensors.read(plain)


class WorldTest(unittest.TestCase):
    def test_first_draws_are_splitmix64s(self) -> None:
        self.assertEqual(Draws(0).word(), 0xE220A8397B1DCDAF)
        draws = Draws(1)
        self.assertEqual([draws.word(), draws.word()], [0x910A2DEC89025CC1, 0xBEEB8DA1658EEC67])

    def test_draws_follow_the_frozen_worlds(self) -> None:
        for row in json.loads((FROZEN / "worlds.json").read_text()):
            world = World(row["seed"], row["direction"])
            self.assertEqual(world.post.tolist(), row["post"])
            self.assertEqual(world.target.tolist(), row["targets"][0])
            np.testing.assert_allclose(world.q, row["joints"], rtol=0, atol=1e-12)
            for k, target in enumerate(row["targets"][1:], 1):
                self.assertEqual(world.draws.place(world.side * (-1) ** k).tolist(), target)

    def test_pictures_are_the_frozen_ones(self) -> None:
        scenes = _scenes()
        for q, target, post, want in zip(*(scenes[k] for k in ("q", "target", "post", "image"))):
            off = np.abs(camera.render(q, target, post).astype(int) - want)
            self.assertLessEqual(off.max(), 1)
            self.assertLess((off > 0).mean(), 1e-4)  # another sine may sometimes round differently

    def test_standing_still_never_scores(self) -> None:
        world = World(3)
        for _ in range(1800):
            world.step(world.q)
        self.assertEqual([leg[1] for leg in world.legs], [TIMEOUT] * 5)

    def test_the_expert_reaches_its_targets(self) -> None:
        rng = np.random.default_rng(0)
        world = World(0)
        for _ in range(1200):
            at, target, post = tip_of(world.q)[None], world.target[None], world.post[None]
            if world.leg_ticks == 0:
                way = teacher.choose_way(rng, at, target, post)
            tip = teacher.step(at, target, post, way)[0]
            grip = teacher.step_grip(world.q[5], tip, world.target)
            world.step(teacher.pose(tip, grip))
        self.assertGreaterEqual(len(world.legs), 9)
        self.assertEqual({leg[1] for leg in world.legs}, {REACHED})


class TeacherTest(unittest.TestCase):
    def test_demonstrations_respect_the_servos_and_the_post(self) -> None:
        data = teacher.demonstrate(np.random.default_rng(1), 2000)
        steps = np.abs(np.diff(data.action, axis=1)).max((0, 1))
        self.assertTrue((steps <= np.array([3, 3, 3, 3, 3, 4]) + 1e-3).all(), steps)
        clear = np.linalg.norm(tip_of(data.action.astype(float)) - data.scene[:, None, 2:], axis=-1)
        outside = clear[:, 0] > teacher.CLEARANCE
        self.assertGreater(clear[outside].min(), 0.075)

    def test_the_same_seed_gives_the_same_demonstrations(self) -> None:
        a, b = (teacher.demonstrate(np.random.default_rng(5), 100) for _ in range(2))
        self.assertEqual(a.action.tobytes(), b.action.tobytes())


class TensorsTest(unittest.TestCase):
    def test_what_is_written_is_read(self) -> None:
        want = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.array([1], np.int64), "c": np.zeros(3, np.uint8)}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.safetensors"
            tensors.write(path, want)
            first = path.read_bytes()
            got = tensors.read(path)
            tensors.write(path, dict(reversed(want.items())))
            self.assertEqual(first, path.read_bytes(), "the order of the caller must not matter")
        self.assertEqual(set(got), set(want))
        for name in want:
            np.testing.assert_array_equal(got[name], want[name])


if __name__ == "__main__":
    unittest.main()
