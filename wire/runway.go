package wire

// Asked is what a scheduler reads of an observation before it is decoded.
type Asked struct {
	HasRunway bool
	RunwayMs  float64 // how long the robot's actions last
	HasN      bool
	N         int64 // the step that the robot executed last
}

// ReadAsked finds `runway_ms` and `n` in the encoded body of an observation, and passes
// over all else: a server must know who is first before it decodes anybody's pictures. It
// walks over at most MaxSkipped values, whatever the size of the body. What it reads of a
// body is what ParseObservation reads, if that accepts it.
//
//rt:noalloc
func ReadAsked(body []byte) (a Asked, err error) {
	var r reader
	for range r.open(body) {
		switch string(r.key()) {
		case "runway_ms":
			a.HasRunway, a.RunwayMs = r.optionalFloat("runway_ms")
		case "n":
			a.HasN, a.N = r.optionalInt("n")
		default:
			r.skip(0)
		}
	}
	if err := r.close(); err != nil {
		return Asked{}, err
	}
	return a, nil
}
