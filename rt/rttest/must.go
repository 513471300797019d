package rttest

// Must returns the result of a call in the arrangement of a test, and panics if the call failed: the
// stack names the place.
func Must[T any](v T, err error) T {
	Do(err)
	return v
}

// Do is Must for a call without a result.
func Do(err error) {
	if err != nil {
		panic(err)
	}
}
