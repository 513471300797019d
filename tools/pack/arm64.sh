#!/bin/sh
# Builds the programs for arm64, and runs unit tests built for arm64 under QEMU's user emulation, on
# Debian's arm64 libc. With "short" only tests of pure Go: nothing is downloaded. Tests of real time are
# left out, as are those that start their own binary again, which the kernel does not execute here: after
# a refused execve the emulator hangs in the next fork.
cd "$(dirname "$0")/../.."
. tools/pack/common.sh
tools/setup.sh arm64

cgo=0 libc=/nonexistent packages='./rt ./servo/packet ./chunk ./wire' out=$PWD/dist/programs/arm64
mkdir -p "$out"
if [ "${1:-}" != short ]; then
	ARCHS=arm64 tools/pack/build.sh
	debian arm64 libc6 "$PWD/.cache/libc6-arm64"
	cgo=1 libc=$PWD/.cache/libc6-arm64/all packages="$packages ./jpeg"
fi
failed=
for package in $packages; do
	test=$out/$(basename "$package").test
	began=$(date +%s)
	CGO_ENABLED=$cgo GOARCH=arm64 CC=$out/cc CGO_CFLAGS="-O2 -I$PWD/.cache/turbojpeg-arm64" \
		CGO_LDFLAGS="-L$PWD/.cache/turbojpeg-arm64" go test -c -o "$test" "$package"
	built=$(date +%s)
	(cd "$package" && EDGERT_EMULATED=1 EDGERT_REAL_TIME=later timeout 300 \
		qemu-aarch64-static -L "$libc" "$test" -test.short -test.v) >"$test.log" 2>&1 || failed="$failed $test.log"
	printf 'arm64 %s: %s passed, %s skipped, %s failed; built in %s s, ran %s s\n' "$package" \
		"$(grep -c '^--- PASS' "$test.log")" "$(grep -c '^--- SKIP' "$test.log")" "$(grep -c '^--- FAIL' "$test.log")" \
		"$((built - began))" "$(($(date +%s) - built))"
done
[ -z "$failed" ] || { say "failed, see$failed"; exit 1; }
