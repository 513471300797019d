"""Diffusion against LeRobot's own code, with the same noise and DDIM."""

import json

import checkpoints
import parity
import pytest
from conftest import exported
from edgert_export.checkpoint import Checkpoint
from edgert_export.errors import ExportError
from edgert_export.families import family_of
from edgert_export.options import Options


def test_one_observation(folder):
    checkpoint = checkpoints.diffusion(folder / "diffusion-1")
    bundle = exported(checkpoint)
    family = parity.family_for(checkpoint, bundle)
    parity.check_senses(family, bundle)
    parity.check(family, bundle)
    meta = json.loads((bundle / "bundle.json").read_text())
    assert meta["num_steps"] == 10 and meta["noise_dim"] == 6 and meta["noise_rows"] == 16 and meta["chunk_size"] == 8
    assert "observation_steps" not in meta


def test_history_of_two_and_a_checkpoint_of_ddpm(folder):
    checkpoint = checkpoints.diffusion(folder / "diffusion-2", n_obs_steps=2, noise_scheduler_type="DDPM", num_inference_steps=None)
    bundle = exported(checkpoint, "--steps", "8")
    family = parity.family_for(checkpoint, bundle, steps=8)
    assert json.loads((bundle / "bundle.json").read_text())["observation_steps"] == 2
    parity.check_senses(family, bundle)
    parity.check(family, bundle)


def test_ddim_without_a_number_of_steps_takes_as_many_as_lerobot(folder):
    checkpoint = Checkpoint(checkpoints.diffusion(folder / "diffusion-ddim", num_inference_steps=None, num_train_timesteps=20))
    assert family_of("diffusion")(checkpoint, Options(fps=30)).steps == 20


def test_a_checkpoint_without_the_number_of_training_steps(folder):
    """LeRobot takes 100 training steps then; the error for more inference steps names the key at fault."""
    made = checkpoints.diffusion(folder / "diffusion-untold", noise_scheduler_type="DDIM", num_inference_steps=200)
    path = made / "config.json"
    config = json.loads(path.read_text())
    del config["num_train_timesteps"]
    path.write_text(json.dumps(config))
    with pytest.raises(ExportError, match="config.json's num_inference_steps is 200, want at most the 100"):
        family_of("diffusion")(Checkpoint(made), Options(fps=30))
    assert family_of("diffusion")(Checkpoint(made), Options(fps=30, steps=10)).steps == 10


@pytest.mark.parametrize(
    "name, cameras, config",
    [
        ("crop", {"top": (72, 96)}, {"crop_shape": (61, 84), "use_separate_rgb_encoder_per_camera": False, "use_group_norm": True}),
        ("resize", {"top": (90, 120), "low": (90, 120)}, {"resize_shape": (64, 72), "crop_ratio": 0.9, "use_film_scale_modulation": False, "use_separate_rgb_encoder_per_camera": False}),
        ("sample", {"top": (64, 64)}, {"prediction_type": "sample", "clip_sample": False, "beta_schedule": "linear"}),
    ],
)
def test_other_configurations(folder, name, cameras, config):
    checkpoint = checkpoints.diffusion(folder / f"diffusion-{name}", cameras, num_inference_steps=4, **config)
    bundle = exported(checkpoint)
    family = parity.family_for(checkpoint, bundle)
    parity.check_senses(family, bundle)
    parity.check(family, bundle, rows=8)
