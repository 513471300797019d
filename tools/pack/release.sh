#!/bin/sh
# Makes a release in dist/: wheels, Debian packages, a bill of materials for each program (CycloneDX)
# and checksums, after a search for known vulnerabilities of what the programs call.
cd "$(dirname "$0")/../.."
. tools/pack/common.sh
if [ -z "${OFFLINE:-}" ]; then
	go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./cmd/... || { echo 'pack: no release without this search; OFFLINE=1 leaves it out' >&2; exit 1; }
fi
tools/pack/wheels.sh
tools/pack/deb.sh
python=.venv-pack/bin/python
for program in edge-rt lean-server bench; do
	go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 bin -json -licenses -noserial -version "$number" -output "dist/$program.cdx.json" "dist/programs/amd64/$program"
done
# The parts in C are no Go modules.
$python - "$number" "$(cat .cache/turbojpeg-amd64/version)" "$(sed -n 's/^onnxruntime==//p' tools/requirements-runtime.txt)" <<'END'
import json, pathlib, sys
number, jpeg, onnxruntime = sys.argv[1:]
for name in ("edge-rt", "lean-server", "bench"):
    file = pathlib.Path(f"dist/{name}.cdx.json")
    bom = json.loads(file.read_text())
    bom["metadata"].pop("timestamp", None)
    bom["metadata"]["component"]["version"] = number
    parts = [("libturbojpeg0-dev", jpeg, "pkg:deb/debian/libturbojpeg0-dev@")]
    if name == "lean-server":
        parts.append(("onnxruntime", onnxruntime, "pkg:pypi/onnxruntime@"))
    for part, version, purl in parts:
        bom["components"].append({"type": "library", "bom-ref": purl + version, "name": part, "version": version,
                                  "purl": purl + version})
    file.write_text(json.dumps(bom, indent=1) + "\n")
END
(cd dist && sha256sum -- *.whl *.deb *.cdx.json >SHA256SUMS)
cat dist/SHA256SUMS
