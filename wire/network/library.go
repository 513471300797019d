//go:build zenohc

package network

import (
	"context"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenohgo"
)

// Transport is the name of this transport in the programs' output.
const Transport = "zenoh (zenoh-go on libzenohc)"

// Check accepts every configuration. The C library itself checks endpoints and options when a session opens.
func Check(zenoh.Config) error { return nil }

// Open joins the network.
func Open(ctx context.Context, cfg zenoh.Config) (wire.Session, error) { return zenohgo.Open(ctx, cfg) }
