package lerobot

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/front"
)

// A client whose connection ends is ended in time also when an earlier client had the same address.
func TestAnAddressIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Front{to: new(front.Gateway), clients: map[string]*client{}, ended: map[string]*client{}}
		for range 2 {
			clear(f.ended) // the first client continues at another address
			f.clients["h:1"] = newClient(f, "h:1")
			f.disconnected("h:1")
			time.Sleep(returnTime * 3 / 4)
		}
		rttest.Want(t, f.Ended(), 1, "clients, of which the first timer ended none")
		time.Sleep(returnTime)
		rttest.Want(t, f.Ended(), 0, "clients after both timers")
	})
}
