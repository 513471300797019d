#!/bin/sh
# Records, trains and exports the ACT of testdata/demo/act: see README.md.
# SEED=n trains another policy, OUT=dir writes the bundle elsewhere, DATA=dir keeps recordings and stages elsewhere.
set -eu
cd "$(dirname "$0")"
root=../../../..
python=${EXPORT_ENV:-$root/.venv-export}/bin/python
seed=${SEED:-0}
out=${OUT:-$root/testdata/demo/act}
data=${DATA:-$root/.cache/act_sim}
if [ -e "$out" ]; then
	echo "act_sim: $out exists already: remove it first, or set OUT" >&2
	exit 2
fi
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 HF_HUB_OFFLINE=1

say() { printf 'act_sim: %s\n' "$*" >&2; }

# A step that an earlier run completed is skipped, and an interrupted training is resumed.
say "1 of 3: demonstrations in $data"
[ -e "$data/meta/stats.json" ] || nice "$python" record.py "$data" --seed "$seed"
say "2 of 3: training in $data/stages-$seed"
nice "$python" fit.py "$data" "$data/stages-$seed" --seed "$seed"
say "3 of 3: the bundle $out"
units=degrees,degrees,degrees,degrees,degrees,range_0_100
nice "$python" -m edgert_export.cli "$data/stages-$seed/checkpoint" "$out" --dataset-info "$data/meta/info.json" --units $units --simulation-only
