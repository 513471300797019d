package tokenizer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// golden returns a file that testdata/tokenizer/make.py wrote.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	return rttest.Unzip(t, filepath.Join("../../testdata/tokenizer", name+".gz"))
}

// saved makes a bundle's tokenizer folder with one file.
func saved(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := rttest.WriteFile(t, t.TempDir(), name, data)
	return path
}

func id(n int64) *int64 { return &n }

// The specs of SmolVLA, Pi0 and Pi0.5, with room for the longest test string.
var (
	smolSpec  = Spec{Kind: bpe, MaxLen: maxLen, PadID: 2, Template: "{task}"}
	gemmaSpec = Spec{Kind: SentencePiece, MaxLen: maxLen, PadID: 0, BOSID: id(2), Template: "{task}"}
	pi05Spec  = Spec{
		Kind:     SentencePiece,
		MaxLen:   200,
		PadID:    0,
		BOSID:    id(2),
		Template: "Task: {task}, State: {state};\nAction: ",
		Clean:    true,
	}
)

// load loads a tokenizer from a golden file.
func load(t testing.TB, file, from string, spec Spec) *Tokenizer {
	t.Helper()
	return loadData(t, file, golden(t, from), spec)
}

func loadData(t testing.TB, file string, data []byte, spec Spec) *Tokenizer {
	t.Helper()
	return rttest.Must(LoadFile(saved(t, file, data), &spec))(t)
}

// withoutDigits is smolvlm.json with ByteLevel as its only pre-tokenizer.
func withoutDigits(t testing.TB) []byte {
	t.Helper()
	step := []byte(`{"type":"Digits","individual_digits":true},`)
	data := golden(t, "smolvlm.json")
	if !bytes.Contains(data, step) {
		t.Fatal("smolvlm.json has no Digits step")
	}
	return bytes.Replace(data, step, nil, 1)
}

func TestIDsAreThoseOfThePythonLibraries(t *testing.T) {
	var file struct {
		Cases []struct {
			Text       string
			SmolVLM    []int64
			GPT2       []int64
			Words      []int   // length of each word
			GemmaJSON  []int64 `json:"gemma_json"`
			GemmaModel []int64 `json:"gemma_model"`
			PlainModel []int64 `json:"plain_model"`
		}
	}
	rttest.Do(t, json.Unmarshal(golden(t, "cases.json"), &file))
	if len(file.Cases) != 1000 {
		t.Fatalf("%d cases, want 1000", len(file.Cases))
	}
	plain := gemmaSpec
	plain.BOSID = nil
	tokenizers := map[string]*Tokenizer{
		"smolvlm.json": load(t, "tokenizer.json", "smolvlm.json", smolSpec),
		"gpt2":         loadData(t, "tokenizer.json", withoutDigits(t), smolSpec),
		"gemma.json":   load(t, "tokenizer.json", "gemma.json", gemmaSpec),
		"gemma.model":  load(t, "tokenizer.model", "gemma.model", gemmaSpec),
		"plain.model":  load(t, "tokenizer.model", "plain.model", plain),
	}
	for _, c := range file.Cases {
		var words []int
		for text := []byte(c.Text); len(text) > 0; text = text[words[len(words)-1]:] {
			words = append(words, nextWord(text))
		}
		if !slices.Equal(words, c.Words) {
			t.Errorf("words of %q have %v bytes, want %v", c.Text, words, c.Words)
		}
		for name, want := range map[string][]int64{
			"smolvlm.json": c.SmolVLM, "gpt2": c.GPT2, "gemma.json": c.GemmaJSON, "gemma.model": c.GemmaModel,
			"plain.model": c.PlainModel,
		} {
			rttest.Equal(t, rttest.Must(tokenizers[name].encode(c.Text))(t), want, "%s: Encode(%q)", name, c.Text)
		}
	}
}

