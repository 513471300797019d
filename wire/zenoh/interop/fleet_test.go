package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh"
	"github.com/edge-rt/edge-rt/wire/zenoh/endpoint"
	"github.com/edge-rt/edge-rt/wire/zenoh/sessiontest"
)

const (
	examples = "../../../examples/router"
	service  = "@lerobot/demo-around-the-post/main/demo"
)

// programs builds edge-rt and lean-server once.
var programs = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "interop-"); err != nil {
		return "", err
	}
	return rttest.Programs(dir, "edge-rt", "lean-server")
})

// fleet is a copy of examples/router, on free ports of this machine, with the certificates that its
// script makes.
type fleet struct {
	t     *testing.T
	bin   string
	dir   string
	ports map[string]string // the port of each router, by its name router-N
}

func newFleet(t *testing.T, routers ...string) *fleet {
	t.Helper()
	f := copyExample(t)
	for _, name := range routers {
		f.ports[name] = sessiontest.FreeEndpoint(t)[len("tcp/127.0.0.1:"):]
		f.run("./ca.sh", name, "localhost", "127.0.0.1")
	}
	for _, name := range []string{"server", "arm-a", "arm-b", "operator"} {
		f.run("./ca.sh", name)
	}
	f.run(filepath.Join(f.bin, "lean-server"), "acl", "--manifest", "server.yaml", "-o", "acl.json5")
	return f
}

// copyExample returns a fleet without certificates.
func copyExample(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, bin: rttest.Must(programs())(t), dir: t.TempDir(), ports: map[string]string{}}
	rttest.Do(t, os.CopyFS(f.dir, os.DirFS(examples)))
	testdata, _ := filepath.Abs("../../../testdata")
	f.edit("server.yaml", "../../testdata", testdata)
	os.RemoveAll(filepath.Join(f.dir, "certificates")) // there may be certificates, if a reader has tried the example
	return f
}

// run runs a command in the fleet's folder to its end.
func (f *fleet) run(name string, args ...string) string {
	f.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = f.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// edit replaces a text in a file. It fails when the file does not contain the text.
func (f *fleet) edit(file, old, new string) {
	f.t.Helper()
	path := filepath.Join(f.dir, file)
	text := rttest.ReadFile(f.t, path)
	if !strings.Contains(text, old) {
		f.t.Fatalf("%s holds no %q", file, old)
	}
	rttest.PanicOn(os.WriteFile(path, []byte(strings.ReplaceAll(text, old, new)), 0o644))
}

// router starts an official router with a configuration of the example and the rules that
// lean-server generated.
func (f *fleet) router(v version, name, config string) {
	f.t.Helper()
	joined := f.run("sed", "/^  access_control:/r acl.json5", config)
	joined = strings.Replace(joined, "0.0.0.0:7447", "127.0.0.1:"+f.ports[name], 1)
	for other, port := range f.ports {
		joined = strings.ReplaceAll(joined, "tls/"+other+":7447", "tls/localhost:"+port)
	}
	file := name + ".json5"
	rttest.PanicOn(os.WriteFile(filepath.Join(f.dir, file), []byte(joined), 0o644))
	log := f.start(v.Python.Path, []string{"PYTHONPATH=" + v.Packages}, "router.py", file)
	rttest.Eventually(f.t, "the router "+name, func() bool { return strings.Contains(log.String(), "router listens") })
}

func (f *fleet) at(router string) string { return "tls/localhost:" + f.ports[router] }

// program collects a program's output.
type program struct {
	cmd *exec.Cmd
	rttest.Output
}

// start starts a program in the fleet's folder, and ends it when the test ends.
func (f *fleet) start(name string, env []string, args ...string) *program {
	f.t.Helper()
	return f.startIn(f.dir, name, env, args...)
}

func (f *fleet) startIn(dir, name string, env []string, args ...string) *program {
	f.t.Helper()
	s := &program{cmd: exec.Command(name, args...)}
	s.cmd.Dir = dir
	s.cmd.Stdout = s
	s.cmd.Stderr = s
	s.cmd.Env = slices.Concat(os.Environ(), env)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	rttest.PanicOn(s.cmd.Start())
	f.t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			s.cmd.Process.Signal(syscall.SIGTERM)
			overdue := time.AfterFunc(patience, func() { s.cmd.Process.Kill() })
			s.cmd.Wait()
			overdue.Stop()
		}
		if f.t.Failed() {
			f.t.Logf("%s %q program:\n%s", filepath.Base(name), args, s)
		}
	})
	return s
}

