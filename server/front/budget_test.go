package front_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/front"
)

// Property: whatever the clients take and release, they never hold more than the budget, the counts are exact, and no
// client is refused its share.
func TestBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const places, share = 5, 100
		b := front.NewBudget(2*places*share, places)
		var held [places]int
		var clients [places]*front.Held
		for i := range clients {
			clients[i] = b.Client()
		}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			i := rapid.IntRange(0, places-1).Draw(t, "client")
			n := rapid.IntRange(0, 400).Draw(t, "bytes")
			if rapid.Bool().Draw(t, "release") {
				n = min(n, held[i])
				clients[i].Release(n)
				held[i] -= n
				continue
			}
			err := clients[i].Take(n)
			if err == nil {
				held[i] += n
			} else if held[i]+n <= share || !errors.Is(err, front.ErrNoMemory) {
				t.Fatalf("%d bytes where the client holds %d: %v", n, held[i], err)
			}
			sum := 0
			for _, n := range held {
				sum += n
			}
			if b.Used() != int64(sum) || b.Used() > b.Limit() {
				t.Fatalf("%d bytes of %d are in use, want %d", b.Used(), b.Limit(), sum)
			}
		}
		for i, n := range held {
			clients[i].Release(n)
		}
		if b.Used() != 0 || clients[0].Take(share+places*share) != nil {
			t.Fatal("the budget is not free again")
		}
	})
	rttest.Fails(t, front.NewBudget(8<<20, 2).Client().Take(9<<20), "9.0 MiB more where this client "+
		"holds 0.0 KiB, its share is 2.0 MiB, and the clients of all fronts hold 0.0 KiB of 8.0 MiB")
}
