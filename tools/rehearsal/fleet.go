package main

import (
	_ "embed" // network.sh
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

const (
	mostRobots   = 200
	robotNet     = 1       // third part of the robots' addresses, 10.77.1.*; all other programs have 10.77.0.*
	metricsPort  = ":9101" // port of a robot's metrics
	serverPort   = ":9100"
	prometheusAt = "10.77.0.1:9090"
	startLimit   = 60 * time.Second
	streamLimit  = time.Minute            // longest wait for new chunks of all robots
	apart        = 200 * time.Millisecond // time between the starts of two robots, and between two checks of await
)

// network is the script that makes the namespaces.
//
//go:embed network.sh
var network string

// program is a program in its own network namespace, with both outputs in its log.
type program struct {
	*stage.Child
	name string
}

// robot is an edge-rt with its newest metrics, and its metrics at the beginning of the phase.
type robot struct {
	program
	now, before figures
	runway      float64 // shortest time for which actions were left in the phase, in seconds
	cut         bool    // the cable of the robot was pulled in this phase
}

// fleet is all programs of the rehearsal. Their files are in a folder with a copy of examples/router.
type fleet struct {
	o       options
	dir     string
	hosts   map[string]string // name: address
	routers []*program
	servers []*program
	robots  []*robot
	others  []*stage.Child
	again   time.Duration // longest time in the phase until all robots streamed again
	looked  time.Time     // time at which all metrics were read last
	shown   time.Time     // time at which live figures were printed last
	checks  stage.Checks
}

// newFleet makes the network, the certificates and the configurations.
func newFleet(o options, dir string) (*fleet, error) {
	f := &fleet{
		o:     o,
		dir:   dir,
		hosts: map[string]string{},
	}
	paths := []*string{&f.dir, &f.o.Bin, &f.o.Python, &f.o.Packages, &f.o.Bundles, &f.o.Monitoring}
	for _, path := range paths {
		abs, err := filepath.Abs(*path)
		if err != nil {
			return nil, err
		}
		*path = abs
	}
	var hosts strings.Builder
	add := func(name string, part, host int) {
		f.hosts[name] = fmt.Sprintf("10.77.%d.%d", part, host)
		fmt.Fprintf(&hosts, "%s %s\n", f.hosts[name], name)
	}
	var names []string
	for i := range 2 {
		f.routers = append(f.routers, &program{name: fmt.Sprintf("router-%d", i+1)})
		add(f.routers[i].name, 0, 11+i)
	}
	for i := range 3 {
		f.servers = append(f.servers, &program{name: fmt.Sprintf("server-%d", i+1)})
		add(f.servers[i].name, 0, 21+i)
	}
	for i := range o.Robots {
		names = append(names, fmt.Sprintf("arm-%d", i+1))
		f.robots = append(f.robots, &robot{program: program{name: names[i]}})
		add(names[i], robotNet, 1+i)
	}
	if err := os.CopyFS(f.dir, os.DirFS(o.Routers)); err != nil {
		return nil, err
	}
	os.RemoveAll(f.file("certificates")) // a reader of the example may have left certificates there
	table := f.file("hosts")
	if err := errors.Join(os.WriteFile(table, []byte(hosts.String()), 0o644),
		f.run("sh", "-c", network, "network.sh", table)); err != nil {
		return nil, err
	}
	return f, f.configure(names)
}

// configure makes the certificates, the manifests and the routers' rules.
func (f *fleet) configure(names []string) error {
	for name := range f.hosts {
		if err := f.certify(name); err != nil {
			return err
		}
	}
	bundle := filepath.Join(f.o.Bundles, "bundle")
	manifest := f.file("server.yaml")
	err := errors.Join(f.certify("server"), f.nextBundle(bundle),
		f.edit(manifest, "../../testdata/demo/bundle", bundle),
		f.edit(manifest, "[arm-a, arm-b]", fmt.Sprintf("[%s]", strings.Join(names, ", "))),
		f.edit(manifest, `["tls/router-1:7447"]`, `["tls/router-1:7447", "tls/router-2:7447"]`),
		f.edit(manifest, "service: demo\n",
			fmt.Sprintf("service: demo\nthreads: 1\nwarmup_inferences: 2\nmax_sessions: %d\n", len(names))))
	if err != nil {
		return err
	}
	if err := f.run(stage.Program(f.o.Bin, "lean-server"), "acl", "--manifest", "server.yaml", "-o",
		"acl.json5"); err != nil {
		return err
	}
	for i := range f.routers {
		config := fmt.Sprintf("sed '/^  access_control:/r acl.json5' mesh-%d.json5 > router-%[1]d.json5", i+1)
		if err := f.run("sh", "-c", config); err != nil {
			return err
		}
	}
	return nil
}

// certify makes, or renews, a certificate.
func (f *fleet) certify(name string, env ...string) error {
	return f.run("env", append(env, f.file("ca.sh"), name)...)
}

// edit replaces the text old in a file by the text with. A file without the text is an error.
func (f *fleet) edit(file, old, with string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), old) {
		return fmt.Errorf("%s holds no %q", file, old)
	}
	return os.WriteFile(file, []byte(strings.Replace(string(text), old, with, 1)), 0o644)
}

