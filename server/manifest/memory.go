package manifest

import (
	"fmt"

	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// memoryMin and memoryMax bound the key memory. The transport gets at most 1/transportFraction of this memory.
const (
	memoryMin         = 64 << 20
	memoryMax         = 1 << 40
	transportFraction = 2
)

// parseSize parses a size such as 512MiB.
func parseSize(text string) (bytes int64, err error) {
	n, ok := userfile.ParseSize(text, "KiB", "MiB", "GiB", "KB", "MB", "GB")
	if !ok || !(n >= 0 && n <= memoryMax) {
		return 0, fmt.Errorf("got '%s', want a number and a unit, such as 512MiB or 2GiB, at most 1024GiB", text)
	}
	return int64(n), nil
}

// memoryBytes returns the limit of the memory that robots can take.
func (c *Config) memoryBytes() int64 {
	n, err := parseSize(c.Memory)
	if err != nil {
		panic(err) // Check has parsed the text before
	}
	return n
}

// WorkerMemory returns model.memory_limit in bytes; 0: the runtime's default.
func (c *Config) WorkerMemory() (bytes int64, err error) {
	if c.Model.MemoryLimit == "" {
		return 0, nil
	}
	return parseSize(c.Model.MemoryLimit)
}

// TransportMemory returns the part of memoryBytes that the links may take, for their buffers and for the declarations
// of the robots at their other ends.
func (c *Config) TransportMemory() int64 {
	limit, _ := c.Sessions()
	return min(zenoh.DefaultMemory+int64(limit)*sessionMemory, c.memoryBytes()/transportFraction)
}

// RobotMemory returns the other part of memoryBytes, for sessions, observations, captures and the tokens of other
// servers.
func (c *Config) RobotMemory() int64 { return c.memoryBytes() - c.TransportMemory() }
