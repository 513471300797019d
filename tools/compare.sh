#!/bin/sh
# Compares every schedule under every fault (docs/lab/faults.md): EPISODES (200) paired episodes of
# each in virtual time (1.5 hours of two cores) or, with "live", 20 of each on edge-rt and lean-server
# in real time, WORKERS (3) at once (an hour and a half). Run `make setup build` first.
set -eu
cd "$(dirname "$0")/.."
schedules=drtc,rtc,append,async,v1,sync,rtc+compat,append+compat
if [ "${1:-}" = live ]; then
	exec bin/bench faults --faults compare --schedule $schedules --duration 6500ms \
		--episodes 20 --workers "${WORKERS:-3}" --json bin/compare-live.json
fi
exec bin/bench faults --virtual --faults compare --schedule $schedules --duration 6500ms \
	--episodes "${EPISODES:-200}" --json bin/compare.json --html bin/compare.html
