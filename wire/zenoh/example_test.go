package zenoh_test

import (
	"context"
	"fmt"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// A server listens, a robot dials it, and one observation crosses.
func Example() {
	ctx := context.Background()
	server, err := zenoh.Open(ctx, zenoh.Config{Listen: []string{"tcp/127.0.0.1:0"}})
	if err != nil {
		panic(err)
	}
	defer server.Close()
	got := make(chan string)
	server.Subscribe("@lerobot/*/obs", func(s wire.Sample) { got <- s.Key + ": " + string(s.Payload) })

	robot, err := zenoh.Open(ctx, zenoh.Config{Connect: server.(*zenoh.Session).Endpoints()})
	if err != nil {
		panic(err)
	}
	defer robot.Close()
	observations, err := robot.Publisher("@lerobot/r1/obs", wire.ObservationQoS)
	if err != nil {
		panic(err)
	}
	observations.PutLatest([]byte("a picture"), nil)
	fmt.Println(<-got)
	// Output: @lerobot/r1/obs: a picture
}
