#!/bin/sh
# Runs every fuzz target of the module for the time given, one per core at once.
# Making an interesting input smaller may take a second of it: where goroutines
# take part the same input never covers the same code twice, and go test would
# try for a minute.
# The go command sometimes reports its own end of fuzzing time as a failure
# ("context deadline exceeded", https://go.dev/issue/75804) when a worker is
# busy at that moment. Such a run has found nothing and is made again, twice at
# most; a real finding always names its failing input or prints a panic.
set -eu
cd "$(dirname "$0")/.."

fuzz() { # package target
	log=$(mktemp)
	for try in 1 2 3; do
		if go test -run '^$' -parallel 1 -fuzz "^$2\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 1s "$1" >"$log" 2>&1; then
			printf 'fuzz %s %s: %s\n' "$1" "$2" "$(tail -n 1 "$log")"
			rm -f "$log"
			return 0
		fi
		grep -q 'context deadline exceeded' "$log" || break
		! grep -Eq 'Failing input written|panic|hung or terminated' "$log" || break
		printf 'fuzz %s %s: the fuzzer missed its own deadline, once more\n' "$1" "$2"
	done
	printf 'fuzz %s %s failed:\n' "$1" "$2"
	cat "$log"
	rm -f "$log"
	return 255 # ends xargs
}

if [ "${1:-}" = one ]; then
	fuzz "$2" "$3"
	exit
fi
FUZZTIME=${1:-10s}
export FUZZTIME
go list -f '{{$p := .ImportPath}}{{range .TestGoFiles}}{{$p}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$p}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}' ./... |
	while read -r package file; do
		[ -n "$file" ] || continue
		sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | while read -r target; do
			echo "$package $target"
		done
	done | sort -u | xargs -L 1 -P "$(nproc)" tools/fuzz.sh one
