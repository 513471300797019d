package rt

// SetAcquire replaces the question to the kernel, so that a test can answer it.
func (l *Loop) SetAcquire(acquire func(cpu int) Grant) { l.acquire = acquire }
