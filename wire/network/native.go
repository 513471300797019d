//go:build !zenohc

package network

import (
	"context"

	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
)

// Transport is the name of this transport in the programs' output.
const Transport = "zenoh (built in, pure Go)"

// Check refuses each configuration that Open would refuse before it uses the network.
func Check(cfg zenoh.Config) error { return cfg.Check() }

// Open joins the network.
func Open(ctx context.Context, cfg zenoh.Config) (wire.Session, error) { return zenoh.Open(ctx, cfg) }
