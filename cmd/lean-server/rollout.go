package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/policy"
	"github.com/edge-rt/edge-rt/server"
	"github.com/edge-rt/edge-rt/server/manifest"
	"github.com/edge-rt/edge-rt/server/rollout"
)

// rolloutArgs are the arguments of lean-server rollout.
type rolloutArgs struct {
	Action string   `arg:"" optional:"" default:"status" enum:"status,set,pin,back" help:"status (the default) shows the roll-out; set changes bundle or share; pin gives robots one model regardless of the share; back gives all robots the first model."`
	Robots []string `arg:"" optional:"" name:"robot" help:"With pin: the robots' ids."`
	Bundle string   `help:"With set: the folder of the new bundle." placeholder:"DIR"`
	SHA256 string   `name:"sha256" help:"With set: the digest of the bundle, or its first digits." placeholder:"SHA"`
	Share  *float64 `range:"0..1" help:"With set: the share of the robots, 0.1 for a tenth." placeholder:"SHARE"`
	To     string   `default:"new" enum:"new,old,none" help:"With pin: new, old, or none, which leaves the robots to the share."`
}

// rolledOut is the report of lean-server rollout with --json.
type rolledOut struct {
	Manifest rolloutBlock        `json:"manifest"`
	Server   *server.LiveRollout `json:"server"`               // null: the server does not answer
	Why      string              `json:"server_why,omitempty"` // why the server does not answer
}

// rolloutBlock is the block rollout of the manifest.
type rolloutBlock struct {
	File   string   `json:"file"`             // the manifest
	Bundle string   `json:"bundle"`           // folder of the new bundle; empty: there is no roll-out
	SHA256 string   `json:"sha256,omitempty"` // digest of the bundle, or its first digits
	Share  float64  `json:"share"`            // share, of all robots, that gets the new model
	Robots []string `json:"robots"`           // robots that get the new model whatever the share is
	Keep   []string `json:"keep"`             // robots that never get it
}

// rollout changes the manifest as the command line requests, and prints the roll-out as the manifest and the running
// server have it.
func (c *cli) rollout(cfg manifest.Config, stdout io.Writer) error {
	a := &c.Rollout
	change, err := a.change(&cfg)
	if err != nil {
		return err
	}
	if change != nil {
		edited, err := manifest.EditRollout(cfg.File(), change)
		if err != nil {
			return err
		}
		cfg.Rollout = edited.Rollout
	}
	r := &cfg.Rollout
	report := rolledOut{Manifest: rolloutBlock{
		File:   cfg.File(),
		Bundle: r.Model.RepoOrPath,
		SHA256: r.Model.SHA256,
		Share:  r.Share,
		Robots: append([]string{}, r.Robots...),
		Keep:   append([]string{}, r.Keep...),
	}}
	live, absent := rolloutOf(&cfg)
	// The server reads its manifest once every rollout.Poll.
	for end := time.Now().Add(2 * rollout.Poll); change != nil && absent == nil && !follows(live, r) &&
		time.Now().Before(end); live, absent = rolloutOf(&cfg) {
		time.Sleep(rollout.Poll / 4)
	}
	if report.Server = live; absent != nil {
		report.Why = absent.Error()
	}
	if c.JSON != "-" {
		report.print(stdout)
	}
	if change == nil && absent != nil {
		err = exit.With(exit.Absent, absent)
	}
	return errors.Join(err, c.writeJSON(report, stdout))
}

// change returns the function that changes the manifest as the command line requests; nil: no change.
func (a *rolloutArgs) change(cfg *manifest.Config) (func(*manifest.Rollout), error) {
	usage := func(format string, args ...any) (func(*manifest.Rollout), error) {
		return nil, exit.Errorf(exit.Usage, "rollout "+a.Action+": "+format, args...)
	}
	sets := a.Bundle != "" || a.SHA256 != "" || a.Share != nil
	switch {
	case sets && a.Action != "set":
		return usage("--bundle, --sha256 and --share belong to rollout set")
	case len(a.Robots) > 0 && a.Action != "pin":
		return usage("got robots (%s), which belong to rollout pin", strings.Join(a.Robots, ", "))
	}
	switch a.Action {
	case "status":
		return nil, nil
	case "set":
		if !sets {
			return usage("give --share, --bundle or both")
		}
		if a.Bundle == "" && cfg.Rollout.Model.RepoOrPath == "" {
			return usage("the manifest has no roll-out yet: give --bundle DIR, the folder of the new bundle")
		}
		other, _ := filepath.Abs(a.Bundle) // fails only without a working directory
		if share := cfg.Rollout.Share; a.Bundle != "" && a.Share == nil && share > 0 &&
			other != cfg.Rollout.Model.RepoOrPath {
			return usage("give --share, too: this bundle would at once have the present one's share, %g of the robots",
				share)
		}
		return a.set()
	case "pin":
		if len(a.Robots) == 0 {
			return usage("name the robots by their ids")
		}
	case "back":
		return func(r *manifest.Rollout) { r.Share, r.Robots = 0, nil }, nil
	}
	return func(r *manifest.Rollout) {
		pinned := func(id string) bool { return slices.Contains(a.Robots, id) }
		r.Robots, r.Keep = slices.DeleteFunc(r.Robots, pinned), slices.DeleteFunc(r.Keep, pinned)
		switch a.To {
		case "new":
			r.Robots = append(r.Robots, a.Robots...)
		case "old":
			r.Keep = append(r.Keep, a.Robots...)
		}
	}, nil
}

