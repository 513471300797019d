package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/internal/webpage/webpagetest"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage/stagetest"
)

// takePictures makes the screenshots of the documents again. They show a run of the demo's policy:
//
//	EDGERT_CHROMIUM=1 EDGERT_SCREENSHOTS=docs/page go test -run ThePageInChromium ./cmd/edge-rt
func takePictures(t *testing.T, dir string) {
	dir = filepath.Join("..", "..", dir)
	_, endpoint := startLeanServer(t, demo+"/server.yaml")
	_, port := stagetest.FreeEndpoint(t)
	r, address := startPaged(t, endpoint, port, filepath.Join(t.TempDir(), "token"), "60", "top")
	began := time.Now()
	for _, step := range []struct {
		at   time.Duration
		word string
	}{{25 * time.Second, "pause"}, {29 * time.Second, "resume"}, {44 * time.Second, "reset"},
		{62 * time.Second, "status"}} {
		// Nobody views the page during this time; when it opens, it still gets the last minute.
		time.Sleep(time.Until(began.Add(step.at)))
		r.wants(0, "", step.word)
	}
	for name, size := range map[string][2]int{"edge-rt": {1200, 1180}, "edge-rt-phone": {360, 1500}} {
		tab := webpagetest.Open(t, address, size[0], size[1], size[0] < 500)
		tab.Wait("past && past.rows.length >= 590 && document.querySelector('figure img').naturalWidth > 0 && " +
			"document.querySelector('figure.old') === null")
		tab.Picture(filepath.Join(dir, name+".png"), false)
	}
}

// startPaged starts a run with a page on the given port, whose token is in tokenFile. It returns the page's address
// with the token; without the token the page has no buttons.
func startPaged(t *testing.T, endpoint, port, tokenFile, fps, camera string) (r *process, address string) {
	t.Helper()
	r = edgeCommand(t, []string{"--fps", fps, "--bus", "sim", "--camera", camera + "=sim", "--id", "arm", "--connect",
		endpoint, "--http", port, "--http-token", tokenFile, "--rt", "off", "--record", "off"}, "--quiet")
	r.Start()
	get(t, "http://127.0.0.1:"+port+"/status.json")
	token := rttest.Must(os.ReadFile(tokenFile))(t)
	return r, "http://127.0.0.1:" + port + "/#token=" + strings.TrimSpace(string(token))
}

// shownButtons is the script that returns the names of the visible buttons, in their order on the
// page.
const shownButtons = "[...document.querySelectorAll('#buttons button')].filter(b => b.getBoundingClientRect().width " +
	"> 0).sort((a, b) => getComputedStyle(a).order - getComputedStyle(b).order).map(b => b.id.slice(3)).join(' ')"

// onAPhone checks the page on a phone's screen: the camera is visible, Stop is visible at every
// scroll position, and neither the page nor a table is cut off or scrolls sideways.
func onAPhone(t *testing.T, address string) {
	t.Helper()
	const width, height = 390, 844
	b := webpagetest.Open(t, address, width, height, true)
	b.Wait("document.querySelector('figure img').naturalWidth > 0 && past && past.rows.length > 5 && " +
		"document.querySelectorAll('#joints tr').length === 7")
	top := func(selector string) string {
		return "document.querySelector('" + selector + "').getBoundingClientRect().top"
	}
	for _, later := range []string{"#joints", "#tick", "#plots", "#task"} {
		if b.Eval(top("#views figure")+" < "+top(later)) != "true" {
			t.Errorf("%s comes before the camera: %s, and %s; the screen is %s wide", later, b.Eval(top(later)),
				b.Eval(top("#views figure")), b.Eval("innerWidth"))
		}
	}
	if at := b.Eval("document.querySelector('figure img').getBoundingClientRect().bottom <= " +
		"innerHeight"); at != "true" {
		t.Error("the camera is not on the first screen")
	}
	for _, place := range []string{"0", "document.body.scrollHeight / 2", "document.body.scrollHeight"} {
		b.Eval("scrollTo(0, " + place + ")")
		for _, word := range []string{"stop", "pause"} {
			b.Wait("(() => { const r = document.getElementById('do-" + word +
				"').getBoundingClientRect(); return r.top >= 0 && r.bottom <= innerHeight && r.left >= 0 && r.right " +
				"<= innerWidth && r.height >= 40 && " +
				"document.elementFromPoint((r.left + r.right) / 2, (r.top + r.bottom) / 2).id === 'do-" + word +
				"'; })()")
		}
	}
	if wide := b.Eval("document.documentElement.scrollWidth"); wide != fmt.Sprint(width) {
		t.Errorf("the page is %s wide, want %d", wide, width)
	}
	cut := "[...document.querySelectorAll('table, td, section, .wide')].filter(e => { const r = " +
		"e.getBoundingClientRect(); return r.width > 0 && (r.left < 0 || r.right > innerWidth || e.scrollWidth > " +
		"e.clientWidth + 1); }).map(e => e.tagName + '#' + e.id + ' ' + e.textContent.slice(0, 20)).join('; ')"
	rttest.Want(t, b.Eval(cut), "", "cut off")
	hidden := "[...document.querySelectorAll('table td')].filter(e => e.textContent && " +
		"e.getBoundingClientRect().width === 0).map(e => e.textContent).join('; ')"
	rttest.Want(t, b.Eval(hidden), "", "left out of the tables")
	if dir := os.Getenv("EDGERT_PHONE"); dir != "" {
		b.Eval("scrollTo(0, 0)")
		b.Picture(filepath.Join(dir, "phone-top.png"), false)
		b.Eval("scrollTo(0, document.body.scrollHeight)")
		b.Picture(filepath.Join(dir, "phone-end.png"), false)
	}
	if len(b.Errors) > 0 {
		t.Errorf("the page's script: %q", b.Errors)
	}
}

