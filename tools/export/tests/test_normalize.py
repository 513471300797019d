"""In-graph normalisation against LeRobot's own steps, number for number."""

import checkpoints
import pytest
import torch

from edgert_export.errors import ExportError
from edgert_export.normalize import NEEDS, Normalize, Scale, Unnormalize
from edgert_export.relative import Relative, mask_of


@pytest.mark.parametrize("mode", ["IDENTITY", *NEEDS])
@pytest.mark.parametrize("still", [None, 2])
def test_modes(mode, still):
    from lerobot.configs import FeatureType, NormalizationMode, PolicyFeature
    from lerobot.processor import NormalizerProcessorStep, UnnormalizerProcessorStep

    stats = {"action": checkpoints.stats([], still=still)["action"]}
    args = dict(features={"action": PolicyFeature(FeatureType.ACTION, (6,))}, norm_map={FeatureType.ACTION: NormalizationMode(mode)}, stats=stats)
    scale = Scale("action", mode, stats["action"])
    x = 100 * torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Normalize(scale)(x), NormalizerProcessorStep(**args)._normalize_action(x, inverse=False))
    assert torch.equal(Unnormalize(scale)(x), UnnormalizerProcessorStep(**args)._normalize_action(x, inverse=True))


def test_unknown_mode():
    with pytest.raises(ExportError, match="action is normalised by LOG, want one of"):
        Scale("action", "LOG", {"mean": torch.zeros(6)})


@pytest.mark.parametrize("exclude", [[], ["gripper"], ["GRIPPER", "wrist"], [""]])
@pytest.mark.parametrize("names", [None, checkpoints.JOINTS, checkpoints.JOINTS[:3], [n.title() for n in checkpoints.JOINTS]])
def test_relative(exclude, names):
    from lerobot.processor.relative_action_processor import RelativeActionsProcessorStep, to_absolute_actions, to_relative_actions

    step = RelativeActionsProcessorStep(enabled=True, exclude_joints=exclude, action_names=names)
    mask = mask_of(names, exclude, 6)
    assert mask == step._build_mask(6)
    g = torch.Generator().manual_seed(0)
    actions, state = torch.randn(3, 5, 6, generator=g), torch.randn(3, 7, generator=g)
    assert torch.equal(Relative(mask).to_relative(actions, state), to_relative_actions(actions, state, mask))
    assert torch.equal(Relative(mask).to_absolute(actions, state), to_absolute_actions(actions, state, mask))
