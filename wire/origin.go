package wire

// Origin is who asks, as far as the link that a query came on proves it. Whoever may
// carry others, a router or a peer, proves nothing of those behind it.
type Origin struct {
	Name string // the link or certificate; empty: unknown
	Host string // the machine at the other end of a link without a certificate; empty: unknown, or this machine's socket
}
