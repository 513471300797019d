"""The owner of OUT.partial: files of a person or of another export are kept."""

import fcntl
import os
from pathlib import Path

import pytest

from edgert_export.bundle import MARKER, own_partial
from edgert_export.errors import ExportError


def tree(path: Path) -> dict[str, bytes]:
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_somebodys_partial_stays(tmp_path):
    for name, make in {
        "folder": lambda p: (p.mkdir(), (p / "thesis.tex").write_text("x")),
        "bundle": lambda p: (p.mkdir(), (p / "bundle.json").write_text("{}"), (p / "golden").mkdir()),
        "file": lambda p: p.write_text("x"),
        "link": lambda p: ((tmp_path / "there").mkdir(), (tmp_path / "there" / MARKER).touch(), (tmp_path / "there" / "mine").write_text("x"), p.symlink_to(tmp_path / "there")),
        "dangling": lambda p: p.symlink_to(tmp_path / "gone"),
        "marker": lambda p: (p.mkdir(), (p / MARKER).mkdir(), (p / "mine").write_text("x")),
    }.items():
        partial = tmp_path / f"{name}.partial"
        make(partial)
        before = tree(tmp_path)
        with pytest.raises(ExportError, match="is not what an interrupted export has left"), own_partial(partial):
            pass
        assert tree(tmp_path) == before and os.path.lexists(partial), name


def test_an_export_that_goes_on_keeps_its_own(tmp_path):
    partial = tmp_path / "out.partial"
    with own_partial(partial):
        (partial / "policy.onnx").write_text("half")
        with pytest.raises(ExportError, match="another export is writing"), own_partial(partial):
            pass
        assert (partial / "policy.onnx").read_text() == "half"


def test_what_an_interrupted_export_has_left_is_emptied(tmp_path):
    partial = tmp_path / "deep" / "out.partial"
    partial.mkdir(parents=True)
    (partial / MARKER).touch()
    (partial / "golden").mkdir()
    (partial / "golden" / "b1.safetensors").write_text("half")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("x")
    (partial / "link").symlink_to(outside)
    with own_partial(partial):
        assert [p.name for p in partial.iterdir()] == [MARKER]
        with (partial / MARKER).open("r+") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert (outside / "mine").read_text() == "x"


def test_one_that_fails_leaves_nothing(tmp_path):
    partial = tmp_path / "out.partial"
    with pytest.raises(ValueError), own_partial(partial):
        (partial / "policy.onnx").write_text("half")
        raise ValueError
    assert not partial.exists()
    with pytest.raises(OSError, match="full"), own_partial(partial):
        raise OSError("full")  # another text than that of a folder that cannot be made
    assert not partial.exists()
