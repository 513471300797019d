package doctor

import (
	"fmt"
	"math"
	"time"

	"github.com/edge-rt/edge-rt/edge/uplink"
)

const (
	framesOfJitter = 2  // actions kept beyond the measured latency
	farQuality     = 80 // JPEG quality on a slow link
	wiredMS        = 20 // round trip, p99, that a cable stays below
	wanMS          = 40 // round trip, p50, that only a far network exceeds
)

// network names the profile of edge-rt (--profile) for the measured link.
func (l *Link) network() string {
	switch {
	case l.P50 > wanMS:
		return "wan"
	case l.P99 > wiredMS || l.Lost > 0:
		return "wifi"
	}
	return "wired"
}

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
	name := l.network()
	flags = append(flags, "--profile "+name)
	buffer := time.Duration(float64(steps) / fps * float64(time.Second)).Round(10 * time.Millisecond)
	if p, err := uplink.ProfileNamed(name); err == nil && 4*buffer > p.RequestTimeout {
		flags = append(flags, fmt.Sprintf("--request-timeout %v", 4*buffer))
	}
	if l.P99 > farMS {
		flags = append(flags, fmt.Sprintf("--jpeg-quality %d", farQuality))
	}
	return flags
}
