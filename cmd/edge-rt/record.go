package main

import (
	"fmt"
	"math"

	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/edge/recording"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/record"
)

// recordFlags choose the records that a run keeps.
type recordFlags struct {
	Record     record.Mode `default:"ring" enum:"off,ring,all" help:"The record of a run, for Foxglove, Rerun and edge-rt's own tools: ring (the last ten minutes in memory, with pictures of the last ten seconds; written when something goes wrong, or by edge-rt ctl save), all (everything), off."`
	RecordDir  string      `name:"record-dir" help:"Folder of the records; default: ~/.local/state/edge-rt/records." placeholder:"DIR"`
	RecordSize bytesFlag   `name:"record-size" default:"2GiB" help:"Size limit for all records in the folder, at least 64MiB; the oldest are deleted first." placeholder:"SIZE"`
}

// apply puts the flags into the edge's configuration.
func (f *recordFlags) apply(cfg *edge.Config) {
	cfg.Record = f.Record
	cfg.RecordDir = f.RecordDir
	cfg.RecordSize = int64(f.RecordSize)
}

// bytesFlag is a size on the command line: 2GiB, 500MB.
type bytesFlag int64

// UnmarshalText refuses text that is not a size, and a size too small for one save.
func (b *bytesFlag) UnmarshalText(text []byte) error {
	size, ok := userfile.ParseSize(string(text), "MiB", "GiB", "TiB", "MB", "GB", "TB")
	if !ok || !(size >= recording.MinSize && size < math.MaxInt64/2) {
		return fmt.Errorf("got %q, want a size of at least 64MiB, such as 2GiB or 500MB", text)
	}
	*b = bytesFlag(size)
	return nil
}
