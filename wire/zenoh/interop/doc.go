// Package interop contains only tests of our transport against the official one, in both directions
// and in every position that either can have in a network. The official side is eclipse-zenoh's
// Python wheel (package zenohtest), a thin layer over the Rust implementation that routers are made
// of.
//
// `make interop` runs them over two versions and names every case. Elsewhere they run over the
// installed version, and are skipped where it is missing.
package interop
