#!/bin/sh
# Installs what a fresh Debian or Ubuntu lacks: a C compiler and libjpeg-turbo
# (Debian packages) and ONNX Runtime (a Python wheel that holds the library).
# With "test" also the Python packages that tests use as independent judges, with
# "interop" those that drive our programs. With "v4l2" and an architecture instead the
# dependencies of tools/v4l2vm: the emulator and the tools that build a kernel module;
# with "arm64" the emulator of tools/pack/arm64.sh, with "boot" what tools/boot needs, with "page" the browser that tests
# the pages, with "gpu" ONNX Runtime for NVIDIA GPUs.
# "robot" leaves out ONNX Runtime, which edge-rt does not use, and "server" installs the
# dependencies of lean-server. "go" checks Go alone. Run by `make demo`, `make test` and
# CI; a second run does nothing and takes a second.
set -eu
cd "$(dirname "$0")/.."
want=${1:-demo}

# Checks for the Go version in go.mod. Go 1.21 or newer fetches that version by itself if it
# may; an older Go, such as Debian 12's 1.19, ends with compiler errors.
check_go() {
	needed=$(sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' go.mod)
	get="install Go $needed or newer: download go$needed.*.linux-$(dpkg --print-architecture 2>/dev/null || uname -m).tar.gz from https://go.dev/dl, then: sudo tar -C /usr/local -xzf go$needed.*.tar.gz; export PATH=/usr/local/go/bin:\$PATH"
	go=${GO:-go}
	command -v "$go" >/dev/null 2>&1 || {
		say "Go is missing from PATH (sudo has a PATH of its own); $get"
		exit 3
	}
	version=$("$go" env GOVERSION 2>&1) || {
		say "$(command -v "$go") does not run here: $version; $get"
		exit 3
	}
	digits=${version#go}
	major=${digits%%.*}
	rest=${digits#*.}
	minor=${rest%%[!0-9]*}
	case $major.$minor in
	*[!0-9.]* | .* | *.) return 0 ;; # a version between releases, such as devel
	esac
	if [ "$major" -lt "${needed%%.*}" ] || { [ "$major" -eq "${needed%%.*}" ] && [ "$minor" -lt "${needed#*.}" ]; }; then
		say "$(command -v "$go") is $version, and this code needs Go $needed; $get"
		exit 3
	fi
}

say() { printf 'setup: %s\n' "$*" >&2; }

have_header() { [ -e /usr/include/turbojpeg.h ] || [ -e /usr/local/include/turbojpeg.h ] || [ -e /opt/libjpeg-turbo/include/turbojpeg.h ]; }

if [ "$want" = go ]; then
	check_go
	exit 0
fi

missing=
command -v cc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
have() { PATH=$PATH:/sbin:/usr/sbin command -v "$1" >/dev/null 2>&1; }
if [ "$want" = v4l2 ]; then
	[ "${3:-}" != whole ] || have_header || missing="$missing libturbojpeg0-dev"
	have make || missing="$missing make"
	have depmod || missing="$missing kmod"
	ldconfig -p 2>/dev/null | grep -q 'libelf\.so\.1' || /sbin/ldconfig -p | grep -q 'libelf\.so\.1' || missing="$missing libelf1"
	case ${2:-amd64} in
	amd64) have qemu-system-x86_64 || missing="$missing qemu-system-x86" ;;
	arm64) have qemu-system-aarch64 || missing="$missing qemu-system-arm" ;;
	*) say "v4l2 ${2}: want amd64 or arm64"; exit 2 ;;
	esac
	if [ "$(dpkg --print-architecture 2>/dev/null)" != "${2:-amd64}" ]; then
		case ${2:-amd64} in
		amd64) have x86_64-linux-gnu-gcc || missing="$missing gcc-x86-64-linux-gnu" ;;
		arm64) have aarch64-linux-gnu-gcc || missing="$missing gcc-aarch64-linux-gnu" ;;
		esac
	fi
elif [ "$want" = arm64 ]; then
	have qemu-aarch64-static || missing="$missing qemu-user-static"
elif [ "$want" = boot ]; then
	have mmdebstrap || missing="$missing mmdebstrap debian-archive-keyring"
	have systemd-nspawn || missing="$missing systemd-container"
	have mke2fs || missing="$missing e2fsprogs"
	python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || missing="$missing python3 python3-venv"
else
	have_header || missing="$missing libturbojpeg0-dev"
	[ "$want" = robot ] || python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || missing="$missing python3 python3-venv"
fi
if [ "$want" = test ]; then
	command -v cyclictest >/dev/null 2>&1 || missing="$missing rt-tests"
	command -v tjbench >/dev/null 2>&1 || missing="$missing libjpeg-turbo-progs"
	command -v ffmpeg >/dev/null 2>&1 || missing="$missing ffmpeg" # edge-rt dataset
	[ -e /usr/include/jpeglib.h ] || missing="$missing libjpeg-dev" # go test -tags pixiv ./bench/jpeg
fi
if [ "$want" = page ]; then
	command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
fi
if [ -n "$missing" ]; then
	command -v apt-get >/dev/null 2>&1 || {
		say "this system has no apt-get; install by hand what these Debian packages hold:$missing"
		exit 3
	}
	sudo=
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null 2>&1 || {
			say "not root and no sudo; as root run: apt-get install$missing"
			exit 3
		}
		sudo=sudo
	fi
	say "installing$missing"
	# shellcheck disable=SC2086 # the list is meant to split
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 update >/dev/null
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 install --no-install-recommends $missing >/dev/null
fi

check_go

if [ "$want" = v4l2 ] || [ "$want" = arm64 ] || [ "$want" = boot ] || [ "$want" = page ] || [ "$want" = robot ]; then
	exit 0
fi
if [ "$want" = gpu ]; then
	[ -x .venv-gpu/bin/python ] || python3 -m venv .venv-gpu
	stamp=.venv-gpu/.edgert-gpu
	if ! cmp -s tools/requirements-gpu.txt "$stamp"; then
		say "installing the wheels of tools/requirements-gpu.txt (3 GB)"
		.venv-gpu/bin/pip install -q --disable-pip-version-check --no-cache-dir --no-deps -r tools/requirements-gpu.txt
		cp tools/requirements-gpu.txt "$stamp"
	fi
	[ -e /proc/driver/nvidia/version ] || say "no NVIDIA driver is loaded: CUDA 12 needs 525 or newer"
	exit 0
fi
if [ ! -x .venv/bin/python ]; then
	say "creating .venv"
	python3 -m venv .venv
fi
# The stamp holds the pins, so that a changed pin is installed and unchanged pins cost no time.
wheels() { # name requirements-file [pip options]
	stamp=.venv/.edgert-$1
	if ! cmp -s "$2" "$stamp"; then
		say "installing the wheels of $2"
		.venv/bin/pip install -q --disable-pip-version-check --no-warn-conflicts ${3:-} -r "$2"
		cp "$2" "$stamp"
	fi
}
wheels runtime tools/requirements-runtime.txt --no-deps
if [ "$want" = test ] || [ "$want" = interop ]; then
	wheels test tools/requirements-test.txt
	wheels servers tools/interop/servers.txt --no-deps
fi
if [ "$want" = interop ]; then
	wheels bus tools/interop/bus/requirements.txt --no-deps
	# A second version of one package, outside the environment's own packages.
	# shellcheck disable=SC2086
	wheels zenoh-1.10 tools/interop/zenoh-1.10.txt '--no-deps --upgrade --target .venv/zenoh-1.10'
fi
