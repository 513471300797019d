// Package faults runs every way of scheduling chunks through the same faults and
// compares what came of it.
//
// A Scenario is a script of faults (wire/faulty) drawn per seed and tick, so that
// all contenders meet identical ones: figures are compared in pairs, episode by
// episode. A Contender is a discipline of package chunk with its settings. Play
// takes every contender through every scenario for the same seeds in virtual
// time (internal/fleet): the loop, the discipline, the policy, the pictures and
// the messages are the real ones, clock, bus and network are numbers. Live
// repeats some of it on the real edge-rt and lean-server.
//
// The Report goes out as a table, as JSON, as one CSV row per tick with the
// columns of the DRTC program, and as a page that loads nothing.
package faults
