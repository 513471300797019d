package queue

// maxStep is how far two observations of a robot, one after the other, are apart in
// seq: what it may lose in between, many seconds of requests.
const maxStep = 4096

// sequence says which observations of a robot are new. One header with a number that
// the robot never reaches, from whoever may publish on its key, must not make all
// later ones late: a leap counts only when the next observation goes on from there.
type sequence struct {
	seen   bool // newest is valid
	newest Key
	leapt  bool // leap is valid
	leap   Key  // the last that was not near newest
}

// near reports whether a robot that sent a may send b soon, or has just sent it.
//
//rt:noalloc
func (a Key) near(b Key) bool {
	return a.Epoch == b.Epoch && max(a.Seq, b.Seq)-min(a.Seq, b.Seq) <= maxStep
}

// take notes an observation and reports whether it is new. A robot that opened
// without an epoch may begin a later one at any time.
//
//rt:noalloc
func (s *sequence) take(k Key) bool {
	switch {
	case !s.seen, s.newest.near(k) && k.after(s.newest), k.Epoch > s.newest.Epoch:
	case s.newest.near(k):
		return false
	case s.leapt && s.leap.near(k) && k.after(s.leap):
	default:
		s.leap, s.leapt = k, true
		return false
	}
	s.newest, s.seen, s.leapt = k, true, false
	return true
}
