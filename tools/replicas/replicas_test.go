package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/stage"
)

// logged returns a program that has only a name and a log.
func logged(name string) *stage.Child {
	return &stage.Child{Log: new(stage.Log), Name: name}
}

// audited makes a stand from the audits of two servers. Each line is "server robot seq outcome ms".
// At 100 ms the stand's robot had to change its server.
func audited(t *testing.T, lines ...[]any) *stand {
	t.Helper()
	began := time.Now().Truncate(time.Millisecond)
	s := &stand{dir: t.TempDir(), over: began.Add(time.Second)}
	for _, name := range []string{"a", "b"} {
		s.servers = append(s.servers, &server{Child: logged(name), audit: filepath.Join(s.dir, name)})
		text := ""
		for _, l := range lines {
			if l[0] == name {
				at := began.Add(time.Duration(l[4].(int)) * time.Millisecond)
				text += fmt.Sprintf(`{"ts":%q,"client_uuid":%q,"seq_id":%d,"outcome":%q,"superseded_seqs":%d}`+"\n",
					at.Format(time.RFC3339Nano), l[1], l[2], l[3], l[5])
			}
		}
		rttest.Do(t, os.WriteFile(s.servers[len(s.servers)-1].audit, []byte(text), 0o600))
	}
	for _, id := range []string{"mover", "other"} {
		s.robots = append(s.robots, &robot{Child: logged(id), id: id})
	}
	s.events = []event{{began.Add(100 * time.Millisecond), map[string]bool{"mover": true}}}
	s.servers[0].endedAt = s.events[0].at
	fmt.Fprintln(s.robots[0].Log, `level=WARN msg="session lost" why="gone"`)
	return s
}

// The audits' content is counted correctly, and each wrong figure fails the scenario.
func TestJudge(t *testing.T) {
	good := [][]any{{"a", "mover", 1, "ok", 50, 0}, {"a", "mover", 2, "ok", 110, 0}, {"b", "mover", 3, "ok", 300, 0},
		{"b", "other", 1, "ok", 60, 0}, {"b", "other", 3, "ok", 90, 1}}
	for _, tt := range []struct {
		name   string
		more   [][]any
		change func(*stand)
		want   row // those counts that differ from the counts of the good stand
		starve uint64
		fails  bool
	}{
		{"all is well", nil, nil, row{}, 0, false},
		{"one is inferred at both", [][]any{{"b", "mover", 2, "ok", 310, 0}}, nil, row{twice: 1}, 0, true},
		{"one is lost", [][]any{{"b", "other", 5, "ok", 310, 0}}, nil, row{inferred: 1, missing: 1}, 0, true},
		{"the draft's may be", [][]any{{"b", draftID, 5, "ok", 310, 0}}, nil, row{inferred: 1}, 0, false},
		{"another loses its session", nil, func(s *stand) { fmt.Fprintln(s.robots[1].Log, `msg="session lost"`) },
			row{lost: 1}, 0, true},
		{"it moves twice", nil, func(s *stand) { fmt.Fprintln(s.robots[0].Log, `msg="session lost"`) }, row{lost: 1}, 0,
			true},
		{"it is late", nil, func(s *stand) {
			s.events[0].at = s.events[0].at.Add(-time.Minute)
			s.servers[0].endedAt = s.events[0].at
		}, row{again: time.Minute}, 0, true},
		{"a tick starves", nil, nil, row{}, 1, true},
		{"one fails at the other server", [][]any{{"b", "other", 4, "inference_failed", 95, 0}}, nil, row{}, 0, true},
		{"one fails at the end", [][]any{{"b", "other", 4, "unsent", 1001, 0}}, nil, row{}, 0, false},
	} {
		s := audited(t, append(good[:len(good):len(good)], tt.more...)...)
		if tt.change != nil {
			tt.change(s)
		}
		r := row{name: tt.name}
		rttest.Do(t, s.readAudits(&r))
		r.starved = tt.starve
		err := r.judge(scenario{again: true, fed: true}, options{Again: 3 * time.Second})
		r.name = ""
		r.starved = 0
		r.problems = nil
		tt.want.inferred += 5
		tt.want.again += 200 * time.Millisecond
		tt.want.moved = 1
		tt.want.superseded = 1
		rttest.Want(t, fmt.Sprintf("%+v", r), fmt.Sprintf("%+v", tt.want), "%s: counted", tt.name)
		rttest.Want(t, err != nil, tt.fails, "whether %s fails (%v)", tt.name, err)
	}
}
