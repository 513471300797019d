package tokenizer

import (
	"slices"
	"testing"
	"unicode/utf8"
)

// Property: a file is either refused, or its tokenizer turns any task into tokens.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(small()), true, "ab <x>é")
	f.Add([]byte(
		`{"model":{"type":"BPE","vocab":{"a":0,"aa":1},"merges":[["a","a"]]},"pre_tokenizer":{"type":"ByteLevel"}}`),
		false, "aaa 1's")
	f.Fuzz(func(t *testing.T, data []byte, characters bool, task string) {
		spec := Spec{Kind: bpe, MaxLen: maxLen, Template: "{task}"}
		if characters {
			spec.Kind = SentencePiece
		}
		if tok, err := parseJSON(data, &spec); err == nil {
			encodes(t, tok, task)
		}
	})
}

// Property: a tokenizer.model is either refused, or its tokenizer turns any task into tokens.
func FuzzModel(f *testing.F) {
	model := smallModel(pieceOf("a", normal, -2), pieceOf("ab", normal, 0), pieceOf("bc", userDefined, 0),
		pieceOf("\n", control, 0))
	f.Add(model, "aababc \n")
	f.Fuzz(func(t *testing.T, data []byte, task string) {
		spec := Spec{Kind: SentencePiece, MaxLen: maxLen, Template: "{task}"}
		if tok, err := parseModel(data, &spec); err == nil {
			encodes(t, tok, task)
		}
	})
}

func encodes(t *testing.T, tok *Tokenizer, task string) {
	t.Helper()
	if ids, err := tok.encode(task); err == nil && len(ids) > maxLen || err != nil && utf8.ValidString(task) &&
		len(task) < maxLen/4 {
		t.Errorf("Encode(%q) = %d ids, %v", task, len(ids), err)
	}
}

// Property: a text is refused or becomes the same ids each time, at most one id for each byte.
func FuzzEncode(f *testing.F) {
	toks := map[string]*Tokenizer{
		"gemma.json":  load(f, "tokenizer.json", "gemma.json", gemmaSpec),
		"gemma.model": load(f, "tokenizer.model", "gemma.model", gemmaSpec),
		"smolvlm":     load(f, "tokenizer.json", "smolvlm.json", smolSpec),
	}
	for _, s := range []string{"", "pick up the red_block\n", "  <image>12's 🤖 é e\u0301", "\xff", "▁▁ \n\n\n<bos>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, task string) {
		for name, tok := range toks {
			ids, err := tok.encode(task)
			if (err == nil) != (utf8.ValidString(task) && len(task) <= maxTaskBytes) && len(task) < maxLen/4 {
				t.Errorf("%s: Encode(%q): %v", name, task, err)
			}
			if again, _ := tok.encode(task); !slices.Equal(ids, again) {
				t.Errorf("%s: Encode(%q) = %v, then %v", name, task, ids, again)
			}
			if len(ids) > 1+len(task) {
				t.Errorf("%s: Encode(%q) = %d ids of %d bytes", name, task, len(ids), len(task))
			}
		}
	})
}