// Goal: in Debian's Chromium a person sees the last minute as lines, and pauses and resumes the arm with buttons; each
// use leaves a mark on the page. A person must confirm the end of the run, and the page shows the edge again after its
// restart. The token does not stay in the address, and a page without the token has no buttons.
func TestThePageInChromium(t *testing.T) {
	webpagetest.Chromium(t)
	s := newHoldServer(t)
	_, port := stagetest.FreeEndpoint(t)
	token := filepath.Join(t.TempDir(), "token")
	r, address := startPaged(t, s.Endpoint, port, token, "10", "front")
	b := webpagetest.Open(t, address, 1200, 1000, false)
	marks := "document.getElementById('happened').innerText"
	state := "document.getElementById('state').textContent"
	paused := state + ".endsWith(', paused')" // on a busy machine the pause may begin in any state
	b.Wait(state + " === 'STREAMING'")
	b.Wait("document.querySelectorAll('.plot').length === 11 && past.rows.length > 20")
	b.Wait(marks + ".includes('state')")
	if at := b.Eval("location.href"); strings.Contains(at, "token") {
		t.Errorf("the address is %s, want it without the token", at)
	}
	colored := "(() => { const c = document.querySelectorAll('.plot canvas')[%d], d = " +
		"c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0; for (let i = 3; i < d.length; i " +
		"+= 4) if (d[i]) n++; return n; })()"
	for plot := range 11 {
		b.Wait(fmt.Sprintf(colored+" > 50", plot))
	}

	rttest.Want(t, b.Eval(shownButtons), "stop pause reset release", "the buttons (only those that do something now)")
	b.Click("#do-pause")
	b.Wait(paused)
	b.Wait(shownButtons + " === 'stop resume reset release'")
	b.Wait(marks + ".includes('operator') && " + marks + ".includes('pause')")
	b.Wait("past.rows.some(row => row && row[5] & 1)")
	if _, reply, says := r.ctl("status"); !reply.Paused {
		t.Errorf("ctl says %+v, %s; want the arm paused", reply, says)
	}
	b.Click("#do-resume")
	b.Wait("!(" + paused + ")")
	b.Wait(shownButtons + ".startsWith('stop pause')")
	b.Wait(marks + ".includes('resume')")
	if len(b.Dialogs) != 0 {
		t.Errorf("it was asked %q before a pause", b.Dialogs)
	}

	b.Refuse = true
	b.Click("#do-stop")
	rttest.Eventually(t, "a question", func() bool { b.Eval("1"); return len(b.Dialogs) == 1 })
	if b.Eval("document.getElementById('said').textContent") != "Resume: done" {
		t.Error("a command that was not confirmed was sent")
	}
	onAPhone(t, address)
	// late is a visitor who comes later, on a phone and without the token.
	late := webpagetest.Open(t, "http://127.0.0.1:"+port+"/", 360, 740, true)
	late.Wait("past && past.rows.length > 20 && " + marks + ".includes('pause')")
	if late.Eval("document.getElementById('operate').hidden") != "true" ||
		late.Eval("document.getElementById('enter').hidden") != "false" {
		t.Error("who has no token gets buttons")
	}
	if wide := late.Eval("document.documentElement.scrollWidth"); wide != "360" {
		t.Errorf("the page is %s wide on a phone of 360: %s", wide,
			late.Eval("[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > "+
				"361).map(e => e.tagName + '#' + e.id + '.' + e.className).join(' ')"))
	}

	b.Refuse = false
	b.Click("#do-stop")
	r.EndsWith(0)
	b.Wait(state + " === 'no answer'")
	again, _ := startPaged(t, s.Endpoint, port, token, "10", "front")
	b.Wait(state + " === 'STREAMING'")
	b.Wait("past.rows.length > 5 && !" + marks + ".includes('pause')") // the lines are those of the new run
	b.Click("#do-pause")                                               // the token is still valid
	b.Wait(paused)
	again.End(syscall.SIGTERM)
	for _, tab := range []*webpagetest.Tab{b, late} {
		if len(tab.Errors) > 0 {
			t.Errorf("the page's script: %q", tab.Errors)
		}
	}
	if dir := os.Getenv("EDGERT_SCREENSHOTS"); dir != "" {
		takePictures(t, dir)
	}
}

