"""One module for each policy type; FAMILIES names the class of each."""

import importlib

from ..errors import ExportError

# Module and class by the type in config.json. Modules are imported when needed.
FAMILIES = {
    "act": ("act", "ActExport"),
    "diffusion": ("diffusion", "DiffusionExport"),
    "smolvla": ("smolvla", "SmolVLAExport"),
    "pi0": ("pi0", "Pi0Export"),
    "pi05": ("pi05", "Pi05Export"),
}


def family_of(kind: str):
    """The family class for a policy type."""
    if kind not in FAMILIES:
        raise ExportError(f"the policy is {kind!r}, this exporter knows {', '.join(FAMILIES)}: lean-server runs others in your Python without an export, with model.runtime lerobot (docs/policies.md)")
    module, name = FAMILIES[kind]
    try:
        return getattr(importlib.import_module(f".{module}", __name__), name)
    except ModuleNotFoundError as e:
        raise ExportError(f"the policy is {kind!r}, whose packages are missing here: {e}; run `make export-env`") from None
