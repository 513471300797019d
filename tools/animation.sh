#!/bin/sh
# Records the README's animation: twenty seconds of the simulated arm's camera, as an animated GIF. It needs curl and
# ffmpeg, and the programs of `make build`.
#
#   tools/animation.sh [FILE]     # docs/page/demo.gif
set -eu
cd "$(dirname "$0")/.."
out=${1:-docs/page/demo.gif}
dir=$(mktemp -d)
bin/lean-server --demo --listen tcp/127.0.0.1:7461 --health-port 0 >"$dir/log" 2>&1 &
server=$!
bin/edge-rt --bus sim --camera top=sim --connect tcp/127.0.0.1:7461 --seed 1 --http 127.0.0.1:7462 --quiet \
    --record off --duration 60s >"$dir/summary" &
edge=$!
trap 'kill $server $edge 2>/dev/null; wait; rm -r "$dir"' EXIT
curl -sf --retry 30 --retry-delay 1 --retry-all-errors -o "$dir/first" http://127.0.0.1:7462/camera/top
for n in $(seq -w 200); do
    curl -sf -m 1 -o "$dir/next" http://127.0.0.1:7462/camera/top && mv "$dir/next" "$dir/first" || true
    cp "$dir/first" "$dir/$n.jpg"
    sleep 0.09
done
ffmpeg -loglevel error -y -framerate 10 -i "$dir/%03d.jpg" -filter_complex "scale=480:-1:flags=lanczos,split[a][b];\
[a]palettegen=max_colors=32:stats_mode=full[p];[b][p]paletteuse=dither=none:diff_mode=rectangle" "$out"
