package zenoh_test

import (
	"context"
	"fmt"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// A server listens, a robot dials the server and sends one observation.
func Example() {
	ctx := context.Background()
	server := rttest.OrPanic(zenoh.Open(ctx, zenoh.Config{Listen: []string{"tcp/127.0.0.1:0"}}))
	defer server.Close()
	got := make(chan string)
	server.Subscribe("@lerobot/*/obs", func(s wire.Sample) { got <- s.Key + ": " + string(s.Payload) })

	robot := rttest.OrPanic(zenoh.Open(ctx, zenoh.Config{Connect: server.(*zenoh.Session).Endpoints()}))
	defer robot.Close()
	observations := rttest.OrPanic(robot.Publisher("@lerobot/r1/obs", wire.ObservationQoS))
	observations.PutLatest([]byte("a picture"), nil)
	fmt.Println(<-got)
	// Output: @lerobot/r1/obs: a picture
}
