package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// event is one line of go test -json.
//
// Source: go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string // the package that did not build
	Test       string
	Output     string
	Key        string // an attribute's name
}

// report prints the output that go test has without -json, and keeps the failed tests.
type report struct {
	out    io.Writer
	failed tests
	marked tests               // tests that need real time
	hard   string              // the first failure that must not be repeated
	lines  map[string][]string // output of running tests, by package and test
}

// realTime is rttest.RealTimeAttr, the attribute of a test that measures real time. realTimeLater
// sets rttest.RealTimeEnv, so that such tests are skipped until later.
const (
	realTime      = "real-time"
	realTimeLater = "EDGERT_REAL_TIME=later"
)

// never is the pattern of the output of failures that a busy host does not cause.
var never = regexp.MustCompile(`^(WARNING: DATA RACE|panic: |fatal error: )`)

func (r *report) read(in io.Reader) {
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		var e event
		if json.Unmarshal(scan.Bytes(), &e) != nil {
			fmt.Fprintln(r.out, scan.Text())
			continue
		}
		r.take(e)
	}
	if err := scan.Err(); err != nil {
		r.hard = fmt.Sprintf("reading go test: %v", err)
		io.Copy(io.Discard, in)
	}
}

func (r *report) take(e event) {
	top, _, _ := strings.Cut(e.Test, "/")
	key := e.Package + " " + top
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "build-fail":
		r.blame("does not build: " + e.ImportPath)
	case "output":
		if never.MatchString(e.Output) {
			r.blame(e.Package + ": " + strings.TrimSpace(e.Output))
		}
		if top == "" && (strings.HasPrefix(e.Output, "ok ") || strings.HasPrefix(e.Output, "FAIL\t")) {
			fmt.Fprint(r.out, e.Output)
			return
		}
		r.lines[key] = append(r.lines[key], e.Output)
	case "attr":
		if e.Key == realTime && !slices.Contains(r.marked[e.Package], top) {
			r.marked[e.Package] = append(r.marked[e.Package], top)
		}
	case "pass", "skip":
		if top == e.Test {
			delete(r.lines, key)
		}
	case "fail":
		switch {
		case e.Test == "":
			r.end(e.Package, key)
		case top == e.Test:
			r.print(key)
			r.failed[e.Package] = append(r.failed[e.Package], top)
			if !slices.Contains(r.marked[e.Package], top) {
				r.blame(e.Package + " " + top + " failed, and is no test of real time")
			}
		}
	}
}

// end notes that a package failed: because of a test, or for another reason.
func (r *report) end(name, key string) {
	r.print(key)
	if len(r.failed[name]) > 0 {
		return
	}
	for other := range r.lines { // the running test
		if strings.HasPrefix(other, name+" ") {
			r.print(other)
		}
	}
	r.blame(name + " failed without a failed test")
}

// print shows a test's output, without the lines that only report that it runs.
func (r *report) print(key string) {
	for _, line := range r.lines[key] {
		if !strings.HasPrefix(line, "=== ") && line != "FAIL\n" && line != "PASS\n" {
			fmt.Fprint(r.out, line)
		}
	}
	delete(r.lines, key)
}

func (r *report) blame(what string) {
	if r.hard == "" {
		r.hard = what
	}
}
