package manifest

import (
	"fmt"
	"strconv"
	"strings"

	"edgert/wire/zenoh"
)

// Bounds of memory, and what the transport gets of it at most.
const (
	memoryMin         = 64 << 20
	memoryMax         = 1 << 40
	transportFraction = 2
)

// units are those of memory, the longest names first.
var units = []struct {
	name  string
	bytes float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}}

// parseSize reads a size such as 512MiB.
func parseSize(text string) (bytes int64, err error) {
	for _, u := range units {
		number, found := strings.CutSuffix(text, u.name)
		if !found {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(n >= 0) || n*u.bytes > memoryMax {
			break
		}
		return int64(n * u.bytes), nil
	}
	return 0, fmt.Errorf("got '%s', want a number and a unit, such as 512MiB or 2GiB, at most 1024GiB", text)
}

// MemoryBytes is the bound on all that robots can make the server keep.
func (c *Config) MemoryBytes() int64 {
	n, err := parseSize(c.Memory)
	if err != nil {
		panic(err) // Check has looked
	}
	return n
}

// TransportMemory is the part of it that the links have: their buffers, and what
// their remotes declare.
func (c *Config) TransportMemory() int64 {
	limit, _ := c.Sessions()
	return min(zenoh.DefaultMemory+int64(limit)*SessionMemory, c.MemoryBytes()/transportFraction)
}

// RobotMemory is the rest: sessions, observations, captures.
func (c *Config) RobotMemory() int64 { return c.MemoryBytes() - c.TransportMemory() }
