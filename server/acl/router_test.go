package acl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire"
	"github.com/edge-rt/edge-rt/wire/zenoh/access"
	"github.com/edge-rt/edge-rt/wire/zenoh/keyexpr"
)

// rulebook is the access_control of an official router, as the test decodes it from RouterRules' output.
type rulebook struct {
	Enabled  bool
	Default  string `json:"default_permission"`
	Rules    []rule
	Subjects []subject
	Policies []policy
}

func rules(t *testing.T, f Fleet) (book rulebook, text string) {
	t.Helper()
	var b bytes.Buffer
	rttest.Do(t, (&Service{Prefix: prefix}).RouterRules(&b, f))
	plain := regexp.MustCompile(`(?m)^//.*$`).ReplaceAll(b.Bytes(), nil)
	plain = regexp.MustCompile(`,(\s*[\]}])`).ReplaceAll(plain, []byte("$1")) // JSON5 to JSON
	if err := json.Unmarshal(plain, &book); err != nil {
		t.Fatalf("%v:\n%s", err, plain)
	}
	if !book.Enabled || book.Default != "deny" {
		t.Errorf("enabled %v, default %q, want true, deny", book.Enabled, book.Default)
	}
	return book, b.String()
}

// lets reports whether the rules allow a message, as an official router decides it.
func (b *rulebook) lets(name, flow, message, key string) bool {
	for _, p := range b.Policies {
		for _, s := range b.Subjects {
			if !slices.Contains(p.Subjects, s.ID) || !slices.Contains(s.Names, name) {
				continue
			}
			for _, r := range b.Rules {
				if slices.Contains(p.Rules, r.ID) && r.Permission == allow && slices.Contains(r.Flows, flow) &&
					slices.Contains(r.Messages, message) &&
					slices.ContainsFunc(r.KeyExprs, func(e string) bool { return keyexpr.Includes(e, key) }) {
					return true
				}
			}
		}
	}
	return false
}

// A robot has the same rights at a router as at this server's listener, on every key of the
// service, except the session key that all robots share.
func TestARouterKeepsTheSameRule(t *testing.T) {
	s := &Service{Prefix: prefix}
	book, _ := rules(t, Fleet{Robots: []string{"arm-a", "arm-b"}, Servers: []string{"server"},
		Routers: []string{"boss"}})
	keys := []string{wire.StatusKey(prefix), wire.ServerAliveKey(prefix), prefix + "/server/x/alive",
		wire.ServerAliveAny, prefix + "/**", "**", "@lerobot/**", "other/key"}
	for _, id := range []string{"arm-a", "arm-b", "arm-c", "*"} {
		for _, leaf := range []string{"/obs", "/action", "/session", "/reset", "/alive", "/7/alive", "/*/alive",
			"/held/x", "/**"} {
			keys = append(keys, prefix+"/"+id+leaf)
		}
	}
	for _, name := range []string{"arm-a", "arm-b"} {
		rights, allowed := s.Rights([]string{name}), 0
		for m := range access.NumMessages {
			for _, key := range keys {
				for _, message := range ingress[m] {
					if got, want := book.lets(name, inward, message, key), rights.Allows(m, key); got != want {
						t.Errorf("%s, %s on %s: the router says %v, our listener %v", name, message, key, got, want)
					} else if got {
						allowed++
					}
				}
			}
		}
		if allowed < 8 {
			t.Errorf("%s: only %d messages are allowed", name, allowed)
		}
		if book.lets(name, inward, "query", wire.SessionKey(prefix)) {
			t.Errorf("%s may open a session for anybody", name)
		}
	}
	for _, tt := range []struct {
		name, flow, message, key string
		want                     bool
	}{
		{"arm-a", outward, "put", prefix + "/arm-a/action", true},
		{"arm-a", outward, "put", prefix + "/arm-b/action", false},
		{"arm-a", outward, "put", prefix + "/arm-a/obs", false},
		{"arm-a", outward, "reply", prefix + "/arm-a/session", true},
		{"arm-a", outward, "reply", prefix + "/arm-b/session", false},
		{"arm-a", outward, "reply", prefix + "/status", true},
		{"arm-a", outward, "query", prefix + "/arm-a/session", false},
		{"arm-a", outward, "declare_subscriber", prefix + "/*/obs", true},
		{"arm-a", outward, "declare_subscriber", prefix + "/arm-a/obs", true},
		{"arm-a", outward, "declare_queryable", prefix + "/*/session", true},
		{"arm-a", outward, "liveliness_token", prefix + "/server/alive", true},
		{"arm-a", outward, "liveliness_token", "@lerobot/other/main/s/server/alive", true},
		{"arm-a", outward, "liveliness_token", prefix + "/arm-b/alive", false},
		{"arm-a", inward, "declare_queryable", prefix + "/arm-a/session", false},
		{"server", inward, "declare_queryable", prefix + "/*/session", true},
		{"server", outward, "put", prefix + "/arm-a/obs", true},
		{"server", inward, "put", "@lerobot/other/main/s/arm-a/action", false},
		{"boss", inward, "put", "any/key", true},
		{"boss", outward, "liveliness_token", prefix + "/arm-a/7/alive", true},
		{"arm-c", inward, "query", prefix + "/status", false},
		{"", outward, "put", prefix + "/arm-a/action", false},
	} {
		rttest.Want(t, book.lets(tt.name, tt.flow, tt.message, tt.key), tt.want, "%q, %s %s on %s", tt.name, tt.flow,
			tt.message, tt.key)
	}
}