func (f *fleet) file(name string) string { return filepath.Join(f.dir, name) }

// run runs a command in the fleet's folder.
func (f *fleet) run(name string, args ...string) error {
	cmd := stage.Command(name, args...)
	cmd.Dir = f.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w: %s", filepath.Base(name), args, err, out)
	}
	return nil
}

// startAll starts routers, servers, robots and Prometheus, and waits until all robots stream.
func (f *fleet) startAll() error {
	for i := range f.routers {
		if err := f.route(i); err != nil {
			return err
		}
	}
	for i := range f.servers {
		if err := f.serve(i); err != nil {
			return err
		}
	}
	for i := range f.robots {
		if err := f.startRobot(i); err != nil {
			return err
		}
		time.Sleep(apart)
	}
	if err := f.observe(); err != nil {
		return err
	}
	return f.stream()
}

// start starts a command in the network namespace that has the program's name.
func (f *fleet) start(p *program, cmd *exec.Cmd) (err error) {
	args := append([]string{"netns", "exec", p.name}, cmd.Args...)
	entered := stage.Command("ip", args...)
	entered.Dir = cmd.Dir
	entered.Env = append(entered.Env, cmd.Env...)
	log := new(stage.Log)
	if p.Child != nil {
		log = p.Log // the log continues that of the robot's earlier processes
	}
	entered.Stdout, entered.Stderr = log, log
	p.Child, err = stage.StartGroup(entered)
	return err
}

// route starts a router.
func (f *fleet) route(n int) error {
	r := f.routers[n]
	cmd := stage.Command(f.o.Python, "router.py", r.name+".json5")
	cmd.Dir, cmd.Env = f.dir, append(cmd.Env, "PYTHONPATH="+f.o.Packages)
	if err := f.start(r, cmd); err != nil {
		return err
	}
	return f.listens(r.name + ":7447")
}

// listens waits until a program listens.
func (f *fleet) listens(at string) error {
	if !f.await(startLimit, func() bool { return stage.Listens(at) }) {
		return fmt.Errorf("%s: no listener within %v", at, startLimit)
	}
	return nil
}

// serve starts a server, and waits until it is ready.
func (f *fleet) serve(n int) error {
	s := f.servers[n]
	if err := f.start(s, stage.Command(stage.Program(f.o.Bin, "lean-server"), "--manifest", f.file("server.yaml"),
		"--audit", f.file(s.name+".jsonl"))); err != nil {
		return err
	}
	if !f.await(startLimit, func() bool {
		reply, err := client.Get("http://" + s.name + serverPort + "/readyz")
		if err == nil {
			reply.Body.Close()
		}
		return err == nil && reply.StatusCode == 200
	}) {
		return fmt.Errorf("%s is not ready within %v: %s", s.name, startLimit, s.Log.Tail(8))
	}
	return nil
}

