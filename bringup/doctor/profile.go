package doctor

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
	"github.com/edge-rt/edge-rt/edge/capture"
	"github.com/edge-rt/edge-rt/edge/uplink"
)

const (
	framesOfJitter = 2  // actions kept beyond the measured latency
	farQuality     = 80 // JPEG quality on a slow link
	wiredMS        = 20 // round trip, p99, that a cable stays below
	wanMS          = 40 // round trip, p50, that only a far network exceeds
)

// network returns the name of the edge-rt profile (--profile) that fits the measured link.
func (l *Link) network() string {
	switch {
	case l.P50 > wanMS:
		return "wan"
	case l.P99 > wiredMS || l.Lost > 0:
		return "wifi"
	}
	return "wired"
}

// Profile is the proposed setting of a run.
type Profile struct {
	Network     string  `json:"network"`         // --profile: wired, wifi or wan
	FPS         float64 `json:"fps"`             // Hz, ticks per second that bus and policy allow
	BufferMS    float64 `json:"buffer_ms"`       // ms, how long the reserve of actions lasts
	SMin        int     `json:"s_min,omitempty"` // actions run before the next request; absent: chunks are too short
	JPEGQuality int     `json:"jpeg_quality"`    // of pictures
}

// propose returns the profile that fits the measurements. p is nil if there are no plausible measurements of a server.
// flags are the flags of a run that differ from their defaults.
func (d *doctor) propose() (p *Profile, flags []string) {
	most := d.rate()
	if d.busP99 > 0 {
		most = math.Max(1, math.Floor(busShare/d.busP99.Seconds()))
	}
	if most < d.rate() {
		flags = append(flags, fmt.Sprintf("--fps %d", int(most)), "--fps-mismatch allow")
	}
	l := d.link
	if l == nil || l.Queries == l.Lost || !l.plausible() {
		return nil, flags
	}
	fps := cmp.Or(l.FPS, d.rate())
	latency := (l.P99 + l.InferenceMS) / 1e3
	steps := int(math.Ceil(latency*fps)) + framesOfJitter
	buffer := time.Duration(float64(steps) / fps * float64(time.Second)).Round(10 * time.Millisecond)
	p = &Profile{
		Network:     l.network(),
		FPS:         fps,
		BufferMS:    buffer.Seconds() * 1e3,
		JPEGQuality: capture.DefaultQuality,
	}
	if d.busP99 > 0 {
		p.FPS = min(fps, most)
	}
	if l.P99 > farMS {
		p.JPEGQuality = farQuality
	}
	if steps >= l.ChunkSize {
		return p, append(flags, "--schedule async") // no chunk lasts until the next one: the arm has to hold at times
	}
	// The run requests the next chunk so early that the answer comes before the actions of the present chunk end.
	sMin := l.ChunkSize - steps - int(math.Ceil(float64(l.Lost)/float64(l.Queries)*float64(steps)))
	p.SMin = max(min(sMin, chunk.DefaultSMin(l.ChunkSize)), 1)
	if p.SMin < chunk.DefaultSMin(l.ChunkSize) {
		flags = append(flags, fmt.Sprintf("--s-min %d", p.SMin))
	}
	flags = append(flags, "--profile "+p.Network)
	if limits, err := uplink.ProfileNamed(p.Network); err == nil && 4*buffer > limits.RequestTimeout {
		flags = append(flags, fmt.Sprintf("--request-timeout %v", 4*buffer))
	}
	if p.JPEGQuality != capture.DefaultQuality {
		flags = append(flags, fmt.Sprintf("--jpeg-quality %d", p.JPEGQuality))
	}
	return p, flags
}
