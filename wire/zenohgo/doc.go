// Package zenohgo is wire.Session on Eclipse's own Go binding, which needs the C
// library libzenohc: for sites that install it and want its other transports,
// such as QUIC or shared memory. It is built with the tag zenohc only; without
// it the package is empty and nothing needs the library.
//
// It obeys the same contract (wire/zenoh/contract), less what the binding cannot
// do: PutLatest is Put, for the queue is inside the library. It allocates: a
// message put costs one, a message received two and more.
//
// docs/zenoh.md tells how to build the library and run the contract.
package zenohgo
