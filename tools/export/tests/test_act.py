"""ACT against LeRobot's own code."""

import checkpoints
import parity
import pytest
from conftest import exported


def test_two_cameras_and_a_chunk_of_100(act, act_bundle):
    family = parity.family_for(act, act_bundle)
    parity.check_senses(family, act_bundle)
    parity.check(family, act_bundle)


@pytest.mark.parametrize(
    "name, config",
    [
        ("pre-norm", {"pre_norm": True, "feedforward_activation": "gelu", "use_vae": False}),
        ("resnet34", {"vision_backbone": "resnet34", "n_decoder_layers": 1}),
    ],
)
def test_other_configurations(folder, name, config):
    checkpoint = checkpoints.act(folder / f"act-{name}", {"top": (64, 64)}, chunk_size=12, n_action_steps=12, **config)
    bundle = exported(checkpoint)
    family = parity.family_for(checkpoint, bundle)
    parity.check_senses(family, bundle)
    parity.check(family, bundle, rows=8)


def test_other_normalisation(folder):
    modes = {"VISUAL": "IDENTITY", "STATE": "QUANTILES", "ACTION": "QUANTILE10"}
    from lerobot.configs import NormalizationMode

    checkpoint = checkpoints.act(folder / "act-quantiles", {"top": (64, 64)}, chunk_size=12, n_action_steps=12, normalization_mapping={k: NormalizationMode(v) for k, v in modes.items()})
    bundle = exported(checkpoint)
    parity.check(parity.family_for(checkpoint, bundle), bundle, rows=8)
