#!/bin/sh
# Makes dist/*.deb with nfpm for ARCHS: edge-rt, lean-server, edge-rt-common and edge-rt-onnxruntime.
# The files are those of make install below /usr.
cd "$(dirname "$0")/../.."
. tools/pack/common.sh
tools/pack/build.sh
pack_python
nfpm=bin/nfpm-v2.45.0/nfpm # its version is part of its path, as golangci-lint's in the Makefile
[ -x $nfpm ] || GOBIN=$PWD/$(dirname $nfpm) go install "github.com/goreleaser/nfpm/v2/cmd/nfpm@$(echo $nfpm | sed 's,bin/nfpm-\(.*\)/nfpm,\1,')"
library=$(sed -n 's/^onnxruntime==//p' tools/requirements-runtime.txt)
rm -f dist/*.deb

# document PACKAGE FILE… makes the package's copyright file.
document() {
	mkdir -p "$stage/$1/usr/share/doc/$1"
	name=$1
	shift
	cat "$@" >"$stage/$name/usr/share/doc/$name/copyright"
}

for arch in $ARCHS; do
	onnxruntime "$arch"
	stage=dist/stage/$arch
	rm -rf "$stage" && mkdir -p "$stage/edge-rt-onnxruntime/usr/lib"
	for target in shared:edge-rt-common edge-rt:edge-rt lean-server:lean-server; do
		make -s --no-print-directory "install-${target%:*}" "DESTDIR=$PWD/$stage/${target#*:}" PREFIX=/usr "BIN=dist/programs/$arch" "ORT=$(echo .cache/onnxruntime-"$arch"/libonnxruntime.so.*)" >/dev/null
	done
	document edge-rt-common LICENSE "dist/programs/$arch/licences.txt"
	document edge-rt LICENSE "dist/programs/$arch/licences.txt"
	document lean-server LICENSE "dist/programs/$arch/licences.txt"
	document edge-rt-onnxruntime ".cache/onnxruntime-$arch/LICENSE" ".cache/onnxruntime-$arch/ThirdPartyNotices.txt"
	mv "$stage/lean-server/usr/lib/edge-rt" "$stage/edge-rt-onnxruntime/usr/lib/"
	find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	for package in edge-rt-common edge-rt lean-server edge-rt-onnxruntime; do
		version=$number
		[ $package != edge-rt-onnxruntime ] || version=$library
		{
			cat tools/pack/deb/$package.yaml
			printf 'version: "%s"\nversion_schema: none\narch: %s\nplatform: linux\n' "$version" "$arch"
			printf 'section: electronics\nmaintainer: The edge-rt authors <edge-rt@users.noreply.github.com>\n'
			printf 'homepage: https://github.com/edge-rt/edge-rt\nlicense: Apache-2.0\n'
		} | sed "s/\${VERSION}/$number/" >"$stage/$package.nfpm.yaml"
		(cd "$stage" && "$OLDPWD/$nfpm" package -f $package.nfpm.yaml -p deb -t "$OLDPWD/dist/" >nfpm.log) || { cat "$stage/nfpm.log" >&2; exit 1; }
	done
done
ls dist/*.deb
