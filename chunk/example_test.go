package chunk_test

import (
	"fmt"

	"edgert/chunk"
)

// Two chunks of three rows; the second was asked for before step 1 ran and
// arrives after it.
func ExampleSchedule() {
	s := chunk.NewSchedule(3, 1)
	merge := func(key, step int64, rows ...float32) {
		s.Merge(&chunk.Chunk{Key: key, Step: step, Rows: 3, DOF: 1, Robot: rows})
	}
	tick := func() {
		action, _, verdict := s.Pop(0, 0)
		fmt.Println(verdict, s.N(), action, "left:", s.Size())
	}
	tick()
	merge(1, s.NextStep(), 10, 11, 12)
	tick()
	asked := s.NextStep()
	tick()
	merge(2, asked, 21, 22, 23)
	tick()
	tick()
	tick()
	// Output:
	// empty -1 [] left: 0
	// ready 0 [10] left: 2
	// ready 1 [11] left: 1
	// ready 2 [22] left: 1
	// ready 3 [23] left: 0
	// empty 3 [] left: 0
}
