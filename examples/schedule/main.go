// Command schedule plays one second of a robot with one joint at 30 actions per second. The policy answers after 200 ms
// with chunks of 16 actions. The command prints where each action comes from.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/rt"
)

const (
	fps     = 30
	horizon = 16
	answer  = 6 // ticks from a request to its chunk
)

func main() {
	plan, err := chunk.New(chunk.Config{
		Schedule: "drtc",
		Horizon:  horizon,
		DOF:      1,
		FPS:      fps,
		SMin:     4,
		Epsilon:  1,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "schedule:", err)
		os.Exit(1)
	}
	ask := chunk.NewAsk(horizon, 1)
	arrives := -1 // tick at which the chunk under way arrives
	for tick := range fps {
		now := rt.Instant(time.Duration(tick) * time.Second / fps)
		action, _, _ := plan.Pop(now, time.Second)
		if tick == arrives {
			result := plan.OnChunk(now, policy(&ask))
			fmt.Printf("tick %2d  chunk of request %d %v, %d of its actions are over\n", tick, ask.Key, result.Outcome,
				result.Delay)
		}
		if plan.OnTick(now, []float32{0}, &ask) {
			arrives = tick + answer
		}
		if len(action) == 0 {
			fmt.Printf("tick %2d  no action\n", tick)
			continue
		}
		from := plan.Last()
		fmt.Printf("tick %2d  action %2.0f, row %d of request %d\n", tick, action[0], from.Index, from.Seq)
	}
}

// policy returns a chunk in which each row's action is the number of its step.
func policy(ask *chunk.Ask) *chunk.Chunk {
	rows := make([]float32, horizon)
	for i := range rows {
		rows[i] = float32(ask.Step) + 1 + float32(i)
	}
	return &chunk.Chunk{
		Key:   ask.Key,
		Rows:  horizon,
		DOF:   1,
		Robot: rows,
		Prov:  chunk.Provenance{Seq: uint64(ask.Key)},
	}
}
