// Package zenohgo implements wire.Session with Eclipse's own Go binding, which needs the C library
// libzenohc. It is for sites that install the library and want its other transports, such as QUIC
// or shared memory. It is built with the tag zenohc only; without the tag the package is empty and
// needs no library.
//
// It obeys the same contract (wire/zenoh/sessiontest), except for the limits of the binding: PutLatest does the same as
// Put, because the queue is inside the library. The package allocates one object for each sent message, and at least
// two for each received one.
//
// docs/zenoh.md explains how to build the library and run the contract.
package zenohgo
