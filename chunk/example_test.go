package chunk_test

import (
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/rt"
)

// A robot with one joint runs at 10 actions per second on a policy that answers after three ticks
// with four actions.
func ExampleDiscipline() {
	plan, err := chunk.New(chunk.Config{Schedule: "drtc", Horizon: 4, DOF: 1, FPS: 10, SMin: 1, Epsilon: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	ask := chunk.NewAsk(4, 1)
	for tick := range 6 {
		now := rt.Instant(time.Duration(tick) * 100 * time.Millisecond)
		action, _, _ := plan.Pop(now, time.Second)
		if tick == 3 {
			answer := chunk.Chunk{Key: ask.Key, Rows: 4, DOF: 1, Robot: []float32{10, 11, 12, 13}}
			fmt.Println("tick 3:", plan.OnChunk(now, &answer).Outcome)
		}
		if plan.OnTick(now, []float32{0}, &ask) {
			fmt.Printf("tick %d: request %d for step %d, conditioned on %d actions\n", tick, ask.Key, ask.Step,
				ask.Rows)
		}
		fmt.Printf("tick %d: action %v, %d left\n", tick, action, plan.View().Size)
	}
	// Output:
	// tick 0: request 1 for step 0, conditioned on 0 actions
	// tick 0: action [], 0 left
	// tick 1: action [], 0 left
	// tick 2: action [], 0 left
	// tick 3: joined
	// tick 3: action [], 4 left
	// tick 4: request 2 for step 1, conditioned on 2 actions
	// tick 4: action [10], 3 left
	// tick 5: action [11], 2 left
}
