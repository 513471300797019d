#!/bin/sh
# The whole measurement on a GPU: ACT and SmolVLA at real size,
# lean-server's code, bare ONNX Runtime, and LeRobot in torch, eager and compiled,
# in one run and one report. Installs missing parts; exits early, with 4, on a
# machine without a GPU.
#
#   DEVICE=cuda       cuda, cuda:N, tensorrt, or cpu to rehearse without a GPU
#   BATCHES=1,2,...   sizes of batches (1,2,3,4,6,8,12,16)
#   SECONDS_EACH=60   of each contender on each bundle
#   CONTENDERS="bare torch compiled"   the contenders beside lean-server's code
#   FOLDER=bin/gpu    where checkpoints, bundles and the report are (bin/gpu-small with SMALL)
#   SMALL=1           checkpoints of the tests' size, to rehearse quickly
set -eu
cd "$(dirname "$0")/../.."
device=${DEVICE:-cuda}
folder=${FOLDER:-bin/gpu${SMALL:+-small}}

say() { printf 'gpu-bench: %s\n' "$*" >&2; }

case $device in
cpu) say 'DEVICE=cpu: a rehearsal, its figures say nothing about a GPU' ;;
cuda | cuda:[0-9]* | tensorrt | tensorrt:[0-9]*)
	if [ ! -e "${NVIDIA_DRIVER:-/proc/driver/nvidia/version}" ]; then
		say "no NVIDIA driver is loaded on this machine, so there is no GPU to measure: run it where nvidia-smi lists one (DEVICE=cpu rehearses it here); nothing was installed"
		exit 4
	fi
	;;
*)
	say "DEVICE is $device, want cuda, cuda:N, tensorrt, tensorrt:N or cpu"
	exit 2
	;;
esac

torch=.venv-export/bin/python python=.venv-gpu/bin/python
[ "$device" != cpu ] || python=$torch
act=$folder/checkpoints/act smolvla=$folder/checkpoints/smolvla/policy
set --
for name in ${CONTENDERS:-bare torch compiled}; do
	case $name in
	bare) set -- "$@" --beside "bare=$python tools/gpu/bare.py" ;;
	torch) set -- "$@" --beside "torch=$torch tools/gpu/torch_lerobot.py $act $smolvla" ;;
	compiled) set -- "$@" --beside "compiled=$torch tools/gpu/torch_lerobot.py --compile $act $smolvla" ;;
	*)
		say "CONTENDERS names $name, want some of: bare torch compiled"
		exit 2
		;;
	esac
done

tools/setup.sh demo
[ "$device" = cpu ] || tools/setup.sh gpu
tools/export/setup.sh
command -v g++ >/dev/null || say 'no g++: LeRobot compiled by torch will be reported as absent'
mkdir -p "$folder"
"$torch" tools/gpu/real.py "$folder" ${SMALL:+--small}
go build -o bin/bench ./cmd/bench

# torch compiles each policy once, for minutes.
export TORCHINDUCTOR_CACHE_DIR="$(cd "$folder" && pwd)/inductor"
bin/bench gpu --device "$device" --batch "${BATCHES:-1,2,3,4,6,8,12,16}" --duration "${SECONDS_EACH:-60}s" \
	--bundle "$folder/bundles/act,$folder/bundles/smolvla,$folder/bundles/smolvla-split" \
	"$@" --json "$folder/gpu.json" --markdown "$folder/gpu.md"
say "report: $folder/gpu.md, $folder/gpu.json"
