package policy

// Mode says what the graph does with a prefix.
type Mode int64

const (
	// ModeFree ignores the prefix.
	ModeFree Mode = 0

	// ModeGuided pulls rows below PrefixEnd towards the prefix, fully below Delay,
	// then falling linearly. Works with any flow policy.
	ModeGuided Mode = 1

	// ModeTrained returns the prefix in rows below Delay and lets the policy, which
	// was trained for it, continue from there.
	ModeTrained Mode = 2

	// ModeTrainedGuided is ModeTrained with the rows from Delay to PrefixEnd guided.
	ModeTrainedGuided Mode = 3
)

// String returns the mode's name in metrics and logs.
func (m Mode) String() string {
	switch m {
	case ModeFree:
		return "free"
	case ModeGuided:
		return "guided"
	case ModeTrained:
		return "trained"
	case ModeTrainedGuided:
		return "trained_guided"
	}
	return "unknown"
}

// Controls are the Real-Time Chunking inputs of one row of a batch. Counts are in
// control steps; row i of the prefix and of the chunk is the same instant.
type Controls struct {
	PrefixLen int     // valid rows of the prefix, 0 to H
	Delay     int     // rows that will have been executed when the chunk arrives
	PrefixEnd int     // first row that is not guided
	Mode      Mode    //
	Beta      float32 // largest guidance weight; SetControls clamps it to NumSteps
}

// Condition returns the controls for a request that carries rows of prefix, will
// take delay steps, and whose conditioning shall end at end (0: the bundle's
// default). It chooses the trained prefix where the policy knows the delay, else
// guidance, else none; Controls.Mode says which, so that the caller can count it.
// Delay and end never exceed the rows there are.
//
//rt:noalloc
func (m *Meta) Condition(rows, delay, end int) Controls {
	rows = min(max(rows, 0), m.ChunkSize)
	if end <= 0 {
		end = m.PrefixEnd
	}
	c := Controls{
		PrefixLen: rows,
		Delay:     min(max(delay, 0), rows),
		PrefixEnd: min(end, m.ChunkSize),
		Beta:      float32(m.NumSteps),
	}
	switch {
	case rows == 0:
	case m.Trained() && c.Delay <= m.RTCMaxDelay:
		c.Mode = ModeTrained
	case m.Guided():
		c.Mode = ModeGuided
	}
	return c
}
