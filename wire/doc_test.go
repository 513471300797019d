package wire

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// docTables returns the first two cells of every table row below a heading of
// docs/wire.md, without back-quotes.
func docTables(t *testing.T) map[string][][]string {
	t.Helper()
	text := rttest.ReadFile(t, "../docs/wire.md")
	tables := map[string][][]string{}
	heading := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			heading = strings.TrimLeft(line, "# ")
		}
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		var cells []string
		for _, c := range strings.Split(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.Trim(strings.TrimSpace(c), "`"))
		}
		tables[heading] = append(tables[heading], cells)
	}
	return tables
}

// keysOf lists the keys of an encoded message in their order.
func keysOf(t *testing.T, body []byte) (keys []string) {
	t.Helper()
	var r reader
	for range r.open(body) {
		keys = append(keys, string(r.key()))
		r.skip(0)
	}
	rttest.Do(t, r.close())
	return keys
}

// TestDocKeys compares the documented keys of each message with the encoders' output: their names,
// their order, and whether they are optional. It encodes each message once with every field set and
// once with no field set.
func TestDocKeys(t *testing.T) {
	messages := map[string]struct{ full, bare []byte }{
		"Observation":  {AppendObservation(nil, demoObservation()), AppendObservation(nil, &Observation{})},
		"ActionChunk":  {AppendActionChunk(nil, demoChunk()), AppendActionChunk(nil, &ActionChunk{})},
		"SessionOpen":  {Append(nil, &demoOpen), Append(nil, &SessionOpen{})},
		"SessionAck":   {Append(nil, &demoAck), Append(nil, &SessionAck{})},
		"Status":       {Append(nil, &demoStatus), Append(nil, &Status{})},
		"Reset":        {Append(nil, &Reset{Task: "x"}), Append(nil, &Reset{})},
		"ResetAck":     {Append(nil, &ResetAck{}), Append(nil, &ResetAck{})},
		"SessionClose": {Append(nil, &SessionClose{}), Append(nil, &SessionClose{})},
		"Event":        {Append(nil, &demoEvent), Append(nil, &Event{})},
	}
	tables := docTables(t)
	for name, m := range messages {
		var full, bare []string
		for _, row := range tables[name][1:] {
			if row[0] == "code" && len(row) == 2 { // the table of event codes
				break
			}
			keys := strings.Split(row[0], "`, `")
			full = append(full, keys...)
			if !strings.Contains(row[1], "optional") {
				bare = append(bare, keys...)
			}
		}
		rttest.Equal(t, keysOf(t, m.full), full, "keys of %s, beside docs/wire.md", name)
		rttest.Equal(t, keysOf(t, m.bare), bare, "keys of %s without optional ones, beside docs/wire.md", name)
	}
}

func TestDocHeader(t *testing.T) {
	rows := docTables(t)["Header"][1:]
	h := reflect.TypeFor[Header]()
	offset := 0
	for i, row := range rows {
		size := int(h.Field(i).Type.Size())
		field := strings.ToLower(h.Field(i).Name)
		if row[0] != strconv.Itoa(offset) || row[1] != strconv.Itoa(size) ||
			strings.ReplaceAll(row[3], "_", "") != field {
			t.Errorf("row %v, want offset %d, size %d, field %s", row, offset, size, field)
		}
		offset += size
	}
	rttest.Want(t, offset, HeaderSize, "bytes of the table")
}

func TestDocEventCodes(t *testing.T) {
	var got []string
	for _, row := range docTables(t)["Event"] {
		if len(row) == 2 && row[0] != "code" {
			got = append(got, row[0])
		}
	}
	want := []string{string(EventDraining), string(EventBadObservation), string(EventUnknownSession),
		string(EventUnavailable), string(EventLate), string(EventModel), string(EventQuota)}
	rttest.Equal(t, got, want, "event codes in docs/wire.md")
}

// TestDocLimits compares the table of limits in docs/wire.md with every Max constant of the package.
func TestDocLimits(t *testing.T) {
	documented := map[string]string{}
	for _, row := range docTables(t)["Limits"][1:] {
		documented[row[0]] = row[1]
	}
	for name, value := range maxConstants(t) {
		rttest.Want(t, documented[name], value, "docs/wire.md: %s", name)
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("docs/wire.md has %s, the code does not", name)
	}
}

func maxConstants(t *testing.T) map[string]string {
	t.Helper()
	set := token.NewFileSet()
	values := map[string]string{}
	for _, name := range []string{"doc.go", "keys.go"} {
		file := rttest.Must(parser.ParseFile(set, name, nil, 0))(t)
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				spec := s.(*ast.ValueSpec)
				if !strings.HasPrefix(spec.Names[0].Name, "Max") {
					continue
				}
				v, err := types.Eval(set, nil, token.NoPos, types.ExprString(spec.Values[0]))
				if err != nil {
					continue // the constant's value uses names outside its group
				}
				values[spec.Names[0].Name] = constant.ToInt(v.Value).ExactString()
			}
		}
	}
	return values
}

// TestDocKeysOfService compares the table of a service's keys in docs/wire.md with the functions that make these keys.
func TestDocKeysOfService(t *testing.T) {
	const p, u = "PREFIX", "UUID"
	obs, _ := ObsKey(p, u)
	action, _ := ActionKey(p, u)
	reset, _ := ResetKey(p, u)
	alive, _ := ClientAliveKey(p, u)
	session, _ := RobotSessionKey(p, u)
	telemetry, _ := TelemetryKey(p, u)
	want := []string{StatusKey(p), SessionKey(p), ServerAliveKey(p), obs, telemetry, action, session, reset, alive,
		p + "/" + u + "/EPOCH/alive",
		ReplicaAliveKey(p, "SERVER_ID"), ReplicaRoomKey(p, "SERVER_ID"), p + "/" + u + "/held/SERVER_ID/MARK/EPOCH"}
	var got []string
	for _, row := range docTables(t)["Keys"][1:] {
		got = append(got, row[0])
	}
	rttest.Equal(t, got, want, "keys in docs/wire.md")
}
