package program

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
)

// Output is a program's standard output. It keeps the error of the first failed write for Report, because
// most callers that print text ignore the error.
type Output struct {
	to io.Writer

	mu  sync.Mutex
	err error // guarded by mu
}

// NewOutput returns an Output that writes to a file.
func NewOutput(to io.Writer) *Output { return &Output{to: to} }

func (o *Output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// Failed returns the error of the first failed write. It returns nil if the reader of the pipe had
// ended, as in program | head.
func (o *Output) Failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil || errors.Is(o.err, syscall.EPIPE) {
		return nil
	}
	return fmt.Errorf("standard output: %w", o.err)
}
