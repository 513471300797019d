"""Where a checkpoint comes from and under which licence."""

from pathlib import Path

from .checkpoint import Checkpoint

UNKNOWN = "unknown: ask whoever made the checkpoint before you pass this bundle on"


def licence(checkpoint: Checkpoint) -> tuple[str, str]:
    """The licence's name and the text of the bundle's LICENSE file."""
    for name in ("LICENSE", "LICENSE.txt", "LICENSE.md"):
        path = checkpoint.dir / name
        if path.is_file():
            return declared(checkpoint)[0] or f"the checkpoint's {name}", path.read_text(encoding="utf-8", errors="replace")
    word, place = declared(checkpoint)
    if word:
        return word, f"{word}, says the checkpoint's {place}\n"
    return UNKNOWN, UNKNOWN + "\n"


def declared(checkpoint: Checkpoint) -> tuple[str, str]:
    """The licence named in the model card or in a configuration, and the name of that file."""
    if word := card(checkpoint.dir / "README.md").get("license"):
        return word, "README.md"
    if word := checkpoint.config.get("license"):
        return str(word), "config.json"
    if word := checkpoint.training("policy", "license"):
        return word, "train_config.json"
    return "", ""


def card(path: Path) -> dict[str, str]:
    """The plain `key: value` lines of a model card's front matter."""
    if not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if not lines or lines[0].strip() != "---":
        return {}
    found = {}
    for line in lines[1:]:
        if line.strip() == "---":
            break
        key, colon, value = line.partition(":")
        if colon and not key.startswith((" ", "-")):
            found[key.strip()] = value.strip().strip("'\"")
    return found


def origin(checkpoint: Checkpoint) -> tuple[str, str]:
    """The hub's name and revision where the folder's path holds them, else the training's or the folder's name."""
    folder = checkpoint.dir.resolve()
    if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--"):
        return folder.parent.parent.name.removeprefix("models--").replace("--", "/"), folder.name
    name = folder.name
    if name == "pretrained_model":  # as in NAME/checkpoints/STEP/pretrained_model: every training uses this folder name
        step = folder.parent
        name = (step.parents[1] if step.parent.name == "checkpoints" else step).name or name  # the root has no name
    return str(checkpoint.config.get("repo_id") or name), ""


def source(checkpoint: Checkpoint, meta: dict, flags: str) -> str:
    """The text of the bundle's SOURCE file."""
    lines = [f"checkpoint: {meta['source_repo']}", f"revision: {meta.get('source_revision') or 'unknown'}", f"policy: {meta['policy_type']}", f"weights sha256: {meta['weights_sha256']}"]
    if repo := checkpoint.training("dataset", "repo_id"):
        lines.append(f"data set: {repo}")
    lines += [f"exported by: {meta['exporter']}, LeRobot {meta['lerobot_version']}", f"flags: {flags or 'none'}", f"licence: {meta['licence']}"]
    return "\n".join(lines) + "\n"