// server starts lean-server at a router.
func (f *fleet) server(router string) {
	f.t.Helper()
	root, _ := filepath.Abs("../../..") // the program finds ONNX Runtime below this folder
	log := f.startIn(root, filepath.Join(f.bin, "lean-server"), nil, "--manifest", filepath.Join(f.dir, "server.yaml"),
		"--connect", f.at(router), "--health-port", "0")
	rttest.Eventually(f.t, "the server", func() bool { return strings.Contains(log.String(), "serving") })
}

// arm starts a robot with a simulated arm. Its certificate may be that of another robot.
func (f *fleet) arm(id, certificate, router, duration, offline string) *program {
	f.t.Helper()
	state := f.t.TempDir()
	return f.start(filepath.Join(f.bin, "edge-rt"),
		[]string{"STATE_DIRECTORY=" + state, "HF_LEROBOT_CALIBRATION=" + state},
		"--bus", "sim", "--camera", "top=sim", "--id", id, "--connect", f.at(router), "--duration", duration,
		"--max-offline", offline, "--request-timeout", "10s", // official routers share this machine
		"--tls-ca", "certificates/ca.pem", "--tls-cert", "certificates/"+certificate+".pem", "--tls-key",
		"certificates/"+certificate+".key",
		"--json", id+"-as-"+certificate+".json")
}

// streamed waits for the end of a robot's run and checks that it streamed.
func (f *fleet) streamed(id string, s *program) {
	f.t.Helper()
	s.cmd.Wait()
	var summary struct {
		Requests, Chunks uint64
		Dropped          map[string]uint64 `json:"chunks_dropped"`
	}
	rttest.ReadJSON(f.t, filepath.Join(f.dir, id+"-as-"+id+".json"), &summary)
	if code := s.cmd.ProcessState.ExitCode(); code != 0 || summary.Chunks < 5 {
		f.t.Errorf("%s: code %d, %d chunks for %d requests, want code 0 and at least 5", id, code, summary.Chunks,
			summary.Requests)
	}
	if n := strings.Count(s.String(), "session open"); n != 1 {
		f.t.Errorf("%s opened %d sessions, want one", id, n)
	}
	f.t.Logf("%s: %d chunks for %d requests, dropped %v", id, summary.Chunks, summary.Requests, summary.Dropped)
}

// session opens one of our sessions with a certificate of the fleet.
func (f *fleet) session(name, router string) wire.Session {
	file := filepath.Join(f.dir, "certificates", name)
	return ours(f.t, zenoh.Config{Connect: []string{f.at(router)}, TLS: endpoint.Security{
		RootCA: filepath.Join(f.dir, "certificates/ca.pem"), ConnectCertificate: file + ".pem",
		ConnectKey: file + ".key"}})
}

// Goal: the configurations of examples/router work with the real programs, at a single router and across three. Under
// lean-server's rules a robot's certificate gives no rights over another robot.
func TestFleetBehindRouters(t *testing.T) {
	if len(required) == 0 {
		t.Skip("make interop runs it")
	}
	over(t, func(t *testing.T, v version) {
		t.Run("one", func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, "router-1")
			f.router(v, "router-1", "tls.json5")
			f.holds("router-1", "router-1", "router-1")
		})
		t.Run("mesh", func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, "router-1", "router-2", "router-3")
			for name, config := range map[string]string{"router-1": "mesh-1.json5", "router-2": "mesh-2.json5",
				"router-3": "mesh-3.json5"} {
				f.router(v, name, config)
			}
			f.holds("router-1", "router-2", "router-3")
		})
	})
}

