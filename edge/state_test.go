package edge

import "testing"

// Every pair of the table, written a second time as the sentences a reader
// would use, so that a slip in either shows.
func TestStateAfterEveryPair(t *testing.T) {
	want := func(s State, c Cause) State {
		switch {
		case s == Dead, c == Offline, c == Refused:
			return Dead // for good, from anywhere
		case c == Merged:
			return Streaming // a chunk heals everything but death
		case c == LinkLost:
			return Reconnecting
		case s == Reconnecting && c == Opened:
			return Connecting
		case s == Reconnecting, s == Connecting && c != BusSilent:
			return s // already waiting for the server
		case c == BusSilent:
			return Stalled
		case c == Starved && (s == Streaming || s == Degraded):
			return Stalled
		case c == Quiet && s == Streaming:
			return Degraded
		default:
			return s
		}
	}
	for s := range numStates {
		for c := range numCauses {
			if got := s.After(c); got != want(s, c) {
				t.Errorf("%v.After(%d) = %v, want %v", s, c, got, want(s, c))
			}
		}
	}
}

func TestStateZeroValueIsDead(t *testing.T) {
	var s State
	if s != Dead || s.String() != "DEAD" {
		t.Errorf("zero State = %v, want DEAD", s)
	}
}
