package stage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// maxAnswer bounds one line of a peer.
const maxAnswer = 32 << 20

// Peer is a child that answers each line on its standard input with a line on its standard output,
// and ends at the end of its input.
type Peer struct {
	*Child
	in    io.WriteCloser
	out   *os.File
	lines *bufio.Scanner // the lines of out
}

// StartPeer starts the command, in a process group of its own, so that Ctrl-C does not reach it.
func StartPeer(cmd *exec.Cmd) (*Peer, error) {
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = theirs
	p := &Peer{out: out, lines: bufio.NewScanner(out)}
	p.lines.Buffer(nil, maxAnswer)
	if p.in, err = cmd.StdinPipe(); err == nil {
		p.Child, err = StartGroup(cmd)
	}
	theirs.Close()
	if err != nil {
		out.Close()
		return nil, err
	}
	return p, nil
}

// Ask sends a line and returns the answer.
func (p *Peer) Ask(ctx context.Context, line string, limit time.Duration) ([]byte, error) {
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		return nil, p.failure()
	}
	return p.Answer(ctx, limit)
}

// Answer returns the peer's next line, which is valid until the next call. If the peer has ended,
// the error quotes the peer's last message on standard error.
func (p *Peer) Answer(ctx context.Context, limit time.Duration) ([]byte, error) {
	p.out.SetReadDeadline(time.Now().Add(limit))
	defer context.AfterFunc(ctx, func() { p.out.SetReadDeadline(time.Now()) })()
	switch {
	case p.lines.Scan():
		return p.lines.Bytes(), nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(p.lines.Err(), os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("%s did not answer within %v", p.Name, limit)
	}
	return nil, p.failure()
}

func (p *Peer) failure() error {
	if err := p.Wait(StopLimit); err != nil {
		return err
	}
	return fmt.Errorf("%s ended: %s", p.Name, p.LastWords())
}

// End closes the peer's standard input and waits for its end. It kills a peer that has not ended
// after StopLimit, or when ctx ends.
func (p *Peer) End(ctx context.Context) {
	p.out.Close()
	p.in.Close()
	select {
	case <-p.Exited():
	case <-time.After(StopLimit):
	case <-ctx.Done():
	}
	p.Kill()
}
