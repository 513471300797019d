package edge

import "time"

// learnPace adapts the limits of the run to the server's pace. inferenceMs is the inference time in
// an answer, and rtt the round trip of that answer. The inference took rtt at most, so rtt replaces
// a larger or missing inferenceMs. With rtt 0 there is no new answer.
//
//rt:noalloc
func (c *control) learnPace(inferenceMs float64, rtt time.Duration) {
	if rtt > 0 {
		whole := float64(rtt) / float64(time.Millisecond)
		if !(inferenceMs > 0) {
			inferenceMs = whole
		}
		c.inferences.Add(min(inferenceMs, whole))
	}
	p := c.inferences.Learn(c.in.Announced())
	if c.inferences.Any() {
		c.out.SetPace(p)
	}
	if !c.patience.FixedAge() {
		c.core.MaxAge = c.patience.Age(p)
	}
	if c.inferences.Known() && c.stats.actions.Load() == 0 && c.patience.Never(p) {
		c.out.TooSlow.Store(true)
	}
}
