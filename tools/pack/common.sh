# Sourced by the scripts beside it, in the root of the checkout. VERSION is the output of git describe:
# a tag such as v1.2.0, with the commits since then, or a commit alone.
set -eu
: "${VERSION:?run make wheels, make deb or make release}" "${ARCHS:=amd64 arm64}"
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
export LC_ALL=C TZ=UTC
umask 022

say() { printf 'pack: %s\n' "$*" >&2; }

# The same number for wheels and Debian packages: v1.2.0 is 1.2.0, v1.2.0-3-gabc is 1.2.0+3.gabc.
case $VERSION in
v*-rc* | v*-beta* | v*-alpha*) say "got the tag $VERSION, want vMAJOR.MINOR.PATCH: pip and dpkg sort others differently"; exit 2 ;;
[0-9]*.[0-9]*) say "got VERSION=$VERSION, want v$VERSION"; exit 2 ;;
v[0-9]*.[0-9]*) number=${VERSION#v} since=${VERSION#"${VERSION%%-*}"} number=${number%%-*} ;;
*) number=0.0.0 since=-$VERSION ;;
esac
number=$number$(printf %s "${since#-}" | tr - . | sed 's/^./+&/')

libc() { case $1 in amd64) echo x86_64 ;; arm64) echo aarch64 ;; *) say "ARCHS: got $1, want amd64 or arm64"; exit 2 ;; esac }

# pack_python makes .venv-pack with the packages of requirements.txt.
pack_python() {
	python=.venv-pack/bin/python
	[ -x $python ] || python3 -m venv .venv-pack
	if ! cmp -s tools/pack/requirements.txt .venv-pack/.edgert-pack; then
		say "installing the wheels of tools/pack/requirements.txt (90 MB)"
		$python -m pip install -q --disable-pip-version-check --no-cache-dir --no-deps -r tools/pack/requirements.txt
		cp tools/pack/requirements.txt .venv-pack/.edgert-pack
	fi
}

# onnxruntime ARCH puts the library of the wheel that tools/requirements-runtime.txt pins, with its
# licences, into .cache/onnxruntime-ARCH.
onnxruntime() {
	into=.cache/onnxruntime-$1
	if ! cmp -s tools/requirements-runtime.txt "$into/.pins"; then
		rm -rf "$into" && mkdir -p "$into"
		$python -m pip download -q --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: --python-version 3.12 \
			--platform "manylinux_2_27_$(libc "$1")" --platform "manylinux_2_28_$(libc "$1")" -d "$into" -r tools/requirements-runtime.txt
		$python -m zipfile -e "$into"/*.whl "$into/all"
		mv "$into"/all/onnxruntime/capi/libonnxruntime.so.* "$into"/all/onnxruntime/LICENSE \
			"$into"/all/onnxruntime/ThirdPartyNotices.txt "$into/"
		rm -r "$into/all" "$into"/*.whl
		cp tools/requirements-runtime.txt "$into/.pins"
	fi
}

# debian ARCH PACKAGE FOLDER puts a Debian package's files into FOLDER/all and its version into
# FOLDER/version, once.
debian() {
	[ ! -e "$3/version" ] || return 0
	rm -rf "$3" && mkdir -p "$3/lists/partial" "$3/cache/archives/partial" && : >"$3/status"
	options="-q -o APT::Architecture=$1 -o APT::Architectures=$1 -o Dir::State=$3 -o Dir::State::status=$3/status -o Dir::Cache=$3/cache -o APT::Sandbox::User="
	# shellcheck disable=SC2086 # the options are meant to split
	(cd "$3" && apt-get $options update >/dev/null && apt-get $options download "$2" >/dev/null)
	dpkg-deb -x "$3/$2"_*.deb "$3/all"
	found=$(ls "$3" | sed -n "s/^$2_\\(.*\\)_.*/\\1/p" | sed 's/%3a/:/')
	rm -r "$3/lists" "$3/cache" "$3/$2"_*.deb
	printf '%s\n' "$found" >"$3/version"
}
