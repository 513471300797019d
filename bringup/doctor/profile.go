package doctor

import (
	"fmt"
	"math"
	"time"
)

const (
	framesOfJitter = 2  // actions kept beyond the measured latency
	farQuality     = 80 // JPEG quality on a slow link
)

// flags proposes flags of a run from the measurements.
func (d *doctor) flags() (flags []string) {
	if d.busP99 > 0 {
		most := busShare / d.busP99.Seconds()
		if most < d.rate() {
			flags = append(flags, fmt.Sprintf("--fps %d", int(most)), "--fps-mismatch allow")
		}
	}
	l := d.link
	if l == nil || l.Queries == l.Lost || l.ChunkSize == 0 {
		return flags
	}
	fps := l.FPS
	if fps == 0 {
		fps = d.rate()
	}
	latency := (l.P99 + l.InferenceMS) / 1e3
	steps := int(math.Ceil(latency*fps)) + framesOfJitter
	if steps >= l.ChunkSize {
		return append(flags, "--schedule async") // no chunk lasts until the next: hold times are unavoidable
	}
	// The next chunk is requested early enough that its answer comes before the actions end.
	sMin := l.ChunkSize - steps - int(math.Ceil(float64(l.Lost)/float64(l.Queries)*float64(steps)))
	if most := 2 * l.ChunkSize / 5; sMin < most {
		flags = append(flags, fmt.Sprintf("--s-min %d", max(sMin, 1)))
	}
	buffer := time.Duration(float64(steps) / fps * float64(time.Second)).Round(10 * time.Millisecond)
	flags = append(flags, fmt.Sprintf("--request-timeout %v", max(5*time.Second, 4*buffer)))
	if l.P99 > farMS {
		flags = append(flags, fmt.Sprintf("--jpeg-quality %d", farQuality))
	}
	return flags
}