// The rules are complete: the ids of rules and subjects are unique, and every policy names existing ones. Otherwise a
// router would refuse the configuration.
func TestRulesAreWhole(t *testing.T) {
	book, text := rules(t, Fleet{Robots: []string{"routers", "servers", "robots"}, Servers: []string{`odd "name"`},
		Routers: []string{"a", "b"}})
	ids := map[string]int{}
	for _, r := range book.Rules {
		ids["rule "+r.ID]++
		if len(r.Messages) == 0 || len(r.KeyExprs) == 0 || len(r.Flows) == 0 {
			t.Errorf("rule %+v has an empty list", r)
		}
		for _, key := range r.KeyExprs {
			if err := keyexpr.Check(key); err != nil {
				t.Errorf("rule %s: %v", r.ID, err)
			}
		}
	}
	for _, s := range book.Subjects {
		ids["subject "+s.ID]++
	}
	for id, n := range ids {
		rttest.Want(t, n, 1, "count of %s", id)
	}
	for _, p := range book.Policies {
		for _, id := range p.Rules {
			if ids["rule "+id] == 0 {
				t.Errorf("no rule %q", id)
			}
		}
		if ids["subject "+p.Subjects[0]] == 0 {
			t.Errorf("no subject %q", p.Subjects[0])
		}
	}
	if !strings.HasPrefix(text, "// Made by lean-server acl for "+prefix) {
		t.Errorf("it begins with %.80q", text)
	}
}

func TestNoRulesForTwoOfAName(t *testing.T) {
	for _, fleet := range []Fleet{
		{Robots: []string{"arm-a", "arm-a"}, Servers: []string{"s"}},
		{Robots: []string{"s"}, Servers: []string{"s"}},
	} {
		var b bytes.Buffer
		err := (&Service{Prefix: prefix}).RouterRules(&b, fleet)
		rttest.Fails(t, err, "twice")
		rttest.Want(t, b.Len(), 0, "bytes of rules for %+v", fleet)
	}
}

func TestTheRoutersOfKubernetesHaveTheseRules(t *testing.T) {
	var b bytes.Buffer
	rttest.Do(t, (&Service{Prefix: "@lerobot/lab-policy/main/policy"}).RouterRules(&b,
		Fleet{[]string{"arm-a", "arm-b"}, []string{"server"}, []string{"router", "operator"}}))
	for n := range 3 {
		file := fmt.Sprintf("../../deploy/kubernetes/base/router-%d.json5", n)
		if !bytes.Contains(rttest.Must(os.ReadFile(file))(t), b.Bytes()) {
			t.Errorf("%s has other rules: run deploy/kubernetes/routers.sh", file)
		}
	}
}
