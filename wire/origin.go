package wire

// Origin is the sender of a query, as far as its link proves it. A link that may carry other
// senders' messages, to a router or a peer, proves nothing about those senders.
type Origin struct {
	Name string // name of the link or of its certificate; empty: unknown
	// the machine at the other end of a link without a certificate; empty: unknown, or a socket file of this machine
	Host string
}
