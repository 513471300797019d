package manifest

import (
	"fmt"

	"edgert/internal/bytesize"
	"edgert/wire/zenoh"
)

// Bounds of memory, and what the transport gets of it at most.
const (
	memoryMin         = 64 << 20
	memoryMax         = 1 << 40
	transportFraction = 2
)

// parseSize reads a size such as 512MiB.
func parseSize(text string) (bytes int64, err error) {
	n, ok := bytesize.Parse(text, "KiB", "MiB", "GiB", "KB", "MB", "GB")
	if !ok || !(n >= 0 && n <= memoryMax) {
		return 0, fmt.Errorf("got '%s', want a number and a unit, such as 512MiB or 2GiB, at most 1024GiB", text)
	}
	return int64(n), nil
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
