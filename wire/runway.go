package wire

// Runway finds how long the robot's actions last (`runway_ms`) in the encoded body of
// an observation, and passes over all else: a server must know who is first before
// it decodes anybody's pictures. It walks over at most MaxSkipped values, whatever
// the size of the body. What it reads of a body is what ParseObservation reads, if
// that accepts it.
//
//rt:noalloc
func Runway(body []byte) (ms float64, said bool, err error) {
	var r reader
	for range r.open(body) {
		if string(r.key()) == "runway_ms" {
			said, ms = r.optionalFloat("runway_ms")
		} else {
			r.skip(0)
		}
	}
	if err := r.close(); err != nil {
		return 0, false, err
	}
	return ms, said, nil
}
