package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/edge-rt/edge-rt/wire/wiretest"
)

// sections has the judge of each section of the file of frozen vectors. A section without a judge belongs to the
// package in its field owner.
var sections = map[string]struct {
	judge func(json.RawMessage) error
	owner string
}{
	"headers":               {judge: judgeHeader},
	"header_decode_errors":  {judge: judgeHeaderDecodeError},
	"header_encode_errors":  {judge: judgeHeaderEncodeError},
	"sanitize_key_segment":  {judge: judgeSlug},
	"service_prefix":        {judge: judgeServicePrefix},
	"keys":                  {judge: judgeKey},
	"tensors":               {judge: judgeTensor},
	"tensor_decode_edge":    {judge: judgeTensorEdge},
	"images":                {judge: judgeImage},
	"messages":              {judge: judgeMessage},
	"tolerant_decode":       {judge: judgeTolerant},
	"classify":              {owner: "server"},
	"validate_session_open": {owner: "server"},
	"manifest_validation":   {owner: "server"},
	"scheduler":             {owner: "server"},
	"session_trace":         {owner: "server"},
	"behaviour_traces":      {owner: "traces"}, // TestTracesHaveAnOwner
}

// TestGoldens passes every vector to its section's judge, which reports our difference from Python. A difference must
// be listed in deviations.json, and each listed deviation must still exist.
func TestGoldens(t *testing.T) {
	for section, raw := range wiretest.Vectors(t) {
		if section == "_about" {
			continue
		}
		s, ok := sections[section]
		if !ok {
			t.Errorf("section %s has no owner", section)
		}
		if s.judge == nil {
			continue
		}
		var vectors []json.RawMessage
		rttest.Do(t, json.Unmarshal(raw, &vectors))
		named := wiretest.Deviations(t, section)
		for i, v := range vectors {
			name := vectorName(v, i)
			t.Run(section+"/"+name, func(t *testing.T) {
				differs := s.judge(v)
				d, named := named[name]
				switch {
				case differs != nil && !named:
					t.Errorf("differs and is not in deviations.json: %v", differs)
				case differs == nil && named:
					t.Errorf("agrees with Python, but deviations.json says %q", d.Ours)
				}
			})
			delete(named, name)
		}
		for name := range named {
			t.Errorf("deviations.json names %s/%s, which does not exist", section, name)
		}
	}
}

// TestForeignSectionsAreTested: the tests of the package that owns a section name that section. Every deviation from
// the section names a vector that exists.
func TestForeignSectionsAreTested(t *testing.T) {
	all := wiretest.Vectors(t)
	for section, s := range sections {
		if s.owner == "" || s.owner == "traces" {
			continue
		}
		files, err := filepath.Glob("../" + s.owner + "/*_test.go")
		if err != nil || len(files) == 0 {
			t.Errorf("%s has no tests for section %s: %v", s.owner, section, err)
		}
		mentioned := false
		for _, file := range files {
			text := rttest.ReadFile(t, file)
			mentioned = mentioned || strings.Contains(text, strconv.Quote(section))
		}
		if !mentioned {
			t.Errorf("no test of %s mentions section %s", s.owner, section)
		}
		var vectors []json.RawMessage
		rttest.Do(t, json.Unmarshal(all[section], &vectors))
		named := wiretest.Deviations(t, section)
		delete(named, "*")
		for i, v := range vectors {
			delete(named, vectorName(v, i))
		}
		for name := range named {
			t.Errorf("deviations.json names %s/%s, which does not exist", section, name)
		}
	}
}

// TestDeviationsAreComplete requires a reason with each entry.
func TestDeviationsAreComplete(t *testing.T) {
	for _, d := range wiretest.AllDeviations(t) {
		if d.Section == "" || d.Name == "" || d.Owner == "" || d.Python == "" || d.Ours == "" || d.Reason == "" {
			t.Errorf("deviation %+v: want every field", d)
		}
	}
}

// TestTracesHaveAnOwner: each trace of the draft's running programs has a package that owns it, because a trace records
// a program's behaviour.
func TestTracesHaveAnOwner(t *testing.T) {
	owners := map[string]string{
		"_about": "", "startup": "wire", "session_semantics": "wire", "zenoh_config": "wire/zenoh",
		"audit_example": "server", "http": "server",
		"reset_midflight": "edge", "stop": "edge", "one_lost_chunk": "edge", "silent_server": "edge",
		"server_gone": "edge", "inference_error": "edge", "staleness": "edge",
		"liveliness_drop_while_awaiting": "edge", "latency_delay": "chunk",
	}
	var traces map[string]json.RawMessage
	wiretest.Section(t, "behaviour_traces", &traces)
	for name := range traces {
		if _, ok := owners[name]; !ok {
			t.Errorf("trace %s has no owner", name)
		}
	}
}

