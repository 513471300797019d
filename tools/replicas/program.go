package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

var (
	listensLine = regexp.MustCompile("router listens")
	servingLine = regexp.MustCompile(`msg=serving.*server_id=(\S+)`)
	openedLine  = regexp.MustCompile(`msg="session open".* server=(\S*) session=`)
	draftOpened = regexp.MustCompile(`msg="session open" client=draft`)
	lostLine    = regexp.MustCompile(`msg="session lost"`)
)

// line is a line of a program's output, with its time.
type line struct {
	at   time.Time
	text string
}

// program is a running program with its log.
type program struct {
	*stage.Child
	name string

	mu    sync.Mutex // guards the rest
	lines []line
	rest  string
}

func (p *program) Write(b []byte) (int, error) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest += string(b)
	for {
		text, rest, whole := strings.Cut(p.rest, "\n")
		if !whole {
			return len(b), nil
		}
		p.lines, p.rest = append(p.lines, line{now, text}), rest
	}
}

// said returns the lines that match.
func (p *program) said(re *regexp.Regexp) (all []line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if re.MatchString(l.text) {
			all = append(all, l)
		}
	}
	return all
}

func (p *program) tail(n int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var text []string
	for _, l := range p.lines[max(0, len(p.lines)-n):] {
		text = append(text, l.at.Format("05.000")+" "+l.text)
	}
	return strings.Join(text, "\n")
}

// wait waits until ok; what names the condition.
func wait(what string, ok func() bool) error {
	for end := time.Now().Add(startLimit); !ok(); time.Sleep(poll) {
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within %v", what, startLimit)
		}
	}
	return nil
}

// serving holds the settings in which a server differs from the others.
type serving struct {
	sessions int    // 0: all robots
	bundle   string // "": the demo's
	service  string
	revision string
	pin      string // the only task that it accepts
}

// server is a lean-server's process.
type server struct {
	*program
	of      serving
	id      string // server_id
	audit   string
	endedAt time.Time // when the scenario ended it; zero: it did not
}

// serve starts a server and waits until it serves.
func (s *stand) serve(of serving) (*server, error) {
	sv, err := s.startServer(of)
	if err != nil {
		return nil, err
	}
	return sv, sv.ready()
}

func (s *stand) startServer(of serving) (*server, error) {
	of.sessions = cmp.Or(of.sessions, s.o.robots+1)
	name := fmt.Sprintf("server-%d", len(s.servers)+1)
	path, err := filepath.Abs(filepath.Join(s.o.bundles, cmp.Or(of.bundle, "bundle")))
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("model: {repo_or_path: %q, id: %s, revision: %q}\nservice: %s\ndefault_task: %q\npin_task: "+
		"%v\nmax_sessions: %d\nthreads: 1\nwarmup_inferences: 2\nzenoh: {connect_endpoints: [%q]}\n",
		path, stage.DemoModel, cmp.Or(of.revision, "main"), cmp.Or(of.service, stage.DemoService),
		cmp.Or(of.pin, "around the post"), of.pin != "", of.sessions, s.at)
	manifest := filepath.Join(s.dir, name+".yaml")
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		return nil, err
	}
	sv := &server{of: of, audit: filepath.Join(s.dir, name+".jsonl")}
	sv.program, err = s.start(name, stage.Command(stage.Program(s.o.bin, "lean-server"), "--manifest", manifest,
		"--health-port", "0", "--audit", sv.audit))
	if err == nil {
		s.servers = append(s.servers, sv)
	}
	return sv, err
}

// ready waits until the server serves.
func (sv *server) ready() error {
	err := wait(sv.name+" serves", func() bool {
		if l := sv.said(servingLine); len(l) > 0 {
			sv.id = servingLine.FindStringSubmatch(l[0].text)[1]
		}
		return sv.id != "" || !sv.Running()
	})
	if err == nil && sv.id == "" {
		err = fmt.Errorf("%s ended: %s", sv.name, sv.tail(5))
	}
	return err
}

// robot is an edge-rt's process.
type robot struct {
	*program
	id      string
	summary string
}

// open returns the server of the robot's newest session; empty when the session was lost.
func (r *robot) open() string {
	opened, lost := r.said(openedLine), r.said(lostLine)
	if len(opened) == 0 || len(lost) > 0 && lost[len(lost)-1].at.After(opened[len(opened)-1].at) {
		return ""
	}
	return openedLine.FindStringSubmatch(opened[len(opened)-1].text)[1]
}
