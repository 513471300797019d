package stage

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// logMax bounds the stored part of an output.
const logMax = 16 << 20

// poll is the interval at which Until checks its condition.
const poll = 5 * time.Millisecond

// Line is a complete line of a program's output.
type Line struct {
	At   time.Time // time at which its last byte came
	Text string
}

// Log keeps the beginning of a program's output, with the time of each line. The zero value is empty.
// Any goroutine may call its methods.
type Log struct {
	mu    sync.Mutex
	text  bytes.Buffer // guarded by mu
	lines []Line       // guarded by mu: the complete lines
	rest  int          // guarded by mu: index in text of the beginning of the incomplete line
}

// Write appends output. It always reports that it has written all bytes.
func (l *Log) Write(p []byte) (int, error) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p[:min(len(p), logMax-l.text.Len())])
	for {
		line, _, whole := bytes.Cut(l.text.Bytes()[l.rest:], []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.lines = append(l.lines, Line{now, string(line)})
		l.rest += len(line) + 1
	}
}

// String returns the output so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Lines returns the complete lines that match.
func (l *Log) Lines(pattern *regexp.Regexp) []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.lines), func(line Line) bool { return !pattern.MatchString(line.Text) })
}

// Tail returns the last n lines, each with the seconds and milliseconds of its time.
func (l *Log) Tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var text strings.Builder
	for _, line := range l.lines[max(0, len(l.lines)-n):] {
		fmt.Fprintf(&text, "%s %s\n", line.At.Format("05.000"), line.Text)
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Until calls the function ok until ok returns true or the limit is over, and returns the last result of ok.
func Until(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); !ok(); time.Sleep(poll) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
