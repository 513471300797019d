#!/bin/sh
# Runs go test over the module. Some tests run real programs against real
# clocks, and a virtual machine whose host takes its cores away for 100 ms fails
# them through no fault of the code. A package that fails is therefore run again
# once the host is calm, three times at most (those that passed are cached), and named
# at the end.
set -u
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
again=
for try in 1 2 3 4; do
	go test "$@" >"$log" 2>&1
	rc=$?
	grep -v 'no test files' "$log"
	[ $rc = 0 ] && break
	failed=$(sed -n 's/^FAIL[[:space:]]\{1,\}\([^[:space:]]*\/[^[:space:]]*\).*/\1/p' "$log" | tr '\n' ' ')
	# What does not build, races or panics does so on any host.
	grep -Eq '(build|setup) failed|^WARNING: DATA RACE|^panic: |^fatal error: ' "$log" && break
	[ $try = 4 ] || { again="$again $failed"; printf 'run again: %s\n' "$failed"; go run ./tools/calm; }
done
[ -z "$again" ] || printf 'failed at first:%s\n' "$again"
exit $rc
