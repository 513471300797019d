package tokenizer

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"google.golang.org/protobuf/encoding/protowire"
)

// small returns a minimal tokenizer.json of kind sentencepiece, with the tokens of all bytes, "a", "b", "ab" and
// U+2581. The tests change it in invalid ways.
func small() string {
	var vocab []string
	for b := range 256 {
		vocab = append(vocab, fmt.Sprintf(`"<0x%02X>":%d`, b, b))
	}
	vocab = append(vocab, `"a":256`, `"b":257`, `"ab":258`, `"▁":259`)
	return `{"added_tokens":[{"id":300,"content":"<x>"}],` +
		`"normalizer":{"type":"Sequence","normalizers":[{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},` +
		`"pre_tokenizer":null,"post_processor":null,` +
		`"model":{"type":"BPE","byte_fallback":true,"vocab":{` + strings.Join(vocab, ",") + `},"merges":["a b"]}}`
}

func TestSmallFile(t *testing.T) {
	spec := gemmaSpec
	spec.BOSID = nil
	tok := loadData(t, "tokenizer.json", []byte(small()), spec)
	rttest.Equal(t, rttest.Must(tok.encode("ab <x>é"))(t), []int64{258, 259, 300, 0xC3, 0xA9}, "Encode")
}

func TestJSONIsRefused(t *testing.T) {
	bos := `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[7]}}}`
	for _, tt := range []struct{ name, old, new, want string }{
		{"no JSON", `{"added`, `"added`, "invalid character"},
		{"not UTF-8", `"a":256`, "\"\xff\":256", "not UTF-8"},
		{"another model", `"BPE"`, `"Unigram"`, `model: type is "Unigram", want BPE`},
		{"dropout", `"type":"BPE"`, `"type":"BPE","dropout":0.1`, "not supported"},
		{"whole words first", `"type":"BPE"`, `"type":"BPE","ignore_merges":true`, "not supported"},
		{"a prefix", `"type":"BPE"`, `"type":"BPE","continuing_subword_prefix":"##"`, "not supported"},
		{"no byte fallback", `"byte_fallback":true`, `"byte_fallback":false`, "no byte_fallback"},
		{"a byte without token", `"<0x41>"`, `"<0xG1>"`, "without a piece <0x41>"},
		{"another normalizer", `"Replace"`, `"NFKC"`, "normalizer NFKC, want Replace"},
		{"another replacement", `"content":"▁"`, `"content":"_"`, "want Replace"},
		{"two normalizers", `"normalizers":[`, `"normalizers":[{"type":"NFC"},`, "normalizer NFC and Replace"},
		{"a pre-tokenizer", `"pre_tokenizer":null`, `"pre_tokenizer":{"type":"Metaspace"}`, "pre_tokenizer Metaspace"},
		{"a merge of nothing known", `"a b"`, `"a c"`, "of merge 0 is not in the vocabulary"},
		{"a merge into nothing known", `"a b"`, `"b a"`, "of merge 0"},
		{"a merge of three", `"a b"`, `"a b a"`, "want two pieces"},
		{"a merge of one", `"a b"`, `["a"]`, "want two pieces"},
		{"merges of two forms", `"a b"`, `["a","b"],"a b"`, "cannot unmarshal"},
		{"a negative id", `"a":256`, `"a":-1`, "with the id -1"},
		{"an id too large", `"a":256`, `"a":1048576`, "with the id 1048576"},
		{"an empty piece", `"a":256`, `"":256`, "of 0 bytes"},
		{"a piece too long", `"a":256`, `"a":256,"` + strings.Repeat("x", maxPieceBytes+1) + `":9`, "of 1025 bytes"},
		{"an added token that strips", `"content":"<x>"`, `"content":"<x>","lstrip":true`,
			"lstrip, rstrip or single_word"},
		{"an added token of another id", `"content":"<x>"`, `"content":"ab"`, "id 300 here and 258"},
		{"an empty added token", `"content":"<x>"`, `"content":""`, "of 0 bytes"},
		{"a start token nobody declared", `"post_processor":null`, `"post_processor":` + bos,
			"tokens [7] before a text, bundle.json's bos_id is []"},
		{"another post-processor", `"post_processor":null`, `"post_processor":{"type":"BertProcessing"}`,
			"BertProcessing, want TemplateProcessing"},
		{"tokens after the text", `"post_processor":null`,
			`"post_processor":` + strings.Replace(bos, `{"Sequence":{"id":"A"}}`,
				`{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"<s>"}}`, 1), "after the text"},
		{"too large a pipeline", `"pre_tokenizer":null`,
			`"pre_tokenizer":{"type":"` + strings.Repeat("x", maxPipelineBytes) + `"}`, "want at most 65536"},
		{"too many pieces", `"a":256`, `"a":256` + strings.Repeat(`,"b":257`, maxPieces), "more than 524288 pieces"},
		{"too many merges", `["a b"]`, `[` + strings.Repeat(`"a b",`, 2*maxMerges) + `"a b"]`,
			"more than 1048576 merges"},
		{"too many added tokens", `"added_tokens":[`,
			`"added_tokens":[` + strings.Repeat(`{"id":300,"content":"<x>"},`, maxAdded),
			"more than 65536 added tokens"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rttest.Contains(t, small(), tt.old)
			spec := gemmaSpec
			spec.BOSID = nil
			_, err := LoadFile(saved(t, "tokenizer.json", []byte(strings.Replace(small(), tt.old, tt.new, 1))), &spec)
			rttest.FailsAs(t, err, errFormat, tt.want)
		})
	}
}

