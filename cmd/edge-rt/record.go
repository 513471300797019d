package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"edgert/edge"
	"edgert/record"
)

// recordFlags say what is kept of a run.
type recordFlags struct {
	Record     record.Mode `default:"ring" enum:"off,ring,all" help:"What is kept of a run, for Foxglove, Rerun and edge-rt's own tools: ring (the last ten minutes in memory, with pictures of the last ten seconds; written when something goes wrong, or edge-rt ctl save says so), all (everything, all the time), off."`
	RecordDir  string      `name:"record-dir" help:"Folder of the records; default: records, beside the robot's id." placeholder:"DIR"`
	RecordSize bytesFlag   `name:"record-size" default:"2GiB" help:"Most that all records in the folder take, at least 64MiB; the oldest go first." placeholder:"SIZE"`
}

// apply puts the flags into the edge's configuration.
func (f *recordFlags) apply(cfg *edge.Config) {
	cfg.Record, cfg.RecordDir, cfg.RecordSize = f.Record, f.RecordDir, int64(f.RecordSize)
}

// bytesFlag is a size on the command line: 2GiB, 500MB.
type bytesFlag int64

var byteUnits = []struct {
	name string
	size float64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"TiB", 1 << 40}, {"GB", 1e9}, {"MB", 1e6}, {"TB", 1e12}}

// UnmarshalText refuses what is no size and what is too small for one save.
func (b *bytesFlag) UnmarshalText(text []byte) error {
	for _, unit := range byteUnits {
		number, ok := strings.CutSuffix(string(text), unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if size := n * unit.size; err == nil && size >= edge.MinRecordSize && size < math.MaxInt64/2 {
			*b = bytesFlag(size)
			return nil
		}
		break
	}
	return fmt.Errorf("got %q, want a size of at least 64MiB, such as 2GiB or 500MB", text)
}
