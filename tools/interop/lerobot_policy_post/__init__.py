"""The demo policy as a policy type of LeRobot, `post`: a plugin whose arm reaches targets, for lean-server's tests."""

from .configuration_post import PostConfig

__all__ = ["PostConfig"]