// TestSessionNames: we refuse each recorded name that the running draft refused. We also refuse "a b" and "x/y", which
// the draft accepted (live deviation uuid_with_space).
func TestSessionNames(t *testing.T) {
	var traces struct {
		Session struct{ Rows [][]any } `json:"session_semantics"`
	}
	wiretest.Section(t, "behaviour_traces", &traces)
	tried := 0
	for _, row := range traces.Session.Rows {
		if row[0] != "open_uuid" {
			continue
		}
		tried++
		if err := CheckUUID(row[1].(string)); err == nil {
			t.Errorf("CheckUUID(%q) = nil, want a refusal", row[1])
		}
	}
	rttest.Want(t, tried, 4, "names in the trace")
}

// TestTopicQoS compares the two data topics with the declarations of the draft's running programs.
func TestTopicQoS(t *testing.T) {
	var traces struct {
		Startup struct {
			PublisherQoS []struct {
				Topic string            `json:"declare_publisher"`
				QoS   map[string]string `json:"qos"`
			} `json:"publisher_qos"`
		} `json:"startup"`
	}
	wiretest.Section(t, "behaviour_traces", &traces)
	priorities := map[Priority]string{Data: "DATA", InteractiveHigh: "INTERACTIVE_HIGH"}
	for _, p := range traces.Startup.PublisherQoS {
		q := map[string]QoS{"obs": ObservationQoS, "action": ActionQoS}[p.Topic]
		got := map[string]string{
			"reliability": map[bool]string{true: "Reliability.RELIABLE",
				false: "Reliability.BEST_EFFORT"}[q.Reliable],
			"congestion_control": map[bool]string{true: "CongestionControl.BLOCK",
				false: "CongestionControl.DROP"}[q.Block],
			"express":  map[bool]string{true: "True", false: "False"}[q.Express],
			"priority": "Priority." + priorities[q.Priority],
		}
		if !reflect.DeepEqual(got, p.QoS) {
			t.Errorf("QoS of %s = %v, want %v", p.Topic, got, p.QoS)
		}
	}
}

// TestGoldensAreTheShared compares the copy of the frozen vectors in this repository with its source, where the source
// exists.
func TestGoldensAreTheShared(t *testing.T) {
	want, err := os.ReadFile("../../shared/vectors/draft_goldens.json")
	if err != nil {
		t.Skipf("no source to compare with: %v", err)
	}
	got := rttest.Must(os.ReadFile(wiretest.Golden(t, "draft_goldens.json")))(t)
	if !bytes.Equal(got, want) {
		t.Error("testdata/golden/draft_goldens.json differs from its source")
	}
}

func vectorName(raw json.RawMessage, i int) string {
	var v struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(raw, &v) // a vector without a name is identified by its index
	if v.Name != "" {
		return v.Name
	}
	return strconv.Itoa(i)
}

func judgeHeader(raw json.RawMessage) error {
	var v struct {
		Fields struct {
			SchemaVersion uint16  `json:"schema_version"`
			MsgType       MsgType `json:"msg_type"`
			SeqID         uint64  `json:"seq_id"`
			EpisodeID     uint32  `json:"episode_id"`
			ClientMonoNs  int64   `json:"client_mono_ns"`
			SessionEpoch  uint32  `json:"session_epoch"`
		} `json:"fields"`
		Hex string `json:"hex"`
		Len int    `json:"len"`
	}
	rttest.PanicOn(json.Unmarshal(raw, &v))
	h := Header(v.Fields)
	if got := hex.EncodeToString(AppendHeader(nil, h)); got != v.Hex || v.Len != HeaderSize {
		return fmt.Errorf("AppendHeader(%+v) = %s, want %s", h, got, v.Hex)
	}
	if got, err := ParseHeader(unhex(v.Hex)); err != nil || got != h {
		return fmt.Errorf("ParseHeader(%s) = %+v, %v, want %+v", v.Hex, got, err, h)
	}
	return nil
}

