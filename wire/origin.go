package wire

// Origin is the sender of a query, as far as its link proves it. A link to a router or a peer may carry the messages of
// other senders, about whom it proves nothing.
type Origin struct {
	Name string // name of the link or of its certificate; empty: unknown
	// machine at the other end of a link without a certificate; empty: unknown, or a process of this machine
	Host string
}
