#!/bin/sh
# Runs every fuzz target of the module for the time given, one after the other.
# The go command sometimes reports its own end of fuzzing time as a failure
# ("context deadline exceeded", https://go.dev/issue/75804) when a worker is
# busy at that moment. Such a run has found nothing and is made again, twice at
# most; a real finding always names its failing input or prints a panic.
set -eu
cd "$(dirname "$0")/.."
time=${1:-10s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fuzz() { # package target
	for try in 1 2 3; do
		go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" "$1" >"$log" 2>&1 && return 0
		grep -q 'context deadline exceeded' "$log" || return 1
		! grep -Eq 'Failing input written|panic|hung or terminated' "$log" || return 1
		printf 'the fuzzer missed its own deadline: once more\n'
	done
	return 1
}

go list -f '{{$p := .ImportPath}}{{range .TestGoFiles}}{{$p}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$p}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}' ./... |
	while read -r package file; do
		[ -n "$file" ] || continue
		sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | while read -r target; do
			echo "$package $target"
		done
	done | sort -u | while read -r package target; do
	printf 'fuzz %s %s\n' "$package" "$target"
	fuzz "$package" "$target" || { cat "$log"; exit 1; }
	tail -n 1 "$log"
done
