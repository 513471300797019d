"""The policy type `lean` of LeRobot: lean-server computes the actions (README.md)."""

from .configuration_lean import LeanConfig

__all__ = ["LeanConfig"]
