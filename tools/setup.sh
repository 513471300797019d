#!/bin/sh
# Installs what a fresh Debian or Ubuntu lacks: a C compiler and libjpeg-turbo
# (Debian packages) and ONNX Runtime (a Python wheel that holds the library).
# With "test" also the Python packages that act as independent judges in tests.
# Run by `make demo`, `make test` and CI; a second run does nothing in a second.
set -eu
cd "$(dirname "$0")/.."
want=${1:-demo}

say() { printf 'setup: %s\n' "$*" >&2; }

have_header() { [ -e /usr/include/turbojpeg.h ] || [ -e /usr/local/include/turbojpeg.h ] || [ -e /opt/libjpeg-turbo/include/turbojpeg.h ]; }

missing=
command -v cc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
have_header || missing="$missing libturbojpeg0-dev"
python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || missing="$missing python3 python3-venv"
if [ "$want" = test ]; then
	command -v cyclictest >/dev/null 2>&1 || missing="$missing rt-tests"
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

command -v go >/dev/null 2>&1 || {
	say "Go is missing: install Go 1.26 or newer from https://go.dev/dl and put it on PATH"
	exit 3
}

if [ ! -x .venv/bin/python ]; then
	say "creating .venv"
	python3 -m venv .venv
fi
# The stamp holds the pins, so that a changed pin is installed and an unchanged one costs nothing.
wheels() { # name requirements-file [pip options]
	stamp=.venv/.edgert-$1
	if ! cmp -s "$2" "$stamp"; then
		say "installing the wheels of $2"
		.venv/bin/pip install -q --disable-pip-version-check --no-warn-conflicts ${3:-} -r "$2"
		cp "$2" "$stamp"
	fi
}
wheels runtime tools/requirements-runtime.txt --no-deps
if [ "$want" = test ]; then
	wheels test tools/requirements-test.txt
fi
