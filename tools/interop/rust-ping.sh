#!/bin/sh
# Builds bin/rust-ping, the official Zenoh that bench wire measures against (cargo, 5 minutes).
set -eu
cd "$(dirname "$0")/../.."
command -v cargo >/dev/null || {
	echo 'cargo is missing: install Rust from https://rustup.rs' >&2
	exit 1
}
mkdir -p bin
cargo build -q --release --locked --manifest-path tools/interop/rust-ping/Cargo.toml --target-dir bin/rust
cp bin/rust/release/rust-ping bin/rust-ping
