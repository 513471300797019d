#!/bin/sh
# Trains the demo policy again and writes the demo bundles: about an hour of
# one idle core. SEED=n trains another policy, OUT=dir writes it elsewhere.
set -eu
cd "$(dirname "$0")"
seed=${SEED:-0}
out=${OUT:-../../testdata/demo/bundle}

[ -x .venv/bin/python ] || python3 -m venv .venv
.venv/bin/pip install -q --disable-pip-version-check -r requirements.txt
nice .venv/bin/python -m train --seed "$seed" --out "$out" --weights "nets-$seed.safetensors"
nice .venv/bin/python -m train.plain --seed "$seed" --out ../../testdata/demo/plain
.venv/bin/python -m train.still --out ../../testdata/demo/still
for robot in bi_so101 lekiwi; do
	.venv/bin/python -m train.parts $robot --out ../../testdata/demo/$robot
done
for bundle in bundle plain; do .venv/bin/python -m train.statistics ../../testdata/demo/$bundle; done
.venv/bin/python -m train.rollout "$out" --delay 8
