package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

// answerLimit is the longest time for an end to start or to answer one command.
const answerLimit = 20 * time.Second

// peer is a running end of a pair.
type peer struct{ *stage.Peer }

// startPeer starts an end and waits until it is ready.
func startPeer(ctx context.Context, argv []string) (*peer, error) {
	p, err := stage.StartPeer(stage.Command(argv[0], argv[1:]...))
	if err != nil {
		return nil, err
	}
	if _, err := p.Answer(ctx, answerLimit); err != nil {
		p.End(ctx)
		return nil, err
	}
	return &peer{p}, nil
}

// do executes a command with its numbers.
func (p *peer) do(ctx context.Context, command string, numbers ...int) (a answer, err error) {
	for _, n := range numbers {
		command += fmt.Sprintf(" %d", n)
	}
	line, err := p.Ask(ctx, command, answerLimit)
	if err == nil && json.Unmarshal(line, &a) != nil {
		err = fmt.Errorf("bench: %s printed %.80q, want one line of JSON", p.Name, line)
	}
	return a, err
}
