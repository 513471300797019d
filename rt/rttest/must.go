package rttest

// test is the part of testing.TB that a rapid.T has, too.
type test interface {
	Helper()
	Fatal(args ...any)
}

// Must returns the result v of a call. If the call has failed, Must ends the test:
//
//	data := rttest.Must(os.ReadFile(path))(t)
func Must[T any](v T, err error) func(test) T {
	return func(t test) T {
		t.Helper()
		Do(t, err)
		return v
	}
}

// Do ends the test if err, the result of a call, is not nil.
func Do(t test, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// OrPanic does the same as Must in code without a testing.TB, such as TestMain: it panics instead.
func OrPanic[T any](v T, err error) T {
	PanicOn(err)
	return v
}

// PanicOn does the same as Do in code without a testing.TB, such as TestMain: it panics instead.
func PanicOn(err error) {
	if err != nil {
		panic(err)
	}
}

// Go calls f in a goroutine of its own, and returns the channel of f's result.
func Go(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}