// holds runs two servers of a service at the first router, robot arm-b at the second and robot arm-a at the third. At
// the third router a forger with arm-a's certificate tries to act as arm-b.
func (f *fleet) holds(server, robots, attacker string) {
	t := f.t
	f.server(server)
	f.server(server) // two replicas, one of which has each robot's session
	a, b := f.arm("arm-a", "arm-a", attacker, "6s", "20s"), f.arm("arm-b", "arm-b", robots, "12s", "20s")
	operator := f.session("operator", server)
	var heard, stolen, tokens diary
	rttest.OrPanic(operator.Subscribe(service+"/*/obs", func(s wire.Sample) {
		if len(s.Payload) < 100 { // a real robot's observation is longer
			heard.Note(string(s.Payload))
		}
	}))
	rttest.OrPanic(operator.SubscribeTokens(service+"/**", tokens.Deposit))
	opened := regexp.MustCompile(`session open.*session=(\S+)`)
	rttest.Eventually(t, "arm-b's session", func() bool { return opened.MatchString(b.String()) })
	id := opened.FindStringSubmatch(b.String())[1]

	forger := f.session("arm-a", attacker)
	rttest.OrPanic(forger.Subscribe(service+"/arm-b/action", stolen.sample))
	rttest.OrPanic(forger.Subscribe(service+"/**", func(s wire.Sample) {
		if s.Key != service+"/arm-a/action" { // the only key on which the forger may receive
			stolen.Note(s.Key)
		}
	}))
	rttest.OrPanic(forger.Token(service + "/arm-b/99/alive"))
	rttest.OrPanic(forger.Token(service + "/arm-a/98/alive"))
	rttest.OrPanic(forger.Queryable(service+"/arm-b/session", func(q wire.Query) { stolen.Note(q.Key()); q.Finish() }))
	rttest.OrPanic(forger.Queryable(service+"/status", func(q wire.Query) { stolen.Note(q.Key()); q.Finish() }))
	open := wire.Append(nil, &wire.SessionOpen{ClientUUID: "arm-b", SchemaVersion: wire.SchemaVersion})
	end := wire.Append(nil, &wire.SessionClose{ClientUUID: "arm-b", SessionID: id})
	ask := func(key string, body []byte, want int) {
		t.Helper()
		replies, err := forger.Get(t.Context(), service+key, body, patience)
		if err != nil || len(replies) != want {
			t.Errorf("arm-a's certificate asks %s: %d replies, %v, want %d", key, len(replies), err, want)
		}
	}
	ask("/status", nil, 2)
	for _, key := range []string{"/arm-b/session", "/session", "/*/session"} {
		ask(key, open, 0)
		ask(key, end, 0)
	}
	ask("/arm-a/session", end, 1) // refused with a reason: a session of arm-b cannot be ended at this key
	ask("/arm-b/reset", nil, 0)
	for _, key := range []string{"/arm-b/obs", "/arm-b/action", "/arm-a/obs"} {
		p := rttest.OrPanic(forger.Publisher(service+key, wire.QoS{Reliable: true, Block: true}))
		rttest.PanicOn(p.Put([]byte("forged "+key), nil))
	}
	heard.reads(t, "forged /arm-a/obs")
	rttest.Eventually(t, "arm-a's own token", func() bool {
		return slices.Contains(tokens.Entries(), "+"+service+"/arm-a/98/alive")
	})
	if all := tokens.Entries(); slices.Contains(all, "+"+service+"/arm-b/99/alive") {
		t.Errorf("arm-a's certificate shows arm-b's token: %v", all)
	}
	keys, err := forger.Tokens(t.Context(), wire.ServerAliveAny, patience)
	if err != nil || len(keys) != 1 {
		t.Errorf("arm-a's certificate sees servers %v, %v, want one", keys, err)
	}
	for _, key := range []string{service + "/arm-b/*/alive", service + "/*/*/alive"} {
		keys, err := forger.Tokens(t.Context(), key, patience)
		if others := slices.DeleteFunc(keys, func(k string) bool {
			return strings.HasPrefix(k, service+"/arm-b/99") || strings.HasPrefix(k, service+"/arm-a/98")
		}); err != nil || len(others) != 0 {
			t.Errorf("arm-a's certificate sees the tokens %v at %s, %v, want none", others, key, err) // other tokens
		}
	}
	twin := f.arm("arm-b", "arm-a", attacker, "30s", "3s")
	f.streamed("arm-a", a)
	f.streamed("arm-b", b)
	rttest.Want(t, len(stolen.Entries()), 0, "samples for the thief of arm-a's certificate")
	twin.cmd.Wait()
	if code := twin.cmd.ProcessState.ExitCode(); code != 4 || !strings.Contains(twin.String(), "names arm-a") {
		t.Errorf("arm-b with arm-a's certificate: code %d, want 4 and what its certificate names", code)
	}
}
