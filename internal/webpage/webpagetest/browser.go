// Package webpagetest opens a page in Debian's Chromium and operates it, for the tests of the
// programs' pages. It controls the browser through a pipe, by the protocol of the browser's
// developer tools.
package webpagetest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

const (
	patience  = 60 * time.Second // longest time for an answer on a busy machine
	pollEvery = 50 * time.Millisecond
)

// Tab is the only tab of a browser process.
type Tab struct {
	t       testing.TB
	in      *os.File
	out     *bufio.Reader
	pipe    *os.File
	session string
	next    int

	Dialogs []string // texts of the page's dialogs
	Refuse  bool     // true: the page's dialogs are dismissed
	Errors  []string // errors of the page's script, and requests that the page's policy has blocked
}

// need is the environment variable under which these tests run (make page-test).
const need = "EDGERT_CHROMIUM"

// Chromium returns the browser's path. It skips the test without EDGERT_CHROMIUM=1, and fails it
// without a browser.
func Chromium(t testing.TB) string {
	t.Helper()
	if os.Getenv(need) == "" {
		t.Skip("make page-test runs this")
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("no chromium: apt install chromium")
	}
	return path
}

// Open opens an address in a window of width x height; mobile makes it a phone with a touch screen.
// Like the function Chromium, it may skip the test.
func Open(t testing.TB, address string, width, height int, mobile bool) *Tab {
	t.Helper()
	path := Chromium(t)
	toRead, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, toWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	c.ExtraFiles = []*os.File{toRead, toWrite}
	rttest.Do(t, c.Start())
	toRead.Close()
	toWrite.Close()
	b := &Tab{
		t:    t,
		in:   in,
		out:  bufio.NewReaderSize(out, 1<<20),
		pipe: out,
	}
	t.Cleanup(func() {
		in.Close() // closing the pipe ends the browser
		overdue := time.AfterFunc(patience, func() { c.Process.Kill() })
		defer overdue.Stop()
		c.Wait()
		out.Close()
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	b.call("Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}, nil)
	if mobile {
		b.call("Emulation.setTouchEmulationEnabled", map[string]any{"enabled": true}, nil)
	}
	b.visit(address)
	return b
}

// visit opens another address.
func (b *Tab) visit(address string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": address}, nil)
}

// Eval returns the value of a JavaScript expression, as text.
func (b *Tab) Eval(expression string) string {
	b.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	b.call("Runtime.evaluate", map[string]any{"expression": "String(" + expression + ")", "awaitPromise": true,
		"returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, r.ExceptionDetails.Exception.Description)
	}
	return fmt.Sprint(r.Result.Value)
}

// Wait waits until an expression is true; an expression that fails counts as not true.
func (b *Tab) Wait(expression string) {
	b.t.Helper()
	for end := time.Now().Add(patience); b.Eval("(() => { try { return !!("+expression+
		"); } catch { return false; } })()") != "true"; time.Sleep(pollEvery) {
		if time.Now().After(end) {
			b.t.Fatalf("it never came that %s; errors %q; the page:\n%.4000s", expression, b.Errors,
				b.Eval("document.body && document.body.innerText"))
		}
	}
}

// Click clicks at the position of the element that the selector matches, as a finger or a mouse does.
func (b *Tab) Click(selector string) {
	b.t.Helper()
	b.Wait("document.querySelector(" + quote(selector) + ")")
	var at struct{ X, Y float64 }
	text := b.Eval("(() => { const e = document.querySelector(" + quote(selector) +
		"); e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); return JSON.stringify({X: r.x " +
		"+ r.width / 2, Y: r.y + r.height / 2}); })()")
	rttest.PanicOn(json.Unmarshal([]byte(text), &at))
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		b.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y,
			"button": "left", "clickCount": 1}, nil)
	}
}

// Picture writes a picture of the window, or of the whole page, as PNG.
func (b *Tab) Picture(name string, whole bool) {
	b.t.Helper()
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": whole}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(name, png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func quote(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

// call sends one command, and reads until its answer comes.
func (b *Tab) call(method string, params, result any) {
	b.t.Helper()
	id := b.send(method, params)
	for {
		b.pipe.SetReadDeadline(time.Now().Add(patience))
		text, err := b.out.ReadBytes(0)
		if err != nil {
			b.t.Fatalf("chromium: %s: %v", method, err)
		}
		var m struct {
			ID     int
			Method string
			Params json.RawMessage
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		rttest.PanicOn(json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m))
		switch {
		case m.ID == 0:
			b.event(m.Method, m.Params)
		case m.ID != id:
		case m.Error != nil:
			b.t.Fatalf("chromium: %s: %s", method, m.Error.Message)
		case result != nil:
			rttest.PanicOn(json.Unmarshal(m.Result, result))
			return
		default:
			return
		}
	}
}

func (b *Tab) send(method string, params any) (id int) {
	b.next++
	m := map[string]any{"id": b.next, "method": method}
	if params != nil {
		m["params"] = params
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	text, err := json.Marshal(m)
	if err == nil {
		_, err = b.in.Write(append(text, 0))
	}
	if err != nil {
		b.t.Fatalf("chromium: %s: %v", method, err)
	}
	return b.next
}

func (b *Tab) event(method string, params json.RawMessage) {
	switch method {
	case "Page.javascriptDialogOpening":
		var d struct{ Message string }
		_ = json.Unmarshal(params, &d)
		b.Dialogs = append(b.Dialogs, d.Message)
		b.send("Page.handleJavaScriptDialog", map[string]any{"accept": !b.Refuse})
	case "Runtime.exceptionThrown":
		b.Errors = append(b.Errors, string(params))
	case "Log.entryAdded": // a request that the policy has blocked counts as an error
		if text := string(params); strings.Contains(text, "Content Security Policy") {
			b.Errors = append(b.Errors, text)
		}
	}
}
