package tidy

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// A marker is an expression that makes a reader go back to the beginning of a
// sentence. The models of our style (wireguard-go, bbolt, pion/rtp, periph, mediamtx) use
// each at most 0.6 times per 1,000 words of comments.
type marker struct {
	name  string
	match *regexp.Regexp
}

// languageLimit is the limit of each marker per 1,000 words of comments, of messages and of documents.
const languageLimit = 1.0

// The patterns are written so that they do not find themselves.
var markers = []marker{
	{"wh" + "at as a noun",
		words(`(?:^|[^?]\b(?:of|to|in|on|at|by|for|from|with|is|are|as|and|than|but|that|all)\s|[,;:(]\s*)wh` +
			`at(?:ever)?\s(?:is|was|were|are|has|have|had|it|its|he|she|they|a|an|the|we|this|that|no|one)\b`)},
	{"things that speak", words(`\b(?:te` + `lls?|to` + `ld|sa` + `ys?|sa` + `id|he` + `ars?|he` + `ard)\b`)},
	{"no" + "ne", words(`\bno` + `ne\b`)},
	{"one with a clause", words(`\bone\s(?:th` + `at|wh` + `ich|wh` + `o)\b`)},
	{"behind for after", words(`\bbe` + `hind\b`)},
	{"nobody, somebody", words(`\b(?:no` + `body|some` + `body|every` + `body|any` + `body)\b`)},
	{"stands for is", words(`\bsta` + `nds?\b`)},
	{"wh" + "o as a noun", words(`(?:^|[.,;:(]\s*|\b(?:of|to|by|for|from|with|and|but)\s)wh` +
		`o(?:ever)?\s(?:is|has|had|does|did|wants|asks|was|can|may)\b`)},
}

func words(pattern string) *regexp.Regexp { return regexp.MustCompile(`(?i)` + pattern) }

// A sentence is one piece of text with its place. It has no line breaks.
type sentence struct{ at, text string }

// flagValues matches the values of a flag in its field's tag, which are not prose.
var flagValues = regexp.MustCompile(`\b(?:sep|enum|default|range):"[^"]*"`)

// proseOf returns the comments and the messages of Go files: a message is a string
// literal of at least three words.
func proseOf(t *tree) (comments, messages []sentence) {
	for _, f := range t.files {
		for _, group := range f.ast.Comments {
			comments = append(comments, sentence{t.at(group.Pos()), oneLine(group.Text())})
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING || f.test {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			text = flagValues.ReplaceAllString(text, "")
			if err == nil && len(strings.Fields(text)) >= 3 {
				messages = append(messages, sentence{t.at(literal.Pos()), oneLine(text)})
			}
			return true
		})
	}
	return comments, messages
}

// documentsOf returns the paragraphs of the Markdown files, without code blocks.
func documentsOf(fsys fs.FS, names []string) (documents []sentence, err error) {
	for _, name := range names {
		if path.Ext(name) != ".md" || name == "CHANGELOG.md" || strings.Contains(name, "testdata/") {
			continue
		}
		content, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		code := false
		for i, line := range strings.Split(string(content), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			if !code && !strings.HasPrefix(line, "    ") && line != "" {
				documents = append(documents, sentence{fmt.Sprintf("%s:%d", name, i+1), line})
			}
		}
	}
	return documents, nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// figure is the number of occurrences of a marker in a text.
type figure struct {
	count, words int
	places       []sentence
}

func (f figure) perThousand() float64 { return 1000 * float64(f.count) / float64(max(f.words, 1)) }

func measure(m marker, text []sentence) (f figure) {
	for _, s := range text {
		f.words += len(strings.Fields(s.text))
		if n := len(m.match.FindAllString(s.text, -1)); n > 0 {
			f.count += n
			f.places = append(f.places, s)
		}
	}
	return f
}

// TestLanguage checks the markers' limits. With LANGUAGE=N it prints the N pieces of text with the
// most markers, and with LANGUAGE_IN=edge/ only those of that folder.
func TestLanguage(t *testing.T) {
	comments, messages := proseOf(theModule(t))
	documents := rttest.Must(documentsOf(os.DirFS(root), listedFiles(t)))(t)
	texts := []struct {
		name string
		text []sentence
	}{{"comments", comments}, {"messages", messages}, {"documents", documents}}
	for _, m := range markers {
		for _, kind := range texts {
			f := measure(m, kind.text)
			t.Logf("%-22s %-10s %5d in %7d words: %.2f per 1,000", m.name, kind.name, f.count, f.words, f.perThousand())
			if f.perThousand() > languageLimit {
				t.Errorf("%s in %s: %.2f per 1,000 words, want at most %.1f", m.name, kind.name, f.perThousand(),
					languageLimit)
			}
		}
	}
	if n, _ := strconv.Atoi(os.Getenv("LANGUAGE")); n > 0 {
		for _, line := range worst(slices.Concat(comments, messages, documents), os.Getenv("LANGUAGE_IN"), n) {
			t.Log(line)
		}
	}
}

// worst returns the n texts below folder that match the markers most often.
func worst(text []sentence, folder string, n int) (lines []string) {
	type piece struct {
		sentence
		found []string
	}
	var pieces []piece
	for _, s := range text {
		p := piece{sentence: s}
		for _, m := range markers {
			p.found = append(p.found, m.match.FindAllString(s.text, -1)...)
		}
		if len(p.found) > 0 && strings.HasPrefix(s.at, folder) {
			pieces = append(pieces, p)
		}
	}
	slices.SortStableFunc(pieces, func(a, b piece) int { return cmp.Compare(len(b.found), len(a.found)) })
	for _, p := range pieces[:min(n, len(pieces))] {
		lines = append(lines, fmt.Sprintf("%s: %q in %q", p.at, p.found, p.text))
	}
	return lines
}

// Goal: each marker is found once in a sentence of its kind, and not in plain English.
func TestMarkersBite(t *testing.T) {
	found := []string{
		"Max is wh" + "at was measured.", "The test te" + "lls a hang from a pause.", "A marker of no" + "ne.",
		"It takes one th" + "at is free.",
		"The bytes be" + "hind the header.", "A port that no" + "body uses.", "A number that sta" + "nds for a prefix.",
		"Wh" + "o is late waits.",
	}
	for i, m := range markers {
		for j, text := range found {
			if got := measure(m, []sentence{{"", text}}).count; (got == 1) != (i == j) || got > 1 {
				t.Errorf("%s in %q: %d times, want it only in its own sample", m.name, text, got)
			}
		}
		plain := []sentence{{"", "The holder of the session answers; otherwise the server with the lowest id does."}}
		if f := measure(m, plain); f.count != 0 || f.words != 14 {
			t.Errorf("%s in plain English: %d in %d words, want 0 in 14", m.name, f.count, f.words)
		}
	}
	text := sample(t,
		map[string]string{"a/a.go": "// Package a\n// is here.\npackage a\nvar b, c = \"a message of words\", \"no " +
			"message\" // c is\n"})
	comments, messages := proseOf(text)
	if len(comments) != 2 || comments[0].text != "Package a is here." || len(messages) != 1 {
		t.Errorf("prose = %q, %q; want two comments and one message", comments, messages)
	}
}
