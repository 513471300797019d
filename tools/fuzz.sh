#!/bin/sh
# Runs every fuzz target of the module for the time given, one after the other.
set -eu
cd "$(dirname "$0")/.."
time=${1:-10s}
go list -f '{{$p := .ImportPath}}{{range .TestGoFiles}}{{$p}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$p}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}' ./... |
while read -r package file; do
	[ -n "$file" ] || continue
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | while read -r target; do
		echo "$package $target"
	done
done | sort -u | while read -r package target; do
	printf 'fuzz %s %s\n' "$package" "$target"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" >/tmp/fuzz.$$ 2>&1 || {
		cat /tmp/fuzz.$$
		rm -f /tmp/fuzz.$$
		exit 1
	}
	tail -n 1 /tmp/fuzz.$$
	rm -f /tmp/fuzz.$$
done
