"""Trained networks on disk, so that an export can be repeated without training."""

import hashlib
from pathlib import Path

import jax
import numpy as np

from . import nets, tensors
from .fit import Policy


def save(path: Path, policy: Policy) -> None:
    """Writes the parameters, named by their path in the tree, and the statistics."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors.write(path, _flat(policy))


def load(path: Path) -> Policy:
    """Reads a file written by save."""
    arrays = tensors.read(path)
    key = jax.random.key(0)
    fill = lambda root, tree: jax.tree_util.tree_map_with_path(lambda p, _: arrays[_name(root, p)], tree)  # noqa: E731
    stats = {name.removeprefix("stats"): a for name, a in arrays.items() if name.startswith("stats")}
    stats = {name.strip("[']"): a for name, a in stats.items()}
    return Policy(fill("eyes", nets.init_eyes(key)), fill("hands", nets.init_hands(key)), stats)


def digest(policy: Policy) -> str:
    """SHA-256 over all numbers, in the order of their names."""
    whole = hashlib.sha256()
    for name, array in sorted(_flat(policy).items()):
        whole.update(name.encode())
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()


def stats_digest(policy: Policy) -> str:
    """SHA-256 over the normalisation statistics."""
    return hashlib.sha256(b"".join(policy.stats[name].tobytes() for name in sorted(policy.stats))).hexdigest()


def _flat(policy: Policy) -> dict[str, np.ndarray]:
    arrays = {}
    for root, tree in (("eyes", policy.eyes), ("hands", policy.hands), ("stats", policy.stats)):
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            arrays[_name(root, path)] = np.asarray(leaf)
    return arrays


def _name(root: str, path: tuple) -> str:
    return root + jax.tree_util.keystr(path)
