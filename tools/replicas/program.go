package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

var (
	servingLine = regexp.MustCompile(`msg=serving.*server_id=(\S+)`)
	openedLine  = regexp.MustCompile(`msg="session open".* server=(\S*) session=`)
	draftOpened = regexp.MustCompile(`msg="session open" client=draft`)
	lostLine    = regexp.MustCompile(`msg="session lost"`)
)

// start starts a program of the stand, with both outputs in its log.
func (s *stand) start(name string, cmd *exec.Cmd) (*stage.Child, error) {
	c, err := stage.StartLogged(cmd)
	if err == nil {
		c.Name = name
		s.programs = append(s.programs, c)
	}
	return c, err
}

// serving holds the settings that may differ between servers.
type serving struct {
	third    bool   // true: the server has room for a third of the robots; false: for all
	bundle   string // "": the bundle of the demo
	service  string
	revision string
	pin      string // the only task that the server accepts
}

// server is a lean-server's process.
type server struct {
	*stage.Child
	sessions int
	id       string // server_id
	audit    string
	endedAt  time.Time // time at which the scenario ended the server; zero: the server has not ended
}

// startServer starts a server, and does not wait until the server is ready.
func (s *stand) startServer(of serving) error {
	name := fmt.Sprintf("server-%d", len(s.servers)+1)
	sv := &server{sessions: s.o.Robots + 1, audit: filepath.Join(s.dir, name+".jsonl")}
	if of.third {
		sv.sessions = max(1, s.o.Robots/3)
	}
	path, err := filepath.Abs(filepath.Join(s.o.Bundles, cmp.Or(of.bundle, "bundle")))
	if err != nil {
		return err
	}
	text := fmt.Sprintf("model: {repo_or_path: %q, id: %s, revision: %q}\nservice: %s\ndefault_task: %q\npin_task: "+
		"%v\nmax_sessions: %d\nthreads: 1\nwarmup_inferences: 2\nzenoh: {connect_endpoints: [%q]}\n",
		path, stage.DemoModel, cmp.Or(of.revision, "main"), cmp.Or(of.service, stage.DemoService),
		cmp.Or(of.pin, "around the post"), of.pin != "", sv.sessions, s.router.Endpoint)
	manifest := filepath.Join(s.dir, name+".yaml")
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		return err
	}
	sv.Child, err = s.start(name, stage.Command(stage.Program(s.o.Bin, "lean-server"), "--manifest", manifest,
		"--health-port", "0", "--audit", sv.audit))
	if err == nil {
		s.servers = append(s.servers, sv)
	}
	return err
}

// ready waits until the server serves.
func (sv *server) ready() error {
	line, err := sv.Await(servingLine.String(), startLimit)
	if err == nil {
		sv.id = servingLine.FindStringSubmatch(line.Text)[1]
	}
	return err
}

// robot is an edge-rt's process.
type robot struct {
	*stage.Child
	id      string
	summary string
}

// open returns the server of the robot's newest session, or "" if the robot has lost the session.
func (r *robot) open() string {
	opened, lost := r.Log.Lines(openedLine), r.Log.Lines(lostLine)
	if len(opened) == 0 || len(lost) > 0 && lost[len(lost)-1].At.After(opened[len(opened)-1].At) {
		return ""
	}
	return openedLine.FindStringSubmatch(opened[len(opened)-1].Text)[1]
}
