package rttest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/internal/exit"
)

// Want fails the test if got differs from want. The format and args name the value, such as "First(%v)".
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

// Equal does the same as Want for slices.
func Equal[T comparable](t testing.TB, got, want []T, format string, args ...any) {
	if !slices.Equal(got, want) {
		t.Helper()
		t.Errorf("%s = %+v, want %+v", fmt.Sprintf(format, args...), got, want)
	}
}

// Err returns the error of a call whose result the test does not need.
func Err[T any](_ T, err error) error { return err }

// Contains fails the test for each word that text lacks.
func Contains(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("got %s\nwant %q in it", text, w)
		}
	}
}

// Fails fails the test if err is nil, or its text lacks one of the words.
func Fails(t testing.TB, err error, words ...string) {
	if !Says(err, words...) {
		t.Helper()
		t.Errorf("%v, want an error with %q", err, words)
	}
}

// FailsAs fails the test if err neither is nor wraps the error want, or if its text lacks one of the words.
func FailsAs(t testing.TB, err, want error, words ...string) {
	if !errors.Is(err, want) || len(words) > 0 && !Says(err, words...) {
		t.Helper()
		t.Errorf("%v, want %v with %q", err, want, words)
	}
}

// Ends fails the test if err has another exit code than the parameter code, or its text lacks one of the words.
func Ends(t testing.TB, err error, code exit.Code, words ...string) {
	if exit.Of(err) != code || len(words) > 0 && !Says(err, words...) {
		t.Helper()
		t.Errorf("%v (code %d), want code %d and %q", err, exit.Of(err), code, words)
	}
}
