package rttest

import (
	"io"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
)

// Each check fails a test with another value or error than the wanted one, and no other test.
func TestChecksFailTheTest(t *testing.T) {
	absent := exit.Errorf(exit.Absent, "no server: %w", io.EOF)
	for _, tt := range []struct {
		name  string
		check func(testing.TB)
		want  bool
	}{
		{"Want", func(t testing.TB) { Want(t, 1, 1, "x") }, false},
		{"Want of another", func(t testing.TB) { Want(t, "a", "b", "x(%d)", 1) }, true},
		{"Fails", func(t testing.TB) { Fails(t, Err(0, absent), "no", "server") }, false},
		{"Fails without an error", func(t testing.TB) { Fails(t, nil) }, true},
		{"Fails without a word", func(t testing.TB) { Fails(t, absent, "no", "robot") }, true},
		{"FailsAs", func(t testing.TB) { FailsAs(t, absent, io.EOF, "no server") }, false},
		{"FailsAs another", func(t testing.TB) { FailsAs(t, absent, io.ErrNoProgress) }, true},
		{"FailsAs without a word", func(t testing.TB) { FailsAs(t, absent, io.EOF, "robot") }, true},
		{"Ends", func(t testing.TB) { Ends(t, absent, exit.Absent) }, false},
		{"Ends well", func(t testing.TB) { Ends(t, nil, exit.Clean) }, false},
		{"Ends with another code", func(t testing.TB) { Ends(t, absent, exit.Fault) }, true},
		{"Ends without a word", func(t testing.TB) { Ends(t, absent, exit.Absent, "robot") }, true},
	} {
		r := &recorded{TB: t}
		if tt.check(r); r.failed != tt.want {
			t.Errorf("%s: failed = %v, want %v", tt.name, r.failed, tt.want)
		}
	}
}

// The message has the value's name, the value and the wanted one.
func TestWantNamesTheValue(t *testing.T) {
	r := &recorded{TB: t}
	if Want(r, "a", "b", "x(%d)", 1); r.text != `x(1) = "a", want "b"` {
		t.Error(r.text)
	}
	if Want(r, 1, 2, "n"); r.text != "n = 1, want 2" {
		t.Error(r.text)
	}
}
