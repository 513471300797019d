package zenoh

import (
	"fmt"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Goal: a repeated text is logged at growing intervals, even if its digits differ. A new text, or the text of another
// endpoint, is logged at once, but the number of distinct texts is bounded.
func TestRepeats(t *testing.T) {
	r := repeats{}
	began := time.Now()
	var told []int
	for s := 1; s < 3600; s++ {
		now := began.Add(time.Duration(s) * time.Second)
		if r.due("tcp/10.0.0.1:7447", fmt.Errorf("port %d is closed", 40000+s), now) {
			told = append(told, s)
		}
	}
	rttest.Equal(t, told, []int{1, 11, 31, 71, 151, 311, 631, 1231, 1831, 2431, 3031}, "seconds of the log's lines")
	logged := 0
	for n := range 1000 {
		if r.due(fmt.Sprintf("tcp/10.0.0.%d:7447", n), fmt.Errorf("closed"), began) {
			logged++
		}
	}
	rttest.Want(t, logged, maxTexts, "new texts logged")
}
