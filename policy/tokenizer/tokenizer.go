// Package tokenizer reads a bundle's tokenizer and turns a robot's task into the token ids of the
// policy's graph.
//
// LoadFile reads the tokenizer; Tokenizer.Prompt tokenises a task, once; Prompt.Fill writes the ids and
// their mask into the input tensors, on every request and without allocating. The ids equal those
// of LeRobot's own preprocessor, which uses the Python libraries tokenizers 0.22.2 and
// sentencepiece 0.2.3.
//
// # Supported files
//
// Kind "bpe" is the byte-level BPE of GPT-2 in a tokenizer.json: pre-tokenizer ByteLevel, alone or after Digits, as in
// SmolVLM2. Kind "sentencepiece" is the BPE of Gemma and PaliGemma with byte fallback: a tokenizer.json, whose
// normalizer replaces each space by U+2581, or a tokenizer.model. If both files exist, tokenizer.json is read, as in
// LeRobot. Any other component of a tokenizer is refused by its name.
//
// The two files of Gemma differ in a task that contains the text of a special token: in a
// tokenizer.json "<bos>" is one token, in a tokenizer.model five characters.
//
// # Data flow
//
// spec.go describes the tokenizer's part of bundle.json; json.go and model.go read the files. A task is cut at the
// added tokens (trie.go), the text between them into words (words.go), words into symbols, and neighbours are merged,
// best pair first (merge.go). prompt.go makes the whole input from these ids and, for Pi0.5, from the state.
//
// # Why not a module
//
// Each of three modules was compared with the 1,000 strings of testdata/tokenizer.
// github.com/eliben/go-sentencepiece v0.6.0 reads only a tokenizer.model. Its ids are right for the
// model of Gemma's shape; with plain.model, which has no long pieces, it panics on 13 strings, the
// first one 17 spaces (slice bounds out of range [:51] with capacity 48: two symbols longer
// together than any piece). Its reader panics on a file without normalizer options.
// github.com/gomlx/go-huggingface v0.3.1 wraps it. github.com/sugarme/tokenizer v0.3.0 differs in
// 114 strings with SmolVLM2's pipeline ("<image>" alone: want [6038], got []; it panics on a byte
// that has no token) and in 469 with Gemma's ("\t": want [2 104], got [2 3]: no byte fallback;
// "<2mass>": want [2 5], got [2 7745 7725 965 396 7720]).
package tokenizer

import (
	"errors"
	"fmt"
	"path/filepath"
	"unicode/utf8"

	"github.com/edge-rt/edge-rt/internal/userfile"
)

// maxTaskBytes is the longest task.
const maxTaskBytes = 4096

// Bounds of the declarations in a tokenizer's file. Gemma's file has 262,144 pieces and 580,604 merges in 33 MB; the
// bounds leave room for larger files.
const (
	maxFileBytes     = 64 << 20
	maxPieces        = 1 << 19
	maxMerges        = 1 << 20
	maxPieceBytes    = 1024
	maxAdded         = 1 << 16 // most added tokens
	maxTrieBytes     = 1 << 20 // bytes of all added tokens; common beginnings count once
	maxPipelineBytes = 1 << 16 // bytes of the normalizer, pre-tokenizer or post-processor
)

// errFormat marks a file that this package does not read.
var errFormat = errors.New("not a tokenizer of these kinds")

// Tokenizer is a bundle's tokenizer. It is constant after LoadFile, so many goroutines may use it.
type Tokenizer struct {
	spec Spec

	raw   trie // added tokens that are matched in the text before normalisation
	added trie // added tokens that are matched in the normalised text

	// byte-level: the token of each byte, or -1; nil: the tokenizer encodes characters
	bytes  *[256]int32
	digits bool           // byte-level: each digit is a separate word
	runes  map[rune]int32 // characters: the token of each; a character without one is encoded as bytes
	fall   [256]int32     // characters: the tokens of single bytes
	merges merges
}

// none (-1) is the id of a text without a token.
const none = -1

// The files that LoadFile reads.
const (
	jsonName  = "tokenizer.json"
	modelName = "tokenizer.model"
)

// FileNames returns the names of the files that the spec's kind of tokenizer can be read from. The caller reads the
// first that exists.
func FileNames(spec *Spec) []string {
	if spec.Kind == SentencePiece {
		return []string{jsonName, modelName}
	}
	return []string{jsonName}
}

// LoadFile reads one file, whose name is one of FileNames. Call Spec.Check before.
func LoadFile(path string, spec *Spec) (*Tokenizer, error) {
	data, err := userfile.Read(path, maxFileBytes)
	if err != nil {
		return nil, err
	}
	if filepath.Base(path) == modelName {
		return parseModel(data, spec)
	}
	return parseJSON(data, spec)
}

// encode returns the ids of a task in its template, with special tokens, without the state and without padding. It
// refuses a task of more than max_len tokens.
func (t *Tokenizer) encode(task string) (ids []int64, err error) {
	text, err := t.spec.text(task)
	if err != nil {
		return nil, err
	}
	ids = t.whole(text)
	if len(ids) > t.spec.MaxLen {
		return nil, tooLong(len(ids), t.spec.MaxLen, "")
	}
	return ids, nil
}

