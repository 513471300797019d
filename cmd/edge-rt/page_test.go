package main

import (
	"bytes"
	"encoding/json"
	"image/jpeg"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/edge-rt/edge-rt/edge"
	"github.com/edge-rt/edge-rt/rt/rttest"
)

// look fetches one path of a page as soon as the page answers.
func get(t *testing.T, url string) (text []byte, head http.Header) {
	t.Helper()
	client := http.Client{Timeout: patience}
	rttest.Eventually(t, url, func() bool {
		r, err := client.Get(url)
		if err != nil {
			return false
		}
		defer r.Body.Close()
		text, err = io.ReadAll(r.Body)
		head = r.Header
		return err == nil && r.StatusCode == http.StatusOK
	})
	return text, head
}

// The real program's page shows the state, the joints' positions and the camera pictures: the first
// camera is encoded for the server, the second is sent raw.
func TestThePageOfARun(t *testing.T) {
	t.Parallel()
	for _, quality := range []string{"90", "0"} {
		t.Run("quality "+quality, func(t *testing.T) {
			t.Parallel()
			s := newHoldServer(t)
			port := strings.TrimPrefix(freePort(t), "tcp/127.0.0.1:")
			file := filepath.Join(t.TempDir(), "edge.json")
			cmd := exec.Command(binary, "--quiet", "--fps", "10", "--bus", "sim", "--camera", "front=sim", "--camera",
				"wrist=pattern:320x240", "--jpeg-quality", quality,
				"--id", "arm", "--connect", s.Endpoint, "--http", port, "--json", file)
			cmd.Env, cmd.Stderr = append(os.Environ(), "STATE_DIRECTORY="+t.TempDir()), os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill() })
			url := "http://127.0.0.1:" + port
			var live edge.Live
			rttest.Eventually(t, "streaming", func() bool {
				text, head := get(t, url+"/status.json")
				if err := json.Unmarshal(text, &live); err != nil ||
					!strings.HasPrefix(head.Get("Content-Type"), "application/json") {
					t.Fatalf("status: %v, %s", err, text)
				}
				return live.Ticks >= 10 && live.State == "STREAMING" && live.Actions > 0
			})
			if live.ID != "arm" || live.Robot != "so101" || len(live.Joints) != 6 ||
				live.Joints[0].Name != "shoulder_pan.pos" || live.Bus.Cycles == 0 ||
				live.Tick.ActionAgeMS == nil || live.Frames["front"].Captured == 0 || live.Server == nil ||
				live.Server.Model != "test/still" || !live.Simulated {
				t.Errorf("status: %+v", live)
			}
			for name, size := range map[string][2]int{"front": {640, 480}, "wrist": {320, 240}} {
				text, head := get(t, url+"/camera/"+name)
				m, err := jpeg.Decode(bytes.NewReader(text))
				if err != nil || m.Bounds().Dx() != size[0] || m.Bounds().Dy() != size[1] ||
					head.Get("Content-Type") != "image/jpeg" || head.Get("X-Frame-Age-Ms") == "" {
					t.Errorf("camera %s: %v, %v; want a JPEG of %v with its age", name, err, head, size)
				}
			}
			if text, _ := get(t, url+"/"); !bytes.Contains(text, []byte("<title>edge-rt</title>")) {
				t.Errorf("the page: %s", text)
			}
			if text, _ := get(t, url+"/healthz"); string(text) != "ok\n" {
				t.Errorf("health: %q", text)
			}
			cmd.Process.Signal(syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				t.Errorf("it ends with %v", err)
			}
			var summary edge.Summary
			if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, &summary) != nil ||
				summary.Page == nil || summary.Page.Pictures < 2 || summary.Page.Requests < 5 {
				t.Errorf("summary: %v, %+v", err, summary.Page)
			}
			if _, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
				t.Error("somebody listens still")
			}
		})
	}
}

// A page that cannot be served ends the start before the arm is opened.
func TestAPageThatCannotBe(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, tt := range []struct {
		address, says string
		code          int
	}{
		{taken.Addr().String(), "address already in use", 1},
		{"192.0.2.1:8080", "192.0.2.1:8080", 1}, // an address reserved for documentation, RFC 5737
		{"0", "want 1 to 65535", 2},
		{"localhost", "such as 127.0.0.1:8080", 2},
	} {
		code, stdout, stderr := edgeRT(t, "--quiet", "--bus", "/dev/ttyNONE", "--connect", unreachable, "--http",
			tt.address)
		if code != tt.code || stdout != "" || strings.Count(stderr, "\n") != 1 ||
			!strings.Contains(stderr, "--http: ") || !strings.Contains(stderr, tt.says) {
			t.Errorf("--http %s: exit code %d, %s%s; want %d and one line with %q", tt.address, code, stdout, stderr,
				tt.code, tt.says)
		}
	}
}
