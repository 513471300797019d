package lerobot

import (
	"context"
	"slices"
	"time"

	"github.com/edge-rt/edge-rt/server/front"
)

// These names let tests in package lerobot_test use internals. The tests are in another package because they import
// package server, which imports this package.
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

// Call answers a call without an argument, and returns how many clients have a connection afterwards.
func (f *Front) Call(ctx context.Context, path string) int {
	_, _ = f.call(ctx, path, nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.clients)
}
