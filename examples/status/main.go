// Command status asks each policy server at an endpoint for its status, as LeRobot's clients do before they open a
// session, and prints the answers.
//
//	bin/lean-server --manifest testdata/demo/server.yaml &
//	go run ./examples/status tcp/127.0.0.1:7447
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "status:", err)
		os.Exit(1)
	}
}

func run(endpoints []string) error {
	if len(endpoints) == 0 {
		return fmt.Errorf("got no endpoint, want one such as tcp/127.0.0.1:7447")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	session, err := zenoh.Open(ctx, zenoh.Config{Connect: endpoints})
	if err != nil {
		return err
	}
	defer session.Close()
	replies, err := session.Get(ctx, wire.StatusKey(wire.KeyRoot+"/*/*/*"), nil, 2*time.Second)
	if err != nil {
		return err
	}
	for _, reply := range replies {
		var status wire.Status
		if err := wire.Parse(&status, reply.Payload); err != nil {
			fmt.Printf("%s: %v\n", reply.Key, err)
			continue
		}
		fmt.Printf("%s: chunks of %d actions at %v Hz, %d of %d sessions, on %s\n", reply.Key, status.ChunkSize,
			status.TrainedFPS, status.ActiveSessions, status.MaxSessions, status.Device)
	}
	fmt.Println(len(replies), "replies")
	return nil
}
