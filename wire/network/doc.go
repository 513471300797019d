// Package network is this build's Zenoh: package wire/zenoh, or with the tag zenohc Eclipse's C
// library. Both take the same configuration.
package network