func tooLong(got, allowed int, why string) error {
	return fmt.Errorf("task has %d tokens%s, this policy reads at most %d: shorten it", got, why, allowed)
}

// checkTask refuses bytes that Python does not accept as text, and tasks longer than maxTaskBytes.
func checkTask(task string) error {
	if len(task) > maxTaskBytes {
		return fmt.Errorf("task has %d bytes, want at most %d", len(task), maxTaskBytes)
	}
	for i := 0; i < len(task); {
		r, n := utf8.DecodeRuneInString(task[i:])
		if r == utf8.RuneError && n == 1 {
			return fmt.Errorf("task is not UTF-8: byte %#02x at %d", task[i], i)
		}
		i += n
	}
	return nil
}

// whole returns the ids of a whole prompt.
func (t *Tokenizer) whole(text string) []int64 {
	var s scratch
	return t.append(t.start(nil), []byte(text), &s)
}

// start appends the tokens before the text.
//
//rt:noalloc
func (t *Tokenizer) start(dst []int64) []int64 {
	if t.spec.BOSID != nil {
		dst = append(dst, *t.spec.BOSID)
	}
	return dst
}

// scratch is the working memory of an encoding.
type scratch struct {
	text    []byte // the normalised text
	symbols []symbol
	queue   []candidate
}

// room returns scratch for texts of n bytes. There is at most one symbol for each byte of the normalised text, in which
// a space may become three bytes. Each merge removes one candidate and adds at most two.
func room(n int) scratch {
	return scratch{make([]byte, 0, 3*n), make([]symbol, 0, 3*n), make([]candidate, 0, 6*n)}
}

// append appends the ids of the text. It allocates only when dst or s is too short.
//
//rt:noalloc
func (t *Tokenizer) append(dst []int64, text []byte, s *scratch) []int64 {
	for len(text) > 0 {
		at, n, id := t.raw.find(text)
		dst = t.between(dst, text[:at], s)
		if n > 0 {
			dst = append(dst, int64(id))
		}
		text = text[at+n:]
	}
	return dst
}

// between appends the ids of a text that contains no token of t.raw.
//
//rt:noalloc
func (t *Tokenizer) between(dst []int64, text []byte, s *scratch) []int64 {
	if t.bytes == nil {
		s.text = s.text[:0]
		for _, b := range text {
			if b == ' ' {
				s.text = append(s.text, "▁"...)
			} else {
				s.text = append(s.text, b)
			}
		}
		text = s.text
	}
	for len(text) > 0 {
		at, n, id := t.added.find(text)
		dst = t.words(dst, text[:at], s)
		if n > 0 {
			dst = append(dst, int64(id))
		}
		text = text[at+n:]
	}
	return dst
}

// words appends the ids of a text without added tokens.
//
//rt:noalloc
func (t *Tokenizer) words(dst []int64, text []byte, s *scratch) []int64 {
	if t.bytes == nil {
		return t.merges.append(dst, text, t.characters(text, s), s, &t.fall)
	}
	for len(text) > 0 {
		n := len(text)
		if t.digits {
			n = beforeDigit(text)
		}
		for part := text[:n]; len(part) > 0; {
			w := nextWord(part)
			dst = t.merges.append(dst, part[:w], t.fromBytes(part[:w], s), s, &t.fall)
			part = part[w:]
		}
		text = text[n:]
	}
	return dst
}

// fromBytes makes a symbol of each byte that has a token. It drops the other bytes, as the Python library does without
// an unknown token.
//
//rt:noalloc
func (t *Tokenizer) fromBytes(word []byte, s *scratch) []symbol {
	s.symbols = s.symbols[:0]
	for i, b := range word {
		if id := t.bytes[b]; id != none {
			s.symbols = append(s.symbols, symbol{id: id, from: int32(i), to: int32(i + 1)})
		}
	}
	return s.symbols
}

// characters makes a symbol of each piece that is never split, and of each other character. With a tokenizer.json, a
// character without a token becomes its bytes at once, and the bytes may merge. With a tokenizer.model, it becomes
// bytes after the merges, if it has not merged.
//
//rt:noalloc
func (t *Tokenizer) characters(text []byte, s *scratch) []symbol {
	s.symbols = s.symbols[:0]
	for i := 0; i < len(text); {
		if n, id := t.merges.frozen.longest(text[i:]); n > 0 {
			s.symbols = append(s.symbols, symbol{
				id:     id,
				from:   int32(i),
				to:     int32(i + n),
				frozen: true,
			})
			i += n
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		id, ok := t.runes[r]
		switch {
		case ok:
			s.symbols = append(s.symbols, symbol{id: id, from: int32(i), to: int32(i + n)})
		case t.merges.byText != nil:
			s.symbols = append(s.symbols, symbol{id: none, from: int32(i), to: int32(i + n)})
		default:
			for j := i; j < i+n; j++ {
				s.symbols = append(s.symbols, symbol{id: t.fall[text[j]], from: int32(j), to: int32(j + 1)})
			}
		}
		i += n
	}
	return s.symbols
}
