"""The inputs and outputs of the policy type `post`."""

from dataclasses import dataclass, field

from lerobot.configs import FeatureType, PolicyFeature, PreTrainedConfig


def inputs() -> dict[str, PolicyFeature]:
    state = PolicyFeature(FeatureType.STATE, (6,))
    return {"observation.state": state, "observation.images.top": PolicyFeature(FeatureType.VISUAL, (3, 120, 160))}


@PreTrainedConfig.register_subclass("post")
@dataclass
class PostConfig(PreTrainedConfig):
    bundle: str = ""  # folder with the demo's policy.onnx
    device: str | None = "cpu"
    input_features: dict[str, PolicyFeature] | None = field(default_factory=inputs)
    output_features: dict[str, PolicyFeature] | None = field(
        default_factory=lambda: {"action": PolicyFeature(FeatureType.ACTION, (6,))}
    )
    observation_delta_indices = action_delta_indices = reward_delta_indices = None

    def get_optimizer_preset(self) -> None: ...
    def get_scheduler_preset(self) -> None: ...
    def validate_features(self) -> None: ...
