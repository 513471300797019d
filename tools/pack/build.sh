#!/bin/sh
# Builds the programs for ARCHS into dist/programs/ARCH, for glibc 2.28 or newer (Debian 10), with
# libjpeg-turbo linked in, and licences.txt with the licences of everything in them. Two builds of one
# commit are equal. zig compiles C for both architectures; libjpeg-turbo is the static library of
# Debian's libturbojpeg0-dev, which apt downloads without root.
cd "$(dirname "$0")/../.."
. tools/pack/common.sh
pack_python

# turbojpeg ARCH puts header, library and copyright into .cache/turbojpeg-ARCH.
turbojpeg() {
	into=$PWD/.cache/turbojpeg-$1
	[ ! -e "$into/copyright" ] || return 0
	command -v apt-get >/dev/null || { say "no apt-get: put turbojpeg.h, libturbojpeg.a and copyright of libjpeg-turbo for $1 into $into"; exit 3; }
	rm -rf "$into"
	debian "$1" libturbojpeg0-dev "$into"
	mv "$into"/all/usr/include/turbojpeg.h "$into"/all/usr/lib/*/libturbojpeg.a "$into"/all/usr/share/doc/libturbojpeg0-dev/copyright "$into/"
	rm -r "$into/all"
}

# licences ARCH prints the licence of each part of the programs.
licences() {
	part() { printf '\n==== %s ====\n\n' "$1"; shift; cat "$@"; }
	part 'Go' "$(go env GOROOT)/LICENSE"
	part "libjpeg-turbo, from Debian's libturbojpeg0-dev $(cat ".cache/turbojpeg-$1/version")" ".cache/turbojpeg-$1/copyright"
	part 'zig (compiler_rt)' "$($python -c 'import ziglang, os; print(os.path.dirname(ziglang.__file__))')/LICENSE"
	GOARCH=$1 CGO_ENABLED=1 go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/... | sort -u |
		while read -r module version folder; do
			files=$(find "$folder" -maxdepth 1 -type f \( -iname 'LICEN[CS]E*' -o -iname 'COPYING*' -o -iname 'NOTICE*' \) | sort)
			[ -n "$files" ] || { say "$module has no licence file"; exit 1; }
			# shellcheck disable=SC2086
			part "$module $version" $files
		done
}

for arch in $ARCHS; do
	turbojpeg "$arch"
	out=dist/programs/$arch
	mkdir -p "$out"
	say "building $VERSION for $arch"
	printf '#!/bin/sh\nexec %s -m ziglang cc -target %s-linux-gnu.2.28 "$@"\n' "$PWD/$python" "$(libc "$arch")" >"$out/cc"
	chmod +x "$out/cc"
	CGO_ENABLED=1 GOARCH=$arch CC=$PWD/$out/cc CGO_CFLAGS="-O2 -I$PWD/.cache/turbojpeg-$arch" CGO_LDFLAGS="-L$PWD/.cache/turbojpeg-$arch" \
		go build -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X main.version=$VERSION" -o "$out/" ./cmd/...
	licences "$arch" >"$out/licences.txt"
done
