#!/bin/sh
# Adds to .venv-export what LeRobot needs to load a dataset and to train on it. Without
# dependencies, because huggingface's datasets caps a version that LeRobot's others need newer.
# Run by `make dataset-test`; a second run does nothing.
set -eu
cd "$(dirname "$0")/../.."

stamp=.venv-export/.edgert-dataset
if ! cmp -s tools/dataset/requirements.txt "$stamp"; then
	printf 'dataset-test: installing the wheels of tools/dataset/requirements.txt\n' >&2
	.venv-export/bin/pip install -q --disable-pip-version-check --no-deps -r tools/dataset/requirements.txt
	cp tools/dataset/requirements.txt "$stamp"
fi
