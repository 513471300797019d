package queue

// maxStep is the largest accepted distance in seq of two consecutive observations of a robot: the requests of many
// seconds may get lost between the two.
const maxStep = 4096

// fewLost is the largest usual distance in seq. A larger distance may come from a foreign header; then the next
// observation continues from the robot's own last number.
const fewLost = 16

// sequence decides which observations of a robot are new. Any client that may publish on the robot's key can send one
// header with a number that the robot never reaches, and that header must not make all later observations late. So a
// leap of more than maxStep is accepted only when the next observation continues from there. A leap of more than
// fewLost is undone when the next two observations continue from before the leap.
type sequence struct {
	seen   bool // newest is valid
	newest key
	before key  // value of newest before a leap beyond fewLost; otherwise equal to newest
	leapt  bool // leap, below, is valid
	leap   key  // last key that was not near newest
}

// near reports whether one robot may send both a and b within a short time, in either order.
//
//rt:noalloc
func (a key) near(b key) bool {
	return a.Epoch == b.Epoch && max(a.Seq, b.Seq)-min(a.Seq, b.Seq) <= maxStep
}

// take records an observation and reports whether it is new. A robot that opened without an epoch may begin a later
// epoch at any time.
//
//rt:noalloc
func (s *sequence) take(k key) bool {
	switch {
	case !s.seen, s.newest.near(k) && k.after(s.newest), k.Epoch > s.newest.Epoch:
	case s.newest.near(k) && !k.after(s.before):
		return false
	case s.leapt && s.leap.near(k) && k.after(s.leap):
	default:
		s.leap, s.leapt = k, true
		return false
	}
	if s.before = k; s.seen && s.newest.near(k) && k.Seq > s.newest.Seq+fewLost {
		s.before = s.newest
	}
	s.newest = k
	s.seen = true
	s.leapt = false
	return true
}
