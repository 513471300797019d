#!/bin/bash
# Runs schedule rtc on three networks with the times of every profile, and the two best of them with other
# buffers, for docs/lab/profiles.md: tools/profiles.sh [SECONDS]. Wants bin/ and ONNX Runtime (make setup build).
# The stalls stop lean-server, so neither chunks nor status replies pass.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-40}
dir=$(mktemp -d)
trap 'kill $server 2>/dev/null || true; rm -rf "$dir"' EXIT

# network NAME LATENCY JITTER LOSS STALL PAUSE CONTENDER...: stalls of STALL s, PAUSE s apart; 0: none
network() {
	local name=$1 stall=$5 pause=$6 end
	printf 'name: %s\nfaults:\n' "$name" >"$dir/faults.yaml"
	printf '  - {kind: latency, delay: %s}\n  - {kind: jitter, delay: %s}\n' "$2" "$3" >>"$dir/faults.yaml"
	printf '  - {kind: drop_observation, share: %s}\n  - {kind: drop_chunk, share: %s}\n' "$4" "$4" >>"$dir/faults.yaml"
	shift 6
	bin/lean-server --manifest testdata/demo/server.yaml --listen unixsock-stream/"$dir/sock" --health-port 0 \
		>"$dir/server.log" 2>&1 &
	server=$!
	sleep 4
	local robots=() i=0
	for flags in "$@"; do
		XDG_STATE_HOME=$dir/$i bin/edge-rt --fps 60 --bus sim --camera top=sim --id "robot-$i" --schedule rtc --record off \
			--connect unixsock-stream/"$dir/sock" --duration "${seconds}s" --wire-faults "$dir/faults.yaml" \
			--json "$dir/$i.json" $flags >"$dir/$i.log" 2>&1 &
		robots+=($!)
		i=$((i + 1))
	done
	end=$((SECONDS + seconds + 3))
	while [ "$stall" != 0 ] && [ $SECONDS -lt $end ]; do
		sleep "$pause"
		kill -STOP $server
		sleep "$stall"
		kill -CONT $server
	done
	wait "${robots[@]}" || true
	kill $server
	wait $server || true
	i=0
	for flags in "$@"; do
		python3 -c "
import json, sys
s = json.load(open(sys.argv[1]))
print('| $name | \`$flags\` | %d | %d | %.1f | %d | %.0f | %.0f |' % (s['sessions_opened'], s['requests'],
    s['seconds_in_state'].get('DEGRADED', 0), s['starved_ticks'], s['action_age_ms']['p50'], s['buffer_ms']))" "$dir/$i.json"
		i=$((i + 1))
	done
}

echo '| network | flags | sessions | requests | DEGRADED s | starved ticks | age p50 ms | buffer ms |'
echo '|---|---|---|---|---|---|---|---|'
for way in wired,1ms,1ms,0.0001,0,0 wifi,3ms,30ms,0.02,0.8,9 wan,60ms,40ms,0.01,1.3,13; do
	IFS=, read -ra args <<<"$way"
	network "${args[@]}" --request-timeout=5s --profile=wired --profile=wifi --profile=wan
	network "${args[@]}" --buffer-time=auto --buffer-time=300ms --buffer-time=500ms --buffer-time=800ms
done
