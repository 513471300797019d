"""A simulated arm and a Gymnasium environment of the demo policy's shape, for LeRobot's own commands.

Each joint is where the last action put it. The arm appends each action as a line of JSON to the file `log`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.envs.configs import EnvConfig
from lerobot.robots import Robot, RobotConfig

JOINTS = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper"]
START = [40.0, -30.0, 90.0, 10.0, -40.0, 50.0]
HEIGHT, WIDTH = 120, 160


def picture(step: int) -> np.ndarray:
    image = np.full((HEIGHT, WIDTH, 3), 90, np.uint8)
    image[20:60, 10 + step % 100 : 30 + step % 100] = (220, 40, 40)
    return image


@RobotConfig.register_subclass("leanfake")
@dataclass(kw_only=True)
class LeanFakeConfig(RobotConfig):
    camera: str = "top"
    swap: bool = False
    log: str = ""


class LeanFake(Robot):
    config_class = LeanFakeConfig
    name = "leanfake"

    def __init__(self, config: LeanFakeConfig) -> None:
        super().__init__(config)
        self.config, self.connected, self.step, self.cameras = config, False, 0, {config.camera: None}
        self.names = [f"{joint}.pos" for joint in (reversed(JOINTS) if config.swap else JOINTS)]
        self.place = dict(zip([f"{joint}.pos" for joint in JOINTS], START, strict=True))

    @property
    def observation_features(self) -> dict:
        return {**dict.fromkeys(self.names, float), self.config.camera: (HEIGHT, WIDTH, 3)}

    @property
    def action_features(self) -> dict:
        return dict.fromkeys(self.names, float)

    @property
    def is_connected(self) -> bool:
        return self.connected

    @property
    def is_calibrated(self) -> bool:
        return True

    def connect(self, calibrate: bool = True) -> None:
        self.connected = True

    def calibrate(self) -> None: ...

    def configure(self) -> None: ...

    def get_observation(self) -> dict[str, Any]:
        self.step += 1
        return {**{name: self.place[name] for name in self.names}, self.config.camera: picture(self.step)}

    def send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        self.place.update(action)
        if self.config.log:
            with open(self.config.log, "a") as f:
                f.write(json.dumps(action) + "\n")
        return action

    def disconnect(self) -> None:
        self.connected = False


class Table(gym.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 60}
    task = task_description = "around the post"
    _max_episode_steps = 100

    def __init__(self, render_mode: str = "rgb_array") -> None:
        self.render_mode = render_mode
        pixels = gym.spaces.Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        joints = gym.spaces.Box(-200, 200, (len(JOINTS),), np.float64)
        self.observation_space = gym.spaces.Dict({"pixels": pixels, "agent_pos": joints})
        self.action_space = gym.spaces.Box(-200, 200, (len(JOINTS),), np.float32)
        self.steps, self.place = 0, np.array(START)

    def _seen(self) -> dict[str, np.ndarray]:
        return {"pixels": picture(self.steps), "agent_pos": self.place.copy()}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        self.steps, self.place = 0, np.array(START)
        return self._seen(), {"is_success": False}

    def step(self, action: np.ndarray) -> tuple[dict, float, bool, bool, dict]:
        self.steps += 1
        moved = float(np.abs(action - self.place).sum())
        self.place = np.asarray(action, np.float64)
        done = self.steps >= self._max_episode_steps
        return self._seen(), moved, done, False, {"is_success": done}

    def render(self) -> np.ndarray:
        return picture(self.steps)


gym.register("gym_leanfake/Table-v0", entry_point="lerobot_robot_leanfake:Table")


@EnvConfig.register_subclass("leanfake")
@dataclass
class LeanFakeEnv(EnvConfig):
    task: str = "Table-v0"
    fps: int = 60
    features: dict[str, PolicyFeature] = field(default_factory=lambda: {
        "action": PolicyFeature(type=FeatureType.ACTION, shape=(6,)),
        "agent_pos": PolicyFeature(type=FeatureType.STATE, shape=(6,)),
        "pixels": PolicyFeature(type=FeatureType.VISUAL, shape=(HEIGHT, WIDTH, 3)),
    })
    features_map: dict[str, str] = field(default_factory=lambda: {
        "action": "action", "agent_pos": "observation.state", "pixels": "observation.image",
    })

    @property
    def gym_kwargs(self) -> dict:
        return {"render_mode": "rgb_array"}
