package rttest

import (
	"errors"
	"fmt"
	"testing"
)

func TestSays(t *testing.T) {
	for _, tt := range []struct {
		err   error
		words []string
		want  bool
	}{
		{nil, nil, false},
		{nil, []string{""}, false},
		{errors.New("got 3, want 2"), nil, true},
		{errors.New("got 3, want 2"), []string{"got 3", "want 2"}, true},
		{errors.New("got 3, want 2"), []string{"got 3", "want 1"}, false},
	} {
		if got := Says(tt.err, tt.words...); got != tt.want {
			t.Errorf("Says(%v, %q) = %v, want %v", tt.err, tt.words, got, tt.want)
		}
	}
}

var sink []byte

// NoAllocs fails a test whose function allocates, and no other test.
func TestNoAllocs(t *testing.T) {
	for want, f := range map[bool]func(){true: func() { sink = make([]byte, 1<<10) }, false: func() {}} {
		r := &recorded{TB: t}
		if NoAllocs(r, "%v allocations", 10, f); r.failed != want {
			t.Errorf("failed = %v, want %v", r.failed, want)
		}
	}
}

type recorded struct {
	testing.TB
	failed bool
	text   string
}

func (r *recorded) Errorf(format string, args ...any) {
	r.failed = true
	r.text = fmt.Sprintf(format, args...)
}
