// Package interop contains only tests of our transport against the official one, in both directions and in every
// position that either can have in a network. The official side is eclipse-zenoh's Python wheel (package zenohtest), a
// thin layer over the Rust implementation of which official routers consist.
//
// `make interop` runs these tests with two versions and names every case. Other runs use the installed version, and
// skip the tests if no version is installed.
package interop
