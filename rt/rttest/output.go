package rttest

import (
	"strings"
	"sync"
)

// Output collects the output of several threads, or of a program. The zero value is empty.
type Output struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

// Write appends p; any thread may call it.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String returns all output so far; any thread may call it.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
