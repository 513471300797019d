package rttest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
)

// Want reports a value that is not the wanted one. The format and args name the value, such as "First(%v)".
func Want[T comparable](t testing.TB, got, want T, format string, args ...any) {
	if got == want {
		return
	}
	t.Helper()
	verb := "%+v"
	if _, ok := any(got).(string); ok {
		verb = "%q"
	}
	t.Errorf("%s = "+verb+", want "+verb, fmt.Sprintf(format, args...), got, want)
}

// Err returns the error of a call whose result the test does not need.
func Err[T any](_ T, err error) error { return err }

// Fails reports a missing error, or one whose text lacks one of these words.
func Fails(t testing.TB, err error, words ...string) {
	if !Says(err, words...) {
		t.Helper()
		t.Errorf("%v, want an error with %q", err, words)
	}
}

// FailsAs reports an error that is not want and does not wrap it, or whose text lacks one of these words.
func FailsAs(t testing.TB, err, want error, words ...string) {
	if !errors.Is(err, want) || len(words) > 0 && !Says(err, words...) {
		t.Helper()
		t.Errorf("%v, want %v with %q", err, want, words)
	}
}

// Ends reports an error with another exit code, or whose text lacks one of these words.
func Ends(t testing.TB, err error, code exit.Code, words ...string) {
	if exit.Of(err) != code || len(words) > 0 && !Says(err, words...) {
		t.Helper()
		t.Errorf("%v (code %d), want code %d and %q", err, exit.Of(err), code, words)
	}
}
