package latency

import (
	"fmt"
	"io"
	"strconv"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/bench/report"
	"github.com/edge-rt/edge-rt/record/why"
)

// Report is the result of Measure.
type Report struct {
	Bench    string        `json:"bench"`    // latency
	Version  string        `json:"version"`  // version of bench
	Schedule string        `json:"schedule"` // --schedule
	FPS      int           `json:"fps"`      // Hz, ticks per second
	Seconds  float64       `json:"seconds"`  // s, length of each run
	Machine  bench.Machine `json:"machine"`
	Links    []Link        `json:"links"`
	Fleets   []Fleet       `json:"fleets"` // payloads of fleets, at the requests of the first link
}

// Link is the run over one link.
type Link struct {
	Name     string      `json:"name"`          // scenario
	Title    string      `json:"title"`         // its description
	Stages   []why.Stage `json:"stages"`        // from a picture to the motors, as in edge-rt why
	Requests float64     `json:"requests"`      // 1/s, observations
	Ticks    uint64      `json:"ticks"`         // ticks that ran
	Starved  uint64      `json:"starved_ticks"` // ticks on which an action was due and missing
	Own      uint64      `json:"overruns_own"`  // own overruns, as in edge-rt's summary
	Host     uint64      `json:"overruns_host"` // host overruns, as in edge-rt's summary
}

// Fleet is the payload of a fleet whose robots have two cameras each.
type Fleet struct {
	Pictures string             `json:"pictures"` // number and size of an observation's pictures
	Quality  int                `json:"quality"`  // of the JPEG; 0: raw
	Bytes    int                `json:"bytes"`    // bytes of an observation's pictures
	Rate     map[string]float64 `json:"bit_s"`    // [robots] bit/s, towards the server
}

// The sizes, qualities and robots of the fleets.
var (
	sizes     = [][2]int{{640, 480}, {800, 600}, {1280, 720}}
	qualities = []int{0, 90, 60}
	robots    = []int{1, 10, 100}
)

// number of cameras of a robot
const cameras = 2

// fleets returns the payloads of fleets of robots, each of which sends this many requests a second.
func fleets(requests float64) (all []Fleet, err error) {
	for _, size := range sizes {
		for _, q := range qualities {
			n, err := bench.PictureBytes(size[0], size[1], q)
			if err != nil {
				return nil, err
			}
			f := Fleet{
				Pictures: fmt.Sprintf("%d x %dx%d", cameras, size[0], size[1]),
				Quality:  q,
				Bytes:    cameras * n,
				Rate:     map[string]float64{},
			}
			for _, n := range robots {
				f.Rate[strconv.Itoa(n)] = float64(f.Bytes) * 8 * requests * float64(n)
			}
			all = append(all, f)
		}
	}
	return all, nil
}

// WriteTable writes the stages of all links side by side, and the payloads of fleets.
func (r *Report) WriteTable(w io.Writer) error {
	stages := report.Table{Left: 1, Columns: []string{"stage, ms"}}
	for _, l := range r.Links {
		stages.Columns = append(stages.Columns, l.Name+" p50", "p99")
	}
	for i, s := range r.Links[0].Stages {
		row := []string{s.Name}
		for _, l := range r.Links {
			if s := l.Stages[i]; s.N > 0 {
				row = append(row, fmt.Sprintf("%.2f", s.P50), fmt.Sprintf("%.2f", s.P99))
			} else {
				row = append(row, "-", "-")
			}
		}
		stages.Add(row...)
	}
	runs := report.Table{Left: 1, Columns: []string{"link", "observations/s", "ticks", "starved", "own overruns",
		"host overruns"}}
	for _, l := range r.Links {
		runs.Addf("%s\t%.2f\t%d\t%d\t%d\t%d", l.Name+": "+l.Title, l.Requests, l.Ticks, l.Starved, l.Own, l.Host)
	}
	fleets := report.Table{Left: 2, Columns: []string{"pictures", "JPEG", "kB/observation"}}
	for _, n := range robots {
		fleets.Columns = append(fleets.Columns, fmt.Sprintf("Mbit/s of %d", n))
	}
	for _, f := range r.Fleets {
		quality := "raw"
		if f.Quality > 0 {
			quality = strconv.Itoa(f.Quality)
		}
		row := []string{f.Pictures, quality, fmt.Sprintf("%.0f", float64(f.Bytes)/1000)}
		for _, n := range robots {
			row = append(row, fmt.Sprintf("%.1f", f.Rate[strconv.Itoa(n)]/1e6))
		}
		fleets.Add(row...)
	}
	_, err := fmt.Fprintf(w, "%s at %d Hz, %g s over each link, %s\n\n%v\n%v\n%v", r.Schedule, r.FPS, r.Seconds,
		r.Machine.CPU, stages, runs, fleets)
	return err
}
