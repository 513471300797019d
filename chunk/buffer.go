package chunk

import (
	"fmt"
	"time"
)

// buffer holds a time: the next request leaves when the remaining actions last no longer than this time.
type buffer struct {
	time  time.Duration
	trips *jacobsonKarels // measured round trips, from which observe computes time; nil: time stays constant
	slack float64         // seconds from the expected end of a round trip to the repeated request
}

func newBuffer(c *Config) buffer {
	if c.Buffer != AutoBuffer {
		return buffer{time: c.Buffer}
	}
	jk := &jacobsonKarels{alpha: defaultAlpha, beta: defaultBeta, k: defaultK}
	return buffer{defaultBuffer, jk, float64(c.Epsilon+1) / c.FPS}
}

//rt:noalloc
func (b *buffer) observe(rtt time.Duration) {
	if b.trips == nil {
		return
	}
	b.trips.observe(rtt.Seconds())
	needed := time.Duration((bufferTrips*b.trips.seconds() + b.slack) * float64(time.Second))
	b.time = min(max(needed, bufferLeast), bufferMost)
}

// autoBuffer is the text for AutoBuffer.
const autoBuffer = "auto"

// ParseBuffer converts the text of a time, or auto, to a value of Config.Buffer.
func ParseBuffer(text string) (time.Duration, error) {
	if text == autoBuffer {
		return AutoBuffer, nil
	}
	t, err := time.ParseDuration(text)
	if err != nil || t <= 0 || t > maxBuffer {
		return 0, fmt.Errorf("is %q, want %s, or a time above 0s and up to %v that exceeds the round trip, such as "+
			"500ms", text, autoBuffer, maxBuffer)
	}
	return t, nil
}
