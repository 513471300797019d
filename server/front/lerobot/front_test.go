package lerobot

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/front"
)

// After its connection has ended, a client is ended in time, even if the next client has the same address.
func TestAnAddressIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Front{to: new(front.Gateway), clients: map[string]*client{}, ended: map[string]*client{}}
		first := newClient(f, "h:1")
		first.view = new(view)
		for _, f.clients["h:1"] = range []*client{first, newClient(f, "h:1")} {
			f.disconnected("h:1")
			time.Sleep(returnTime * 3 / 4)
		}
		rttest.Want(t, f.Ended(), 1, "clients, of which the first timer ended none")
		rttest.Want(t, first.viewed(), nil, "view of the first client")
		time.Sleep(returnTime)
		rttest.Want(t, f.Ended(), 0, "clients after both timers")
	})
}
