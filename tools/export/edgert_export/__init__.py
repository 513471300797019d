"""Exports LeRobot checkpoints as bundles that lean-server serves."""

VERSION = "1"
