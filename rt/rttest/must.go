package rttest

// test is a testing.TB, or rapid's.
type test interface {
	Helper()
	Fatal(args ...any)
}

// Must returns the result of a call in the arrangement of a test, which the test ends at if the call failed:
//
//	data := rttest.Must(os.ReadFile(path))(t)
func Must[T any](v T, err error) func(test) T {
	return func(t test) T {
		t.Helper()
		Do(t, err)
		return v
	}
}

// Do ends the test at a call without a result that failed.
func Do(t test, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// OrPanic is Must where no test is at hand.
func OrPanic[T any](v T, err error) T {
	PanicOn(err)
	return v
}

// PanicOn is Do where no test is at hand.
func PanicOn(err error) {
	if err != nil {
		panic(err)
	}
}