// set returns the change to the manifest for the command rollout set. It refuses a bundle with a damaged or missing
// file. Only the server replays the golden sets.
func (a *rolloutArgs) set() (func(*manifest.Rollout), error) {
	dir := a.Bundle
	if dir != "" {
		var err error
		if dir, err = filepath.Abs(dir); err != nil {
			return nil, err
		}
		bundle, err := policy.LoadBundle(dir)
		if err != nil {
			return nil, fmt.Errorf("--bundle: %w", err)
		}
		if !strings.HasPrefix(bundle.SHA256, a.SHA256) {
			return nil, exit.Errorf(exit.Config, "--sha256: %s has sha256 %s, want one that begins with %s", dir,
				bundle.SHA256, a.SHA256)
		}
	}
	return func(r *manifest.Rollout) {
		if dir != "" {
			r.Model = manifest.RolloutModel{RepoOrPath: dir}
		}
		r.Model.SHA256 = cmp.Or(a.SHA256, r.Model.SHA256)
		if a.Share != nil {
			r.Share = *a.Share
		}
	}, nil
}

// follows reports whether the server has taken over the roll-out of the manifest.
func follows(live *server.LiveRollout, r *manifest.Rollout) bool {
	return live.Bundle == r.Model.RepoOrPath && live.Share == r.Share && slices.Equal(live.Robots, r.Robots) &&
		slices.Equal(live.Keep, r.Keep)
}

const (
	serverTimeout = 2 * time.Second
	statusMax     = 8 << 20 // bytes of a server's page
)

// rolloutOf returns the roll-out of the server that serves the manifest on this machine.
func rolloutOf(cfg *manifest.Config) (*server.LiveRollout, error) {
	host, port, err := net.SplitHostPort(cfg.HealthAddress())
	if err != nil {
		return nil, errors.New("the manifest's health_port is 0: the server shows its state nowhere")
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	url := "http://" + net.JoinHostPort(host, port) + "/status.json?rows=1"
	client := http.Client{Timeout: serverTimeout}
	response, err := client.Get(url)
	if err != nil {
		return nil, fmt.Errorf("no server of this manifest answers on this machine: %w", err)
	}
	defer response.Body.Close()
	var live server.Live
	if err = json.NewDecoder(io.LimitReader(response.Body, statusMax)).Decode(&live); err != nil {
		return nil, fmt.Errorf("%s is no page of a lean-server: %w", url, err)
	}
	if live.Rollout != nil {
		return live.Rollout, nil
	}
	off := &server.LiveRollout{State: rollout.Off.String(), Old: live.Sessions.Open}
	switch {
	case cfg.Rollout.Model.RepoOrPath == "":
	case live.Server == nil:
		off.Why = "the server is not ready: " + live.State
	default:
		off.Why = fmt.Sprintf("the server (%s) has not read the roll-out: restart it if it is older than %s",
			live.Server.Version, version)
	}
	return off, nil
}

// print writes the report for people.
func (r *rolledOut) print(w io.Writer) {
	m := &r.Manifest
	fmt.Fprintf(w, "manifest  %s\n", m.File)
	if m.Bundle == "" {
		fmt.Fprintln(w, "  bundle  none: there is no roll-out")
	} else {
		fmt.Fprintf(w, "  bundle  %s\n  share   %g of the robots; always %s; never %s\n", m.Bundle, m.Share,
			cmp.Or(strings.Join(m.Robots, ", "), "none"), cmp.Or(strings.Join(m.Keep, ", "), "none"))
	}
	s := r.Server
	if s == nil {
		fmt.Fprintf(w, "server    unknown: %s\n", r.Why)
		return
	}
	fmt.Fprintf(w, "server    %s", s.State)
	if s.SHA256 != "" {
		fmt.Fprintf(w, ", sha256 %.12s at %s", s.SHA256, s.ServerID)
	}
	fmt.Fprintf(w, "\n  robots  %d with the first model, %d with the new one, %d change when their runs allow it\n",
		s.Old, s.New, s.Moving)
	for _, why := range []string{s.Why, s.Edit} {
		if why != "" {
			fmt.Fprintf(w, "  why     %s\n", why)
		}
	}
	if len(s.Restart) > 0 {
		fmt.Fprintf(w, "  restart to use the changed keys %s\n", strings.Join(s.Restart, ", "))
	}
}
