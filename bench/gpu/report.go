package gpu

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/report"
	"github.com/edge-rt/edge-rt/policy"
)

// Report is the result of Measure.
type Report struct {
	Bench   string        `json:"bench"`       // gpu
	Version string        `json:"version"`     // version of bench
	Runtime string        `json:"onnxruntime"` // version of ONNX Runtime
	Library string        `json:"library"`     // its file
	Threads int           `json:"threads"`     // CPU threads of one inference
	Machine bench.Machine `json:"machine"`
	Runs    []Run         `json:"runs"`
}

// Run is the result of one bundle on one device, by package policy or by another program.
type Run struct {
	Bundle  string  `json:"bundle"`           // folder of the bundle
	SHA256  string  `json:"sha256"`           // digest of the bundle
	Policy  string  `json:"policy"`           // type of the policy
	DType   string  `json:"dtype"`            // type of its numbers
	Subject string  `json:"subject"`          // ours, or the name of the other program
	Device  string  `json:"device"`           // device of the policy
	Absent  string  `json:"absent,omitempty"` // why nothing was measured
	OpenS   float64 `json:"open_s"`           // s, until the first request: load, golden sets, warm-up
	RSSMB   float64 `json:"rss_mb"`           // MiB, resident memory after open_s
	Batches []Batch `json:"batches"`

	// ms, F in F + B R, the time of a batch of B rows, fitted to the medians by least squares
	FixedMS float64 `json:"fixed_ms"`
	RowMS   float64 `json:"row_ms"` // ms, R in the formula of fixed_ms

	Request     *bench.Spread `json:"request_ms,omitempty"` // ms, one robot's request, from pictures in memory to chunk
	Allocs      uint64        `json:"allocs"`               // heap objects that the whole program allocated meanwhile
	Collections uint64        `json:"collections"`          // garbage collections meanwhile
}

// Batch is one size of batch.
type Batch struct {
	Batch      int     `json:"batch"`         // rows
	P50        float64 `json:"p50_ms"`        // ms, a run, with the copies of its inputs and outputs
	P99        float64 `json:"p99_ms"`        // ms, 99th percentile
	Overlapped float64 `json:"overlapped_ms"` // ms, median while the next batch's rows are filled
	ChunksPerS float64 `json:"chunks_per_s"`  // 1/s, chunks at the better of both medians
	Runs       uint64  `json:"runs"`          // runs measured
}

func newRun(b *policy.Bundle, subject, device string) Run {
	return Run{
		Bundle:  filepath.Base(b.Dir),
		SHA256:  b.SHA256,
		Policy:  b.PolicyType,
		DType:   b.DType,
		Subject: subject,
		Device:  device,
	}
}

// fit computes FixedMS and RowMS.
func (r *Run) fit() {
	n := float64(len(r.Batches))
	var sx, sy, sxx, sxy float64
	for _, b := range r.Batches {
		x := float64(b.Batch)
		sx += x
		sy += b.P50
		sxx += x * x
		sxy += x * b.P50
	}
	if d := n*sxx - sx*sx; d > 0 {
		r.RowMS = (n*sxy - sx*sy) / d
		r.FixedMS = (sy - r.RowMS*sx) / n
	}
}

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	_, err := fmt.Fprint(w, report.Facts("bench gpu", "ONNX Runtime "+r.Runtime+", "+r.Library, r.Machine.Rows()))
	for _, run := range r.Runs {
		fmt.Fprintf(w, "\n%s\n", run.title())
		if run.Absent != "" {
			_, err = fmt.Fprintf(w, "  not measured: %s\n", run.Absent)
			continue
		}
		t := report.Table{Columns: batchColumns}
		for _, b := range run.Batches {
			t.Add(b.cells()...)
		}
		_, err = fmt.Fprintf(w, "%v  %s\n", t, run.rest())
	}
	return err
}

// WriteMarkdown writes the report for a document, with fewer facts about the machine than WriteTable.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, ONNX Runtime %s, bench %s, %d threads of the CPU.\n", r.Machine.CPU, r.Runtime, r.Version,
		r.Threads)
	for _, run := range r.Runs {
		fmt.Fprintf(&out, "\n**%s**\n\n", run.title())
		if run.Absent != "" {
			fmt.Fprintf(&out, "Not measured: %s\n", run.Absent)
			continue
		}
		fmt.Fprintf(&out, "| %s |\n|%s\n", strings.Join(batchColumns, " | "), strings.Repeat("---|", len(batchColumns)))
		for _, b := range run.Batches {
			fmt.Fprintf(&out, "| %s |\n", strings.Join(b.cells(), " | "))
		}
		fmt.Fprintf(&out, "\n%s\n", run.rest())
	}
	_, err := io.WriteString(w, out.String())
	return err
}

var batchColumns = []string{"batch", "p50 ms", "p99 ms", "overlapped ms", "chunks/s", "runs"}

func (b *Batch) cells() []string {
	overlapped := "-"
	if b.Overlapped > 0 {
		overlapped = fmt.Sprintf("%.3f", b.Overlapped)
	}
	return strings.Split(fmt.Sprintf("%d\t%.3f\t%.3f\t%s\t%.1f\t%d", b.Batch, b.P50, b.P99, overlapped, b.ChunksPerS,
		b.Runs), "\t")
}

func (r *Run) title() string {
	return fmt.Sprintf("%s (%s %s, %.12s) on %s: %s", r.Bundle, r.Policy, r.DType, r.SHA256, r.Device, r.Subject)
}

func (r *Run) rest() string {
	text := fmt.Sprintf("T(B) = %.3f + %.3f B ms; open %.1f s, RSS %.0f MB", r.FixedMS, r.RowMS, r.OpenS, r.RSSMB)
	if r.Request != nil {
		text += fmt.Sprintf("; one request p50 %.3f, p99 %.3f, max %.3f ms; %d objects allocated, %d collections",
			r.Request.P50, r.Request.P99, r.Request.Max, r.Allocs, r.Collections)
	}
	return text
}
