"""The options of the command line, common to all families."""

import dataclasses
from pathlib import Path

DTYPES = ("fp32", "fp16", "bf16")
FORMS = ("loop", "unrolled", "split")


@dataclasses.dataclass
class Options:
    """All options of an export except the paths of the checkpoint and the bundle.

    `steps` 0 keeps the checkpoint's own number. `cameras` holds (height, width) by camera
    name where the size differs from the checkpoint's, and None for a missing camera.
    """

    fps: float = 0.0
    action_names: list[str] = dataclasses.field(default_factory=list)
    state_names: list[str] = dataclasses.field(default_factory=list)
    action_units: list[str] = dataclasses.field(default_factory=list)
    state_units: list[str] = dataclasses.field(default_factory=list)
    cameras: dict[str, tuple[int, int] | None] = dataclasses.field(default_factory=dict)
    vlm: Path | None = None
    steps: int = 0
    dtype: str = "fp32"
    form: str = "loop"
    simulation_only: bool = False
    dataset_info: Path | None = None
