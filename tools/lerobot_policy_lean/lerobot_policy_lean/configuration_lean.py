"""Settings of the policy type `lean`."""

from __future__ import annotations

from dataclasses import dataclass, field

from lerobot.configs import PreTrainedConfig


@PreTrainedConfig.register_subclass("lean")
@dataclass
class LeanConfig(PreTrainedConfig):
    """Where the policy is, and how LeRobot uses it. There are no weights: lean-server has them.

    server is a Zenoh endpoint, such as tcp/HOST:7447.
    service chooses among several services at that endpoint: the last part of their keys.
    zenoh_config is a file of Zenoh settings (JSON5), for TLS.
    id is this robot's name at the server; empty: the host's name and a random suffix.
    timeout (s) bounds connecting, and each wait for a chunk.
    n_action_steps is how many actions of a chunk select_action uses; 0: all.
    rename_map maps this robot's camera keys to the policy's, as LeRobot's --rename_map does.
    """

    server: str = ""
    service: str = ""
    zenoh_config: str = ""
    id: str = ""
    timeout: float = 10.0
    n_action_steps: int = 0
    rename_map: dict[str, str] = field(default_factory=dict)
    device: str | None = "cpu"
    push_to_hub: bool = False

    def __post_init__(self) -> None:
        if self.device != "cpu":
            raise ValueError(f"--policy.device={self.device}: lean-server computes; here the device is cpu")
        super().__post_init__()
        if self.timeout <= 0:
            raise ValueError(f"--policy.timeout={self.timeout}: want seconds above 0")
        if self.n_action_steps < 0:
            raise ValueError(f"--policy.n_action_steps={self.n_action_steps}: want a number of actions, or 0 for all")

    @property
    def observation_delta_indices(self) -> None:
        return None

    @property
    def action_delta_indices(self) -> None:
        return None

    @property
    def reward_delta_indices(self) -> None:
        return None

    def get_optimizer_preset(self) -> None:
        raise NotImplementedError("the policy type lean is not trained: train the policy that lean-server serves")

    def get_scheduler_preset(self) -> None:
        return None

    def validate_features(self) -> None:
        """The policy compares the features with the server's when it is built."""
