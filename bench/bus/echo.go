package bus

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/stage"
)

//go:embed echo/echo.c
var echoSource []byte

// echoMargin is how much longer than its slice the echo may run.
const echoMargin = 30 * time.Second

func compile(folder, name string, text []byte) (string, error) {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	source, program := filepath.Join(folder, name+".c"), filepath.Join(folder, name)
	if err := os.WriteFile(source, text, 0o600); err != nil {
		return "", err
	}
	out, err := exec.Command(cc, "-O2", "-Wall", "-pthread", "-o", program, source).CombinedOutput()
	if err != nil {
		return "", exit.Errorf(exit.Usage,
			"compile the C program %s: %w: %s; install a C compiler (apt-get install gcc libc6-dev)", name, err,
			bytes.TrimSpace(out))
	}
	return program, nil
}

// runEcho runs the C program for one slice; the program sends the frames of the driver's clean cycle.
func runEcho(ctx context.Context, program string, places []place, fps float64, length time.Duration,
	r *Report) ([]sample, error) {
	cycles := int(length.Seconds() * fps)
	args := []string{fmt.Sprintf("%.0f", fps), fmt.Sprint(cycles), fmt.Sprint(replyLimit(fps).Nanoseconds())}
	for i, p := range places {
		t := r.traffic[i]
		args = append(args, p.port, fmt.Sprint(p.robot.Baud), fmt.Sprint(t.in), fmt.Sprint(len(t.frames)))
		for _, f := range t.frames {
			args = append(args, hex.EncodeToString(f))
		}
	}
	c, err := stage.Start(exec.CommandContext(ctx, program, args...))
	if err != nil {
		return nil, err
	}
	if err := c.Wait(length + echoMargin); err != nil {
		return nil, err
	}
	return parseEcho(string(c.Stdout()), cycles, r.BytesIn)
}

func parseEcho(text string, cycles, bytesIn int) (all []sample, err error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		var took, cpu int64
		var have int
		if _, err := fmt.Sscanf(lines.Text(), "%d %d %d", &took, &cpu, &have); err != nil || took < 0 || cpu < 0 {
			return nil, fmt.Errorf("the C echo wrote %q, want three numbers", lines.Text())
		}
		all = append(all, sample{time.Duration(took), time.Duration(cpu), false, have, have != bytesIn})
	}
	if len(all) != cycles {
		return nil, fmt.Errorf("the C echo has %d cycles, want %d", len(all), cycles)
	}
	return all, nil
}
