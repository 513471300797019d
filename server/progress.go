package server

import (
	"fmt"
	"sync"
	"time"

	"edgert/rt"
)

// progressEvery is after how long without a line a check says that it goes on.
const progressEvery = 5 * time.Second

// progress passes on what is said of a long piece of work, and says at each tick that it
// goes on where nothing was said since: one inference may take a minute.
type progress struct {
	say   func(text string)
	clock rt.Clock
	begun rt.Instant
	done  chan struct{}
	ended sync.WaitGroup

	mu   sync.Mutex
	said rt.Instant // guarded by mu; when the last line was
}

func newProgress(say func(text string), clock rt.Clock, ticks <-chan time.Time) *progress {
	p := &progress{say: say, clock: clock, begun: clock.Now(), said: clock.Now(), done: make(chan struct{})}
	p.ended.Go(func() {
		for {
			select {
			case <-p.done:
				return
			case <-ticks:
				p.tick()
			}
		}
	})
	return p
}

// tell passes a line on.
func (p *progress) tell(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = p.clock.Now()
	p.say(text)
}

func (p *progress) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.clock.Now(); now.Sub(p.said) >= progressEvery {
		p.said = now
		p.say(fmt.Sprintf("still at work after %.0f s: the policy is loaded, or computes a chunk", now.Sub(p.begun).Seconds()))
	}
}

// end says nothing more.
func (p *progress) end() {
	close(p.done)
	p.ended.Wait()
}