// startRobot starts robot n. Half of the robots connect to each router first, and to the other router second.
func (f *fleet) startRobot(n int) error {
	r := f.robots[n]
	first, second := f.routers[n%2].name, f.routers[(n+1)%2].name
	pair := f.file("certificates/" + r.name)
	cmd := stage.Edge(f.o.Bin, f.dir, stage.SimArm("tls/"+first+":7447", "--connect", "tls/"+second+":7447", "--id",
		r.name, "--fps", fmt.Sprint(f.o.FPS), "--fps-mismatch", "allow", "--on-exit", "off", "--seed", fmt.Sprint(n+1),
		"--json", f.file(r.name+".json"), "--metrics", "0.0.0.0"+metricsPort, "--http-name", r.name, "--model-change",
		"episode", "--tls-ca",
		f.file("certificates/ca.pem"), "--tls-cert", pair+".pem", "--tls-key", pair+".key")...)
	cmd.Env = append(cmd.Env, "HF_LEROBOT_CALIBRATION="+f.dir)
	return f.start(&r.program, cmd)
}

// observe starts Prometheus, with the configuration and the rules of the folder deploy/monitoring.
func (f *fleet) observe() error {
	if f.o.Prometheus == "" {
		return nil
	}
	config := f.file("prometheus.yaml")
	text, err := os.ReadFile(filepath.Join(f.o.Monitoring, "prometheus.yaml"))
	if err != nil {
		return err
	}
	var robots, servers []string
	for _, r := range f.robots {
		robots = append(robots, fmt.Sprintf("%q", r.name+metricsPort))
	}
	for _, s := range f.servers {
		servers = append(servers, fmt.Sprintf("%q", s.name+serverPort))
	}
	rules := filepath.Join(f.o.Monitoring, "alerts.yaml")
	if err := errors.Join(os.WriteFile(config, text, 0o644),
		f.edit(config, `"arm-1:9101", "arm-2:9101"`, strings.Join(robots, ", ")),
		f.edit(config, `"server-1:9100"`, strings.Join(servers, ", ")),
		f.edit(config, "[alerts.yaml]", fmt.Sprintf("[%q]", rules))); err != nil {
		return err
	}
	cmd := stage.Command(f.o.Prometheus, "--config.file="+config, "--storage.tsdb.path="+f.file("data"),
		"--web.listen-address="+prometheusAt)
	child, err := stage.StartLogged(cmd)
	if err != nil {
		return err
	}
	f.others = append(f.others, child)
	return f.listens(prometheusAt)
}

// await waits until the function ok returns true, but at most for the limit. Meanwhile it reads the robots' metrics
// every second. It returns false if the limit is over.
func (f *fleet) await(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); !ok(); time.Sleep(apart) {
		if time.Now().After(end) {
			return false
		}
		if time.Since(f.looked) > time.Second {
			f.look()
		}
	}
	return true
}

// programs returns all programs that have been started, in the order in which they end.
func (f *fleet) programs() (all []*program) {
	for _, r := range f.robots {
		all = append(all, &r.program)
	}
	return append(append(all, f.servers...), f.routers...)
}

// ended names the programs that have ended, with their last words.
func (f *fleet) ended() string {
	var names []string
	for _, p := range f.programs() {
		if !p.Running() {
			names = append(names, p.name+" ended: "+p.Log.Tail(3))
		}
	}
	return strings.Join(names, "; ")
}

// end ends all programs as an operator does, checks their exit codes, and prints the robots' use of the
// processors since began.
func (f *fleet) end(began time.Time) {
	lasted := time.Since(began)
	for _, r := range f.robots {
		r.Interrupt()
	}
	for _, r := range f.robots {
		_ = r.Wait(startLimit)
	}
	used := map[string]time.Duration{}
	for _, p := range f.programs() {
		_ = p.Stop()
		code := p.State().ExitCode()
		f.checks.That(code == 0, "%s ends with exit code %d", p.name, code)
		kind, _, _ := strings.Cut(p.name, "-")
		used[kind] += p.State().UserTime() + p.State().SystemTime()
	}
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("%d robots at %g Hz used %.2f cores of %d, load average at the end %s", len(f.robots), f.o.FPS,
		used["arm"].Seconds()/lasted.Seconds(), runtime.NumCPU(), load)
}

// kill ends the remaining programs, and keeps their logs.
func (f *fleet) kill() {
	for _, p := range f.programs() {
		if p.Child != nil {
			p.Kill()
			_ = os.WriteFile(f.file(p.name+".log"), []byte(p.Log.Tail(1<<20)), 0o600)
		}
	}
	for _, c := range f.others {
		c.Kill()
	}
}