func TestEveryCharacterIsOfTheKindThatPythonSees(t *testing.T) {
	type run struct {
		from rune
		what string
	}
	var runs []run
	for sc := bufio.NewScanner(bytes.NewReader(golden(t, "classes.txt"))); sc.Scan(); {
		var r run
		rttest.Must(fmt.Sscanf(sc.Text(), "%x %s", &r.from, &r.what))(t)
		runs = append(runs, r)
	}
	names := [...]string{other: "other", letter: "letter", number: "number", space: "space"}
	i := 0
	for r := rune(0); r <= 0x10FFFF; r++ {
		for i+1 < len(runs) && runs[i+1].from <= r {
			i++
		}
		got := names[kindOf(r)]
		if isDigit(r) {
			got += "+digit"
		}
		rttest.Want(t, got, runs[i].what, "%U", r)
	}
}

type promptCase struct {
	Mode    string
	A, Span []float32
	Task    string
	State   []float32
	Prompt  string
	IDs     []int64
}

func promptCases(t testing.TB) []promptCase {
	t.Helper()
	var file struct{ Prompts []promptCase }
	rttest.Do(t, json.Unmarshal(golden(t, "prompts.json"), &file))
	if len(file.Prompts) < 160 {
		t.Fatalf("%d prompts, want 160", len(file.Prompts))
	}
	return file.Prompts
}

// withState returns a copy of a tokenizer with another state.
func withState(t testing.TB, tok *Tokenizer, state State, dim int) *Tokenizer {
	t.Helper()
	other := *tok
	state.Bins = bins
	other.spec.State = &state
	rttest.Do(t, other.spec.Check(dim))
	return &other
}

// loadPi05 loads Gemma's tokenizer with Pi0.5's prompt and a state of one value.
func loadPi05(t testing.TB) *Tokenizer {
	t.Helper()
	spec := pi05Spec
	spec.State = &State{Bins: bins, Mode: "identity"}
	rttest.Do(t, spec.Check(1))
	return load(t, "tokenizer.json", "gemma.json", spec)
}

func TestPromptsAreThoseOfLeRobot(t *testing.T) {
	tok := loadPi05(t)
	for _, c := range promptCases(t) {
		c.check(t, withState(t, tok, State{Mode: c.Mode, A: c.A, Span: c.Span}, len(c.State)))
	}
}

// check compares the prompt that a tokenizer makes with the recorded one.
func (c *promptCase) check(t *testing.T, tok *Tokenizer) {
	t.Helper()
	p, err := tok.Prompt(c.Task)
	if err != nil {
		t.Errorf("Prompt(%q): %v", c.Task, err)
		return
	}
	dst, mask := make([]int64, pi05Spec.MaxLen), make([]bool, pi05Spec.MaxLen)
	rttest.Do(t, p.Fill(dst, mask, c.State))
	checkFilled(t, fmt.Sprintf("%s %v: %q", c.Mode, c.State, c.Prompt), dst, mask, c.IDs, 0)
}

func checkFilled(t *testing.T, what string, dst []int64, mask []bool, want []int64, pad int64) {
	t.Helper()
	if !slices.Equal(dst[:len(want)], want) {
		t.Errorf("%s = %v, want %v", what, dst[:len(want)], want)
	}
	for i := range dst {
		if mask[i] != (i < len(want)) || i >= len(want) && dst[i] != pad {
			t.Errorf("%s: token %d is %d with mask %v, the prompt has %d", what, i, dst[i], mask[i], len(want))
			return
		}
	}
}

// The ids of the exporter's own prompts, with its spec and its tokenizer folder, equal LeRobot's ids.
func TestExportedPromptsAreThoseOfLeRobot(t *testing.T) {
	var file struct {
		Tokenizer Spec
		Cases     []promptCase
	}
	rttest.ReadJSON(t, "../../testdata/tokenizer/pi05_prompts.json", &file)
	if len(file.Cases) < 100 {
		t.Fatalf("%d cases, want 100", len(file.Cases))
	}
	rttest.Do(t, file.Tokenizer.Check(len(file.Cases[0].State)))
	tok := rttest.Must(LoadFile("../../testdata/tokenizer/pi05/tokenizer.json", &file.Tokenizer))(t)
	for _, c := range file.Cases {
		c.check(t, tok)
	}
}
