"""Reading and writing safetensors files: a JSON header, then the named arrays.

It replaces the safetensors library, so that equal contents give equal bytes: the tensors are ordered by falling item
size, then by name, and the header is padded to a multiple of 8 bytes.

Source: https://huggingface.co/docs/safetensors, section Format.
"""

import json
from pathlib import Path

import numpy as np

_KINDS = {"u1": "U8", "i8": "I64", "f4": "F32", "f8": "F64"}
_TYPES = {kind: np.dtype(code) for code, kind in _KINDS.items()}


def write(path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> None:
    """Writes the tensors to path. Element types are uint8, int64, float32 and float64."""
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    order = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    at = 0
    for name in order:
        tensor = tensors[name]
        header[name] = {
            "dtype": _KINDS[tensor.dtype.str[1:]],
            "shape": list(tensor.shape),
            "data_offsets": [at, at + tensor.nbytes],
        }
        at += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in order:
            file.write(np.ascontiguousarray(tensors[name]).tobytes())


def read(path: Path) -> dict[str, np.ndarray]:
    """Returns the tensors of a file, as copies."""
    raw = Path(path).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    body = raw[8 + size :]
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        flat = np.frombuffer(body[begin:end], _TYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"]).copy()
    return tensors
