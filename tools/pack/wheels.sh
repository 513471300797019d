#!/bin/sh
# Makes dist/*.whl: edge_rt for ARCHS, and edgert_export. auditwheel judges them.
cd "$(dirname "$0")/../.."
. tools/pack/common.sh
tools/pack/build.sh
pack_python
rm -f dist/*.whl
machines=
for arch in $ARCHS; do
	onnxruntime "$arch"
	machines="$machines $arch:$(libc "$arch")"
done
# shellcheck disable=SC2086
$python tools/pack/wheel.py "$number" $machines
for wheel in dist/edge_rt*.whl; do
	shown=$($python -m auditwheel show "$wheel" | tr '\n' ' ')
	glibc=$(echo "$shown" | sed -n 's/.*consistent with the following platform tag: "manylinux_2_\([0-9]*\)_.*/\1/p')
	[ "${glibc:-99}" -le 28 ] || { say "auditwheel, $wheel: got $shown, want manylinux_2_28 or older"; exit 1; }
done