func TestByteLevelIsRefused(t *testing.T) {
	for _, tt := range []struct{ name, old, new, want string }{
		{"a prefix space", `"ByteLevel","add_prefix_space":false`, `"ByteLevel","add_prefix_space":true`,
			"without add_prefix_space"},
		{"no pattern", `"use_regex":true`, `"use_regex":false`, "want ByteLevel with use_regex"},
		{"groups of digits", `"individual_digits":true`, `"individual_digits":false`, "Digits with individual_digits"},
		{"another split", `"Digits"`, `"Punctuation"`, "pre_tokenizer Punctuation and ByteLevel"},
		{"a normalizer", `"normalizer":null`, `"normalizer":{"type":"NFC"}`, "normalizer NFC"},
		{"an unknown token", `"unk_token":null`, `"unk_token":"<|endoftext|>"`, "byte 0x02 has no token"},
		{"byte fallback", `"byte_fallback":false`, `"byte_fallback":true`, "want it absent with kind bpe"},
	} {
		data := golden(t, "smolvlm.json")
		if !bytes.Contains(data, []byte(tt.old)) {
			t.Fatalf("smolvlm.json has no %s", tt.old)
		}
		spec := smolSpec
		_, err := LoadFile(saved(t, "tokenizer.json", bytes.Replace(data, []byte(tt.old), []byte(tt.new), 1)), &spec)
		rttest.FailsAs(t, err, errFormat, tt.want)
	}
}

// messageOf and varint return one field of a protocol buffer message.
func messageOf(num protowire.Number, inner []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), inner)
}

func varint(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

func pieceOf(text string, kind uint64, score float32) []byte {
	p := messageOf(1, []byte(text))
	p = protowire.AppendFixed32(protowire.AppendTag(p, 2, protowire.Fixed32Type), math.Float32bits(score))
	return messageOf(1, append(p, varint(3, kind)...))
}

// smallModel returns a tokenizer.model with the 256 bytes as ids 1 to 256, and the pieces from id 257 on.
func smallModel(pieces ...[]byte) []byte {
	model := slices.Concat(
		messageOf(2, slices.Concat(varint(3, 2), varint(35, 1), varint(41, 2))),
		messageOf(3, slices.Concat(messageOf(1, []byte("identity")), varint(3, 0), varint(4, 0))),
		pieceOf("<unk>", unknown, 0),
	)
	for b := range 256 {
		model = append(model, pieceOf(fmt.Sprintf("<0x%02X>", b), byteType, 0)...)
	}
	return slices.Concat(append([][]byte{model}, pieces...)...)
}

// The ids equal those of sentencepiece 0.2.3 for the same models.
func TestSmallModels(t *testing.T) {
	a := pieceOf("a", normal, -8)
	b := pieceOf("b", normal, -9)
	c := pieceOf("c", normal, -7)
	for _, tt := range []struct {
		name  string
		model []byte
		text  string
		want  []int64
	}{
		{"of the same score the left pair first", smallModel(a, b, c, pieceOf("bc", normal, -1),
			pieceOf("ab", normal, -1)), "abc", []int64{261, 259}},
		{"the higher score first", smallModel(a, b, c, pieceOf("bc", normal, -1), pieceOf("ab", normal, -2)),
			"abc", []int64{257, 260}},
		{"a user-defined piece does not merge", smallModel(a, b, c, pieceOf("bc", userDefined, 0),
			pieceOf("abc", normal, -1)), "abc", []int64{257, 260}},
		{"the same piece without its definition", smallModel(a, b, c, pieceOf("bc", normal, 0),
			pieceOf("abc", normal, -1)), "abc", []int64{261}},
		{"a piece of characters that are none", smallModel(a, pieceOf("xy", normal, -1)),
			"axyx", []int64{257, 258, 'x' + 1}},
		{"a control character is text", smallModel(a, pieceOf("\n", control, 0)), "a\n", []int64{257, '\n' + 1}},
	} {
		spec := gemmaSpec
		spec.BOSID = nil
		tok := loadData(t, "tokenizer.model", tt.model, spec)
		if got, err := tok.encode(tt.text); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q = %v, %v, want %v", tt.name, tt.text, got, err, tt.want)
		}
	}
}

func TestModelIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		more []byte // bytes after the model; their fields override the model's
		want string
	}{
		{"no model", messageOf(2, varint(3, 1)), "model type 1, want 2"},
		{"normalisation rules", messageOf(3, messageOf(2, []byte("x"))), "want identity"},
		{"a dummy prefix", messageOf(3, varint(3, 1)), "want identity"},
		{"spaces removed", messageOf(3, varint(4, 1)), "want identity"},
		{"spaces kept", messageOf(3, varint(5, 0)), "want identity"},
		{"spaces as suffix", messageOf(2, varint(24, 1)), "want identity"},
		{"no byte fallback", messageOf(2, varint(35, 0)), "no byte_fallback"},
		{"another start", messageOf(2, varint(41, 1)), "bos_id is 1, bundle.json's 2"},
		{"an unused piece", pieceOf("qqq", 5, 0), `piece "qqq" has the type 5`},
		{"a piece twice", pieceOf("the", 1, 0), `piece "the" is there twice`},
		{"a piece that is not text", pieceOf("\xff", 1, 0), "want text"},
		{"an empty piece", pieceOf("", 1, 0), "of 0 bytes"},
		{"a score that is no number", pieceOf("qqq", 1, float32(math.NaN())), "no number as its score"},
		{"a torn tail", []byte{0x0a, 0xff}, "unexpected EOF"},
	} {
		spec := gemmaSpec
		_, err := LoadFile(saved(t, "tokenizer.model", append(golden(t, "gemma.model"), tt.more...)), &spec)
		rttest.FailsAs(t, err, errFormat, tt.want)
	}
	spec := gemmaSpec
	rttest.Fails(t, rttest.Err(LoadFile(saved(t, "tokenizer.model", nil), &spec)))
}

func TestWhichFileIsRead(t *testing.T) {
	if names := FileNames(&gemmaSpec); !slices.Equal(names, []string{jsonName, modelName}) {
		t.Errorf("SentencePiece reads %v, want tokenizer.json first", names)
	}
	if names := FileNames(&smolSpec); !slices.Equal(names, []string{jsonName}) {
		t.Errorf("kind bpe reads %v, want tokenizer.json alone", names)
	}
}

func TestSpecCheck(t *testing.T) {
	pi05 := func(change func(*Spec)) Spec {
		s := pi05Spec
		s.State = &State{Bins: bins, Mode: "quantiles", A: []float32{1, 2}, Span: []float32{3, 4}}
		change(&s)
		return s
	}
	for _, tt := range []struct {
		name string
		spec Spec
		want string // a part of the error's text; empty: the spec is accepted
	}{
		{"SmolVLA", smolSpec, ""},
		{"Pi0.5", pi05(func(*Spec) {}), ""},
		{"kind", Spec{Kind: "wordpiece", MaxLen: 48, Template: "{task}"}, `kind is "wordpiece"`},
		{"no max_len", Spec{Kind: bpe, Template: "{task}"}, "max_len is 0"},
		{"max_len", Spec{Kind: bpe, MaxLen: maxLen + 1, Template: "{task}"}, "max_len is 4097"},
		{"pad_id", Spec{Kind: bpe, MaxLen: 48, PadID: -1, Template: "{task}"}, "pad_id is -1"},
		{"bos_id", Spec{Kind: bpe, MaxLen: 48, BOSID: id(-1), Template: "{task}"}, "bos_id is -1"},
		{"no task", Spec{Kind: bpe, MaxLen: 48, Template: "do"}, "want {task} in it once"},
		{"the task twice", Spec{Kind: bpe, MaxLen: 48, Template: "{task}{task}"}, "want {task} in it once"},
		{"{state} without a state", Spec{Kind: bpe, MaxLen: 48, Template: "{task} {state}"}, "there is no state"},
		{"a state without {state}", pi05(func(s *Spec) { s.Template = "{task}\n" }), "want {state} after {task}"},
		{"{state} before the task", pi05(func(s *Spec) {
			s.Template = "S: {state} {task}."
		}), "want {state} after {task}"},
		{"no space before {state}", pi05(func(s *Spec) {
			s.Template = "{task}, S:{state};"
		}), "want {state} after {task}"},
		{"nothing but a space before {state}", pi05(func(s *Spec) {
			s.Template = "{task} {state};"
		}), "want {state} after {task}"},
		{"nothing behind {state}", pi05(func(s *Spec) {
			s.Template = "{task}, S: {state}"
		}), "want {state} after {task}"},
		{"bins", pi05(func(s *Spec) { s.State.Bins = 255 }), "state.bins is 255"},
		{"mode", pi05(func(s *Spec) { s.State.Mode = "log" }), `state.mode is "log"`},
		{"a", pi05(func(s *Spec) { s.State.A = s.State.A[:1] }), "want 2 of each"},
		{"span", pi05(func(s *Spec) { s.State.Span = nil }), "want 2 of each"},
		{"b", pi05(func(s *Spec) { s.State.B = []float32{1} }), "want 2 of each"},
		{"a span of 0", pi05(func(s *Spec) { s.State.Span[1] = 0 }), "span has a 0"},
		{"a span below 0", pi05(func(s *Spec) { s.State.Span[0] = -1 }), "span has a -1"},
	} {
		err := tt.spec.Check(2)
		if tt.want == "" && err != nil || tt.want != "" && (!rttest.Says(err, tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
