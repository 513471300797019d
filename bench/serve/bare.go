package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/rt"
)

// bare is ONNX Runtime without a server: it runs the same policy on prepared rows.
type bare struct {
	*policy.Model
	random *rand.Rand
}

func openBare(b *policy.Bundle, cfg Config) (*bare, error) {
	m, err := b.Open(policy.Options{MaxBatch: cfg.MaxBatch, IntraThreads: cfg.Threads, Device: cfg.Device})
	if err != nil {
		return nil, err
	}
	bench.FillRows(m, m.MaxBatch(), b.Condition(&policy.Conditioning{}, prefixRows, prefixRows, 0))
	return &bare{m, rand.New(rand.NewPCG(1, 2))}, nil
}

// run runs batches in random order for a slice. The sizes have the same shares as those of the server's batches (the
// parameter). run returns how many requests per second it answers.
func (s *bare) run(ctx context.Context, batches map[int]*load, slice time.Duration) (perS float64, err error) {
	var sizes []int
	var requests []float64
	for size, b := range batches {
		for range max(1, int(float64(b.requests)/float64(size)+0.5)) {
			sizes = append(sizes, size)
			requests = append(requests, float64(b.requests)/max(1, float64(b.runs)))
		}
	}
	if len(sizes) == 0 {
		return 0, errors.New("the server answered nothing")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer rt.HoldGC(rt.Headroom).Release() // as the server does
	done, begin := 0.0, time.Now()
	for ctx.Err() == nil && time.Since(begin) < slice {
		i := s.random.IntN(len(sizes))
		if err := s.Run(sizes[i]); err != nil {
			return 0, err
		}
		done += requests[i]
	}
	return done / time.Since(begin).Seconds(), context.Cause(ctx)
}

// auditLog is the server's audit, read as it grows.
type auditLog struct {
	name string
	at   int64 // bytes that were read

	own, wait, decode, inference []float64 // ms, since the second reading
	rows, runs                   float64
	busyMs                       float64 // ms for which the device was busy
	readings                     int
}

// load is the server's work in batches of one size.
type load struct {
	requests int
	runs     int // number of runs, counted by the lowest row of each batch
}

// read reads the lines since the last reading, and returns their batches by size.
func (l *auditLog) read() (batches map[int]*load, err error) {
	time.Sleep(100 * time.Millisecond) // the server writes the lines after it has sent the answers
	file, err := os.Open(l.name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(l.at, io.SeekStart); err != nil {
		return nil, err
	}
	batches = map[int]*load{}
	lines := bufio.NewReader(file)
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil { // an incomplete line is read again later
			break
		}
		l.at += int64(len(text))
		var line struct {
			Batch     int     `json:"batch"`
			Row       int     `json:"row"`
			Wait      float64 `json:"queue_wait_ms"`
			Decode    float64 `json:"decode_ms"`
			Inference float64 `json:"inference_ms"`
			Service   float64 `json:"service_ms"`
			Outcome   string  `json:"outcome"`
		}
		if err := json.Unmarshal(text, &line); err != nil {
			return nil, err
		}
		if line.Outcome != "ok" {
			continue
		}
		b := batches[line.Batch]
		if b == nil {
			b = new(load)
			batches[line.Batch] = b
		}
		b.requests++
		if line.Row == 0 {
			b.runs++
		}
		if l.readings > 0 {
			l.own = append(l.own, line.Service-line.Wait-line.Inference)
			l.wait = append(l.wait, line.Wait)
			l.decode = append(l.decode, line.Decode)
			l.inference = append(l.inference, line.Inference)
			l.rows++
			if line.Row == 0 {
				l.runs++
				l.busyMs += line.Inference
			}
		}
	}
	l.readings++
	return batches, nil
}

func (l *auditLog) meanBatch() float64 { return bench.Round(l.rows / max(1, l.runs)) }
