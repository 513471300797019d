package lerobot

import (
	"context"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/server/front"
)

// The parts that tests read from outside, because package server imports this one.
const (
	Slack           = slack
	ObservationWait = observationWait
	RefusalWait     = refusalWait
)

func (f *Front) Address() string               { return f.Addr().String() }
func (f *Front) ReceiveWithin(d time.Duration) { f.patience = d }
func (f *Front) Counts() *front.Counts         { return f.to.Counts }
func (f *Front) Budget() *front.Budget         { return f.to.Budget }

func (f *Front) Ended() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ended)
}

// Names returns the clients with a session.
func (f *Front) Names() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.clients {
		c.calls.Lock()
		if c.robot != nil {
			names = append(names, c.robot.Name())
		}
		c.calls.Unlock()
	}
	slices.Sort(names)
	return names
}

// Call makes a call without an argument, and returns the number of clients with a connection.
func (f *Front) Call(ctx context.Context, path string) int {
	_, _ = f.call(ctx, path, nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.clients)
}
