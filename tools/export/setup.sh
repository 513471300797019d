#!/bin/sh
# Makes .venv-export: LeRobot, CPU torch and the dependencies of edgert-export, at the versions
# that were tested together. Run by `make export-env`; a second run does nothing.
#
# PyPI's torch for x64 includes the CUDA libraries (4 GB installed). TORCH_INDEX=URL of PyTorch's
# CPU index, where that is reachable, installs the build without them.
set -eu
cd "$(dirname "$0")/../.."

say() { printf 'export-env: %s\n' "$*" >&2; }

if [ ! -x .venv-export/bin/python ]; then
	# pyenv's python3.12 on PATH works only if pyenv has selected that version.
	for python in "${EXPORT_PYTHON:-}" python3.12 python3.13 python3.14 python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python; do
		if [ -n "$python" ] && "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
			break
		fi
		python=
	done
	[ -n "${python:-}" ] || {
		say "no Python 3.12 or newer with venv, which LeRobot 0.6 needs: install python3.12 and python3.12-venv, or set EXPORT_PYTHON to one"
		say "where apt has none, as in Debian 12 (3.11): python3 -m venv ~/.uv && ~/.uv/bin/pip install uv && ~/.uv/bin/uv python install 3.12; then: EXPORT_PYTHON=\$(~/.uv/bin/uv python find 3.12) make export-env"
		exit 3
	}
	say "creating .venv-export with $python"
	"$python" -m venv .venv-export
fi

stamp=.venv-export/.edgert-export
if ! cmp -s tools/export/requirements.txt "$stamp"; then
	say "installing the wheels of tools/export/requirements.txt"
	.venv-export/bin/pip install -q --disable-pip-version-check --no-cache-dir ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -r tools/export/requirements.txt
	.venv-export/bin/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e tools/export
	cp tools/export/requirements.txt "$stamp"
fi
