"""What the command line chose, the same for every family."""

import dataclasses
from pathlib import Path

DTYPES = ("fp32", "fp16", "bf16")
FORMS = ("loop", "unrolled", "split")


@dataclasses.dataclass
class Options:
    """Everything of an export but the checkpoint and the place of the bundle.

    `steps` 0 keeps the checkpoint's own number. `cameras` holds (height, width) by
    camera name where it differs from the checkpoint's, None for a camera that is missing.
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