// While a person presses a jog button of the page, the button's joint moves. The joint stops when the person
// releases the button, or when the page's window loses the focus.
func TestJogInChromium(t *testing.T) {
	rttest.RealTime(t)
	webpagetest.Chromium(t)
	_, port := stagetest.FreeEndpoint(t)
	token := rttest.WriteFile(t, t.TempDir(), "token", "a-token-of-more-than-22-characters")
	r := edgeCommand(t, []string{"teleop", "--jog", "--bus", "sim", "--id", "arm", "--http", port, "--http-token",
		token,
		"--rt", "off"}, "--quiet")
	r.Start()
	get(t, "http://127.0.0.1:"+port+"/status.json")
	b := webpagetest.Open(t, "http://127.0.0.1:"+port+"/#token=a-token-of-more-than-22-characters", 1200, 900, false)
	b.Wait("document.querySelectorAll('#jogs button').length === 12 && byId('state').textContent === 'STREAMING'")
	const goal = "Number(document.querySelector('#joints tr:nth-child(2) td:nth-child(3)').textContent)"
	b.Eval("began = " + goal)
	const button = "document.querySelectorAll('#jogs button')[1]"
	b.Eval("HTMLElement.prototype.setPointerCapture = () => {}") // a scripted event has no pointer to capture
	b.Eval(button + ".dispatchEvent(new PointerEvent('pointerdown'))")
	b.Wait(goal + " > began + 3")
	b.Eval(button + ".dispatchEvent(new PointerEvent('pointerup'))")
	time.Sleep(time.Second) // longer than the lease and an interval of the status together
	b.Eval("at = " + goal)
	time.Sleep(time.Second) // two intervals of the status
	if b.Eval(goal+" === at") != "true" {
		t.Error("the joint moves after the release")
	}
	rttest.Want(t, b.Eval("byId('said').textContent"), "", "the page says")
}

// Goal: the page of a robot with two arms has a column for each arm, with the arm's state. On a phone the columns are
// one below the other. A base has a separate panel.
func TestPartsInChromium(t *testing.T) {
	webpagetest.Chromium(t)
	for _, tt := range []struct {
		robot  string
		titles string
		rows   string
	}{
		{"bi_so101", "left|right", "7 7"},
		{"lekiwi", "Joints|Base", "7 4"},
	} {
		_, port := stagetest.FreeEndpoint(t)
		r := edgeCommand(t, []string{"--fps", "10", "--bus", "sim", "--id", "arm", "--connect",
			newHoldServer(t).Endpoint,
			"--http", port, "--rt", "off", "--record", "off"}, "--quiet", "--robot", tt.robot)
		r.Start()
		address := "http://127.0.0.1:" + port + "/"
		get(t, address+"status.json")
		for _, size := range [][2]int{{1200, 900}, {390, 844}} {
			b := webpagetest.Open(t, address, size[0], size[1], size[0] < 500)
			b.Wait("[...document.querySelectorAll('#joints h2 b')].map(e => e.textContent).join('|') === '" +
				tt.titles +
				"' && [...document.querySelectorAll('#joints table')].map(e => e.rows.length).join(' ') === '" +
				tt.rows + "'")
			beside := b.Eval("document.querySelector('#joints').children[0].offsetTop === " +
				"document.querySelector('#joints').children[1].offsetTop")
			rttest.Want(t, beside, fmt.Sprint(size[0] > 500), "%s, %d wide: the columns are side by side", tt.robot,
				size[0])
			if wide := b.Eval("document.documentElement.scrollWidth"); wide != fmt.Sprint(size[0]) {
				t.Errorf("%s: the page is %s wide, want %d", tt.robot, wide, size[0])
			}
			if dir := os.Getenv("EDGERT_PHONE"); dir != "" {
				b.Eval("scrollTo(0, document.body.scrollHeight)")
				b.Picture(filepath.Join(dir, fmt.Sprintf("%s-%d.png", tt.robot, size[0])), false)
			}
			if len(b.Errors) > 0 {
				t.Errorf("the page's script: %q", b.Errors)
			}
		}
		r.EndsWith(0, syscall.SIGTERM)
	}
}
