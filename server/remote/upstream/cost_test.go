package upstream

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/server/remote"
)

// BenchmarkBesidePython measures a request with two pictures of 640x480, and the same request of the server's own
// Python client, in turns of 20 requests each: go test ./server/remote/upstream -bench BesidePython -benchtime 20x
func BenchmarkBesidePython(b *testing.B) {
	for kind := range kinds {
		b.Run(kind, func(b *testing.B) {
			port := serveShared(b, kind)
			c := configured(b, kind, port)
			for i := range c.Spec.Cameras {
				camera := &c.Spec.Cameras[i]
				camera.Height, camera.Width = defaultHeight, defaultWidth
				if kind == GR00T {
					camera.Pad = [2]int{defaultHeight, defaultWidth}
				}
			}
			p := open(b, c)
			python := pythonClient(b, kind, port)
			r := row(&c, "pick")
			var ours, theirs []float64
			for b.Loop() {
				const turn = 20
				for range turn {
					began := time.Now()
					rttest.Do(b, p.Runtime.Batch([]*remote.Row{r}))
					ours = append(ours, float64(time.Since(began))/float64(time.Millisecond))
				}
				theirs = append(theirs, python(turn)...)
			}
			slices.Sort(ours)
			slices.Sort(theirs)
			for name, p := range map[string]float64{"p50": 0.5, "p99": 0.99} {
				at := int(p * float64(len(ours)-1))
				b.ReportMetric(ours[at], "ms-"+name)
				b.ReportMetric(theirs[at], "python-ms-"+name)
			}
		})
	}
}

// pythonClient returns a function that has the Python client make n requests, and returns their
// times in ms.
func pythonClient(b *testing.B, kind, port string) func(n int) []float64 {
	b.Helper()
	name := os.Getenv("EDGERT_PYTHON")
	if name == "" {
		name = "../../../.venv/bin/python"
	}
	cmd := exec.Command(name, "testdata/clients.py", kind, port, token)
	in, out := rttest.Must(cmd.StdinPipe())(b), rttest.Must(cmd.StdoutPipe())(b)
	cmd.Stderr = os.Stderr
	rttest.Do(b, cmd.Start())
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	lines := bufio.NewReader(out)
	return func(n int) (times []float64) {
		fmt.Fprintln(in, n)
		line, err := lines.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &times)
		}
		if err != nil {
			b.Fatal(err)
		}
		return times
	}
}
