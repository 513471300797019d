package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

// answerLimit is the longest time for an end to start or to answer one command.
const answerLimit = 20 * time.Second

// maxAnswer bounds one line of an end.
const maxAnswer = 32 << 20

// peer is a running end of a pair.
type peer struct {
	*stage.Child
	in    io.WriteCloser
	out   *os.File
	lines *bufio.Scanner // the lines of out
}

// startPeer starts an end, in a process group of its own so that Ctrl-C does not reach it, and
// waits until it is ready.
func startPeer(ctx context.Context, argv []string) (*peer, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	cmd := stage.Command(argv[0], argv[1:]...)
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	cmd.Stdout = theirs
	p := &peer{out: out, lines: bufio.NewScanner(out)}
	p.lines.Buffer(nil, maxAnswer)
	if p.in, err = cmd.StdinPipe(); err == nil {
		p.Child, err = stage.StartGroup(cmd)
	}
	theirs.Close()
	if err != nil {
		out.Close()
		return nil, err
	}
	if _, err := p.answer(ctx); err != nil {
		p.end(ctx)
		return nil, err
	}
	return p, nil
}

func (p *peer) do(ctx context.Context, command string, numbers ...int) (answer, error) {
	for _, n := range numbers {
		command += " " + strconv.Itoa(n)
	}
	if _, err := io.WriteString(p.in, command+"\n"); err != nil {
		return answer{}, p.failure()
	}
	return p.answer(ctx)
}

func (p *peer) answer(ctx context.Context) (a answer, err error) {
	p.out.SetReadDeadline(time.Now().Add(answerLimit))
	defer context.AfterFunc(ctx, func() { p.out.SetReadDeadline(time.Now()) })()
	switch {
	case p.lines.Scan():
		if err := json.Unmarshal(p.lines.Bytes(), &a); err != nil {
			return a, fmt.Errorf("bench: %s printed %.80q, want one line of JSON", p.Name, p.lines.Bytes())
		}
		return a, nil
	case ctx.Err() != nil:
		return a, ctx.Err()
	case errors.Is(p.lines.Err(), os.ErrDeadlineExceeded):
		return a, fmt.Errorf("bench: %s did not answer within %v", p.Name, answerLimit)
	}
	return a, p.failure()
}

func (p *peer) failure() error {
	if err := p.Wait(stage.StopLimit); err != nil {
		return err
	}
	return fmt.Errorf("bench: %s ended: %s", p.Name, p.LastWords())
}

// end ends the process through its standard input, and waits unless ctx has
// ended.
func (p *peer) end(ctx context.Context) {
	p.out.Close()
	p.in.Close()
	select {
	case <-p.Exited():
	case <-time.After(stage.StopLimit):
	case <-ctx.Done():
	}
	p.Kill()
}
