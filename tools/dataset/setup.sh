#!/bin/sh
# Adds to .venv-export the packages with which LeRobot loads a dataset and trains on it. It installs
# no dependencies, because huggingface's datasets caps a version that other packages of LeRobot need newer.
# Run by `make dataset-test`; a second run does nothing.
set -eu
cd "$(dirname "$0")/../.."

stamp=.venv-export/.edgert-dataset
if ! cmp -s tools/dataset/requirements.txt "$stamp"; then
	printf 'dataset-test: installing the wheels of tools/dataset/requirements.txt\n' >&2
	.venv-export/bin/pip install -q --disable-pip-version-check --no-deps -r tools/dataset/requirements.txt
	cp tools/dataset/requirements.txt "$stamp"
fi
