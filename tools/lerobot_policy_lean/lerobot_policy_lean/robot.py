"""The robot that LeRobot drives, as a policy needs to know it before the first motion."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

IMAGES = "observation.images."


@dataclass
class Robot:
    """cameras maps LeRobot's key of a picture to (height, width); fps is the control loop's rate in Hz; 0: unknown."""

    type: str = "lerobot"
    action_names: list[str] = field(default_factory=list)
    action_units: list[str] = field(default_factory=list)
    state_names: list[str] = field(default_factory=list)
    cameras: dict[str, tuple[int, int]] = field(default_factory=dict)
    fps: float = 0


def of_rollout() -> tuple[Robot, dict[str, str]] | None:
    """Returns the robot of the lerobot-rollout that calls, and its --rename_map; None below other callers.

    LeRobot gives a policy neither the joints' names nor the rate, and without them joints could be swapped unseen. All
    strategies of lerobot-rollout hold them in a RolloutContext when they reset the policy, before anything moves.
    """
    module = sys.modules.get("lerobot.rollout.context")
    frame = inspect.currentframe()
    while module is not None and frame is not None:
        for value in frame.f_locals.values():
            if isinstance(value, module.RolloutContext):
                return _of_context(value), dict(value.runtime.cfg.rename_map)
        frame = frame.f_back
    return None


def _of_context(context: Any) -> Robot:
    features, wrapper = context.data.dataset_features, context.hardware.robot_wrapper
    names = list(features["action"]["names"])
    return Robot(
        type=wrapper.robot_type,
        action_names=names,
        action_units=_units(wrapper.inner, names),
        state_names=list(features.get("observation.state", {}).get("names") or []),
        cameras={key: tuple(f["shape"][:2]) for key, f in features.items() if key.startswith(IMAGES)},
        fps=float(context.runtime.cfg.fps),
    )


def _units(robot: Any, names: list[str]) -> list[str]:
    """Returns a unit for each action, of LeRobot's motor bus; [] for a robot that does not have one bus for all."""
    motors = getattr(getattr(robot, "bus", None), "motors", None)
    if not isinstance(motors, Mapping):
        return []
    units = [getattr(motors.get(name.removesuffix(".pos")), "norm_mode", None) for name in names]
    return [unit.value for unit in units] if all(units) else []


def differences(robot: Robot, status: dict, rename: Mapping[str, str]) -> list[str]:
    """Returns a sentence for each difference between the robot and the policy of a server's Status."""
    found = []
    want = list(status["action_names"])
    if robot.action_names and robot.action_names != want:
        order = ", the same in another order" if sorted(robot.action_names) == sorted(want) else ""
        found.append(f"actions: the robot has {robot.action_names}, the policy {want}{order}")
    size = int(status.get("state_dim") or 0)
    if robot.state_names and size and len(robot.state_names) != size:
        found.append(f"state: the robot has {len(robot.state_names)} values {robot.state_names}, the policy {size}")
    if robot.state_names and sorted(robot.state_names) == sorted(want) and robot.state_names != want:
        found.append(f"state: the robot has {robot.state_names}, the policy {want}, the same in another order")
    if robot.cameras:
        have = {rename.get(key, key) for key in robot.cameras}
        if missing := [key for key in status["expected_cameras"] if key not in have]:
            found.append(
                f"cameras: the robot has {sorted(robot.cameras)}, the policy needs {missing}; another name of a camera:"
                f" --policy.rename_map='{{\"observation.images.NAME\": \"{missing[0]}\"}}'"
            )
    trained = float(status.get("trained_fps") or 0)
    if robot.fps and trained and abs(robot.fps - trained) > 0.01:
        found.append(f"rate: the loop runs at {robot.fps:g} Hz, the policy at {trained:g} Hz: --fps={trained:g}")
    return found
