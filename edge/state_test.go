package edge

import (
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: the table agrees with a second version of it, written as conditions.
func TestStateAfterEveryPair(t *testing.T) {
	want := func(s state, c cause) state {
		switch {
		case s == stateDead, c == causeOffline, c == causeRefused:
			return stateDead // final, from every state
		case c == causeMerged:
			return stateStreaming // a chunk leads out of every state except Dead
		case c == causeLinkLost:
			return stateReconnecting
		case s == stateReconnecting && c == causeOpened:
			return stateConnecting
		case s == stateReconnecting, s == stateConnecting && c != causeBusSilent && c != causeHeld:
			return s // the run is already waiting for the server
		case c == causeBusSilent, c == causeHeld:
			return stateStalled
		case c == causeStarved && (s == stateStreaming || s == stateDegraded):
			return stateStalled
		case c == causeQuiet && s == stateStreaming:
			return stateDegraded
		default:
			return s
		}
	}
	for s := range numStates {
		for c := range numCauses {
			rttest.Want(t, s.after(c), want(s, c), "%v.After(%d)", s, c)
		}
	}
}
