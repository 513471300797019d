package rt

// SetAcquire replaces the loop's request to the kernel by a function of the test.
func (l *Loop) SetAcquire(acquire func(cpu int) Grant) { l.acquire = acquire }

// SetYield replaces the yield ahead of the deadline, so that a test can observe it.
func (l *Loop) SetYield(yield func()) { l.yield = yield }

// Panics reports whether f panics.
func Panics(f func()) (panics bool) {
	defer func() { panics = recover() != nil }()
	f()
	return false
}
