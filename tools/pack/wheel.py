"""Packs the programs of dist/programs as wheels, without a build step on the user's machine.

    SOURCE_DATE_EPOCH=… python wheel.py NUMBER amd64:x86_64 arm64:aarch64

dist/ gets, for each architecture, edge_rt with the three programs as scripts, as ruff and uv have
theirs, and with the library of the onnxruntime wheel that is pinned. A dependency on that wheel would
exclude Python 3.10, for which it does not exist, and bring its dependencies, which lean-server does
not use: four times the installation's time. For edge-rt[export], dist/ gets edgert_export, the exporter.
"""

import base64
import csv
import hashlib
import io
import os
import sys
import time
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GLIBC = "manylinux_2_28"
DEMO = ("bundle", "bi_so101", "lekiwi", "plain", "still", "server.yaml", "bi_so101.yaml", "lekiwi.yaml", "still.yaml",
        "so101.json", "lekiwi.json")


def metadata(name, number, summary, python, requires=(), extras=()):
    """The core metadata of a wheel; requires are its dependencies, extras the names of its extras."""
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {number}", f"Summary: {summary}",
             "License-Expression: Apache-2.0", f"Requires-Python: {python}"]
    lines += [f"Provides-Extra: {extra}" for extra in extras] + [f"Requires-Dist: {r}" for r in requires]
    return "\n".join(lines) + "\n"


def write(name, number, tag, files, entry_points=""):
    """Writes dist/NAME-NUMBER-TAG.whl of files: path in the wheel to (bytes, mode)."""
    stem = f"{name.replace('-', '_')}-{number}"
    info = f"{stem}.dist-info/"
    pure = tag.endswith("-any")
    files = {path.format(stem=stem): content for path, content in files.items()}
    files[info + "WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: edge-rt tools/pack\nRoot-Is-Purelib: "
                             f"{str(pure).lower()}\nTag: {tag}\n".encode(), 0o644)
    files[info + "licenses/LICENSE"] = ((ROOT / "LICENSE").read_bytes(), 0o644)
    if entry_points:
        files[info + "entry_points.txt"] = (entry_points.encode(), 0o644)
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for path, (data, _) in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow((path, f"sha256={digest}", len(data)))
    rows.writerow((info + "RECORD", "", ""))
    files[info + "RECORD"] = (record.getvalue().encode(), 0o644)
    out = ROOT / "dist" / f"{stem}-{tag}.whl"
    when = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]  # zip begins in 1980
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for path, (data, mode) in sorted(files.items(), key=lambda f: (f[0].startswith(info), f[0])):
            member = zipfile.ZipInfo(path, when)
            member.external_attr = (0o100000 | mode) << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(member, data)
    print(out.relative_to(ROOT))


def edge_rt(number, arch, machine):
    """The wheel with the programs."""
    programs = ROOT / "dist/programs" / arch
    files = {f"{{stem}}.data/scripts/{p}": ((programs / p).read_bytes(), 0o755)
             for p in ("edge-rt", "lean-server", "bench")}
    demo = ROOT / "testdata/demo"
    shared = [f for top in DEMO for f in ([demo / top] if (demo / top).is_file() else (demo / top).rglob("*"))]
    for file in filter(Path.is_file, shared):
        files[f"{{stem}}.data/data/share/edge-rt/demo/{file.relative_to(demo)}"] = (file.read_bytes(), 0o644)
    example = "{stem}.data/data/share/doc/edge-rt/examples/server.yaml"
    files[example] = ((ROOT / "examples/server.yaml").read_bytes(), 0o644)
    files["{stem}.dist-info/licenses/third-party.txt"] = ((programs / "licences.txt").read_bytes(), 0o644)
    cache = ROOT / f".cache/onnxruntime-{arch}"
    library = next(cache.glob("libonnxruntime.so.*"))
    files[f"{{stem}}.data/data/lib/edge-rt/{library.name}"] = (library.read_bytes(), 0o755)
    for text in ("LICENSE", "ThirdPartyNotices.txt"):
        files[f"{{stem}}.dist-info/licenses/onnxruntime/{text}"] = ((cache / text).read_bytes(), 0o644)
    requires = [f"edgert-export=={number}; extra == 'export'"]
    summary = "Runs a robot arm from a policy on another machine, without stutter: edge-rt, lean-server, bench"
    files["{stem}.dist-info/METADATA"] = (
        metadata("edge-rt", number, summary, ">=3.8", requires, ["export"]).encode(), 0o644)
    write("edge-rt", number, f"py3-none-{GLIBC}_{machine}", files)


def exporter(number):
    """The wheel of tools/export, with the dependencies of its pyproject.toml."""
    project = tomllib.loads((ROOT / "tools/export/pyproject.toml").read_text())["project"]
    package = ROOT / "tools/export/edgert_export"
    files = {f"edgert_export/{f.relative_to(package)}": (f.read_bytes(), 0o644)
             for f in package.rglob("*") if f.is_file() and "__pycache__" not in f.parts}
    files["{stem}.dist-info/METADATA"] = (
        metadata(project["name"], number, project["description"], project["requires-python"],
                 project["dependencies"]).encode(), 0o644)
    scripts = "[console_scripts]\n" + "".join(f"{n} = {t}\n" for n, t in project["scripts"].items())
    write(project["name"], number, "py3-none-any", files, scripts)


def main(number, *machines):
    for arch, machine in (m.split(":") for m in machines):
        edge_rt(number, arch, machine)
    exporter(number)


main(*sys.argv[1:])
