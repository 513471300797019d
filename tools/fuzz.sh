#!/bin/sh
# Runs every fuzz target of the module for FUZZTIME, one target per core at once.
# The binary of a package is built once for all its targets.
# The minimisation of an interesting input is limited to a second: with several
# goroutines an input never covers the same code twice, and go test would try for
# a minute.
# Fuzzing sometimes reports its own end as a failure ("context deadline exceeded",
# https://go.dev/issue/75804) when a worker is busy at that moment. Such a run has
# found no failure and is repeated at most twice; a real finding always names its
# failing input or prints a panic.
set -eu
cd "$(dirname "$0")/.."

fuzz() { # package folder target
	log=$(mktemp)
	binary=$BINARIES/$(printf %s "$1" | tr / -).test
	for try in 1 2 3; do
		# In the package's folder, as in go test: it holds the seeds and the failing inputs.
		if (cd "$2" && "$binary" -test.run '^$' -test.parallel 1 -test.fuzz "^$3\$" -test.fuzztime "$FUZZTIME" -test.fuzzminimizetime 1s -test.fuzzcachedir "$FUZZCACHE/$1") >"$log" 2>&1; then
			printf 'fuzz %s %s: %s\n' "$1" "$3" "$(tail -n 2 "$log" | head -n 1)"
			rm -f "$log"
			return 0
		fi
		grep -q 'context deadline exceeded' "$log" || break
		! grep -Eq 'Failing input written|panic|hung or terminated' "$log" || break
		printf 'fuzz %s %s: the fuzzer missed its own deadline, once more\n' "$1" "$3"
	done
	printf 'fuzz %s %s failed:\n' "$1" "$3"
	cat "$log"
	rm -f "$log"
	return 255 # ends xargs
}

case ${1:-} in
one)
	fuzz "$2" "$3" "$4"
	exit
	;;
build)
	go test -c -fuzz=. -o "$BINARIES/$(printf %s "$2" | tr / -).test" "$2" || exit 255 # ends xargs
	exit
	;;
esac
FUZZTIME=${1:-10s}
BINARIES=$(mktemp -d)
FUZZCACHE=$(go env GOCACHE)/fuzz
export FUZZTIME BINARIES FUZZCACHE
trap 'rm -rf "$BINARIES"' EXIT
go list -f '{{$p := .ImportPath}}{{range .TestGoFiles}}{{$p}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$p}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}' ./... |
	while read -r package file; do
		[ -n "$file" ] || continue
		sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | while read -r target; do
			echo "$package $(dirname "$file") $target"
		done
	done | sort -u >"$BINARIES/targets"
cut -d' ' -f1 "$BINARIES/targets" | sort -u | xargs -L 1 -P "$(nproc)" tools/fuzz.sh build
xargs -L 1 -P "$(nproc)" tools/fuzz.sh one <"$BINARIES/targets"
