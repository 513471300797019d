package wire

// Asked holds the fields of an observation that a scheduler reads before decoding.
type Asked struct {
	HasRunway bool
	RunwayMs  float64 // how long the robot's actions last
	HasN      bool
	N         int64 // the step that the robot executed last
}

// ReadAsked reads `runway_ms` and `n` from the encoded body of an observation and skips all other keys, so that a
// server can order its robots before it decodes pictures. It refuses a body with more than MaxSkipped values below the
// skipped keys. Otherwise, if ParseObservation accepts the body, both functions read the same values.
//
//rt:noalloc
func ReadAsked(body []byte) (a Asked, err error) {
	var r reader
	for range r.open(body) {
		switch string(r.next()) {
		case "runway_ms":
			a.HasRunway, a.RunwayMs = r.optionalFloat()
		case "n":
			a.HasN, a.N = r.optionalInt()
		default:
			r.skip(0)
		}
	}
	if err = r.close(); err != nil {
		a = Asked{}
	}
	return a, err
}
