// Package network is which Zenoh this build has: ours, or with the tag zenohc
// Eclipse's C library. Both take the same configuration.
package network
