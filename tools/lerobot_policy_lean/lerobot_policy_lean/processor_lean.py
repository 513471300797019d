"""LeRobot's processors around the policy type `lean`: they change no value, because lean-server normalises."""

from __future__ import annotations

from typing import Any

import torch
from lerobot.processor import (
    AddBatchDimensionProcessorStep,
    DeviceProcessorStep,
    PolicyAction,
    PolicyProcessorPipeline,
    RenameObservationsProcessorStep,
)
from lerobot.processor.converters import policy_action_to_transition, transition_to_policy_action
from lerobot.utils.constants import POLICY_POSTPROCESSOR_DEFAULT_NAME, POLICY_PREPROCESSOR_DEFAULT_NAME

from .configuration_lean import LeanConfig

Preprocessor = PolicyProcessorPipeline[dict[str, Any], dict[str, Any]]
Postprocessor = PolicyProcessorPipeline[PolicyAction, PolicyAction]


def make_lean_pre_post_processors(
    config: LeanConfig, dataset_stats: dict[str, dict[str, torch.Tensor]] | None = None
) -> tuple[Preprocessor, Postprocessor]:
    """Returns pipelines with the steps that LeRobot's commands override by name, and no normalisation."""
    before = [
        RenameObservationsProcessorStep(rename_map={}),
        AddBatchDimensionProcessorStep(),
        DeviceProcessorStep(device=config.device),
    ]
    return (
        PolicyProcessorPipeline[dict[str, Any], dict[str, Any]](steps=before, name=POLICY_PREPROCESSOR_DEFAULT_NAME),
        PolicyProcessorPipeline[PolicyAction, PolicyAction](
            steps=[DeviceProcessorStep(device="cpu")],
            name=POLICY_POSTPROCESSOR_DEFAULT_NAME,
            to_transition=policy_action_to_transition,
            to_output=transition_to_policy_action,
        ),
    )
