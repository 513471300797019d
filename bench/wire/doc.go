// Package wire measures how fast messages travel: our Zenoh beside the
// official one, in Rust and in Python, and beside a plain TCP echo.
//
// On a shared machine the same program takes 40 us in one minute and 260 us in
// the next, so a figure alone has no meaning. All subjects therefore live at the
// same time, two processes each, and take turns: a round asks every subject for
// some round trips of every size, the next round in another order. What counts
// is the ratio of two subjects in the same round.
//
// A subject is measured directly, where one end listens and the other dials,
// and through a router, one official router for all of them. Both ends of a
// pair are the same implementation; each end is a program with the same four
// arguments and the same two commands (end.go), so that the timing code is the
// subject's own language.
package wire