func judgeHeaderDecodeError(raw json.RawMessage) error {
	var v struct{ Hex string }
	rttest.PanicOn(json.Unmarshal(raw, &v))
	if _, err := ParseHeader(unhex(v.Hex)); !errors.Is(err, ErrMalformed) {
		return fmt.Errorf("ParseHeader of %d bytes = %v, want ErrMalformed", len(v.Hex)/2, err)
	}
	return nil
}

// judgeHeaderEncodeError: Python fails at run time on a number that does not fit its field. Here such a number must not
// fit the field's Go type either: a program with it would not compile.
func judgeHeaderEncodeError(raw json.RawMessage) error {
	var v struct{ Kw map[string]json.Number }
	rttest.PanicOn(json.Unmarshal(raw, &v))
	fields := map[string]string{"seq_id": "SeqID", "episode_id": "EpisodeID", "session_epoch": "SessionEpoch",
		"msg_type": "MsgType", "client_mono_ns": "ClientMonoNs"}
	for name, number := range v.Kw {
		f, ok := reflect.TypeFor[Header]().FieldByName(fields[name])
		if !ok {
			return fmt.Errorf("no field %s", name)
		}
		var err error
		if f.Type.Kind() == reflect.Int64 {
			_, err = strconv.ParseInt(number.String(), 10, f.Type.Bits())
		} else {
			_, err = strconv.ParseUint(number.String(), 10, f.Type.Bits())
		}
		if err == nil {
			return fmt.Errorf("%s fits Header.%s", number, f.Name)
		}
	}
	return nil
}

func judgeSlug(raw json.RawMessage) error {
	var v struct{ In, Out, Error string }
	rttest.PanicOn(json.Unmarshal(raw, &v))
	got, err := Slug(v.In)
	return judgeText(fmt.Sprintf("Slug(%q)", v.In), got, err, v.Out, v.Error)
}

func judgeServicePrefix(raw json.RawMessage) error {
	var v struct {
		ModelID             string `json:"model_id"`
		Revision, Task, Out string
		Error               string
	}
	rttest.PanicOn(json.Unmarshal(raw, &v))
	got, err := ServicePrefix(v.ModelID, v.Revision, v.Task)
	return judgeText(fmt.Sprintf("ServicePrefix(%q, %q, %q)", v.ModelID, v.Revision, v.Task), got, err, v.Out, v.Error)
}

func judgeKey(raw json.RawMessage) error {
	var v struct {
		Fn, Prefix, Key, Out, Error string
		ClientUUID                  string `json:"client_uuid"`
	}
	rttest.PanicOn(json.Unmarshal(raw, &v))
	robot := map[string]func(string, string) (string, error){
		"obs_key": ObsKey, "action_key": ActionKey, "reset_key": ResetKey, "client_alive_key": ClientAliveKey}
	service := map[string]func(string) string{
		"status_key": StatusKey, "session_key": SessionKey, "server_alive_key": ServerAliveKey,
		"obs_wildcard": ObsWildcard, "reset_wildcard": ResetWildcard, "client_alive_wildcard": ClientAliveWildcard}
	var got string
	var err error
	switch {
	case robot[v.Fn] != nil:
		got, err = robot[v.Fn](v.Prefix, v.ClientUUID)
	case service[v.Fn] != nil:
		got = service[v.Fn](v.Prefix)
	case v.Fn == "client_uuid_from_key":
		got, err = ClientUUID(v.Key)
	default:
		return fmt.Errorf("nothing here is called %s", v.Fn)
	}
	return judgeText(v.Fn, got, err, v.Out, v.Error)
}

// judgeText compares a text, or the kind of its refusal.
func judgeText(call, got string, err error, want, wantErr string) error {
	kind := error(nil)
	switch {
	case strings.Contains(wantErr, "sanitizes to an empty chunk"):
		kind = ErrSlugEmpty
	case strings.Contains(wantErr, "collides with reserved chunk"):
		kind = ErrSlugReserved
	case strings.Contains(wantErr, "has no client chunk"):
		kind = ErrKey
	case wantErr != "":
		return fmt.Errorf("the judge does not know %q", wantErr)
	}
	if got != want || !errors.Is(err, kind) {
		return fmt.Errorf("%s = %q, %v, want %q, %v", call, got, err, want, kind)
	}
	return nil
}

func unhex(s string) []byte {
	return rttest.OrPanic(hex.DecodeString(s))
}
