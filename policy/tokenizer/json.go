package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// jsonFile has the parts of a tokenizer.json that this package reads. It omits decoder, padding and truncation, because
// LeRobot sets its own.
type jsonFile struct {
	Normalizer    pipeline  `json:"normalizer"`
	PreTokenizer  pipeline  `json:"pre_tokenizer"`
	PostProcessor pipeline  `json:"post_processor"`
	AddedTokens   addedList `json:"added_tokens"`
	Model         struct {
		Type         string    `json:"type"`
		Vocab        vocab     `json:"vocab"`
		Merges       mergeList `json:"merges"`
		Dropout      float64   `json:"dropout"`
		UnkToken     string    `json:"unk_token"`
		Prefix       string    `json:"continuing_subword_prefix"`
		Suffix       string    `json:"end_of_word_suffix"`
		ByteFallback bool      `json:"byte_fallback"`
		IgnoreMerges bool      `json:"ignore_merges"`
	} `json:"model"`
}

// pipeline is one part of a tokenizer.json, such as the normalizer: the steps of a Sequence, or a single step.
type pipeline struct{ steps []component }

func (p *pipeline) UnmarshalJSON(data []byte) error {
	if len(data) > maxPipelineBytes {
		return fmt.Errorf("a part of the pipeline of %d bytes, want at most %d", len(data), maxPipelineBytes)
	}
	var c *component
	if err := json.Unmarshal(data, &c); err != nil || c == nil {
		return err
	}
	p.steps = []component{*c}
	if c.Type == "Sequence" {
		p.steps = slices.Concat(c.Normalizers, c.PreTokenizers, c.Processors)
	}
	return nil
}

func (p pipeline) String() string {
	if len(p.steps) == 0 {
		return "none"
	}
	var names []string
	for _, s := range p.steps {
		names = append(names, s.Type)
	}
	return strings.Join(names, " and ")
}

// component is a step of the pipeline, of any type.
type component struct {
	Type string `json:"type"`

	// The parts of a Sequence. Their key depends on their kind.
	Normalizers   []component `json:"normalizers"`
	PreTokenizers []component `json:"pretokenizers"`
	Processors    []component `json:"processors"`

	// For Replace and Split.
	Pattern struct{ String string } `json:"pattern"`
	Content string                  `json:"content"`

	// For Digits and ByteLevel.
	IndividualDigits bool  `json:"individual_digits"`
	AddPrefixSpace   bool  `json:"add_prefix_space"`
	UseRegex         *bool `json:"use_regex"` // absent: true

	// For TemplateProcessing.
	Single []struct {
		SpecialToken *struct {
			ID string `json:"id"`
		}
		Sequence *struct {
			ID string `json:"id"`
		}
	} `json:"single"`
	SpecialTokens map[string]struct {
		IDs []int64 `json:"ids"`
	} `json:"special_tokens"`
}

type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
}

// addedList holds the added tokens.
type addedList []addedToken

func (a *addedList) UnmarshalJSON(data []byte) error {
	if n := bytes.Count(data, []byte("{")); n > maxAdded {
		return fmt.Errorf("more than %d added tokens", maxAdded)
	}
	return json.Unmarshal(data, (*[]addedToken)(a))
}

// vocab maps tokens to ids.
type vocab map[string]int32

// UnmarshalJSON refuses a vocabulary that is too large before it allocates a map.
func (v *vocab) UnmarshalJSON(data []byte) error {
	if n := bytes.Count(data, []byte(":")); n > maxPieces {
		return fmt.Errorf("vocabulary of more than %d pieces", maxPieces)
	}
	var ids map[string]int32
	if err := json.Unmarshal(data, &ids); err != nil {
		return err
	}
	for piece, id := range ids {
		if err := checkPiece(piece, id); err != nil {
			return err
		}
	}
	*v = ids
	return nil
}

func checkPiece(piece string, id int32) error {
	if piece == "" || len(piece) > maxPieceBytes || !utf8.ValidString(piece) || id < 0 || id >= 2*maxPieces {
		return fmt.Errorf("piece %.80q of %d bytes with the id %d, want text of 1 to %d bytes and an id below %d",
			piece, len(piece), id, maxPieceBytes, 2*maxPieces)
	}
	return nil
}

// mergeList has the pairs in their order. Older files write a pair as one string with a space between its parts.
type mergeList [][2]string

func (m *mergeList) UnmarshalJSON(data []byte) error {
	for _, mark := range []string{`"`, "[", ","} {
		if bytes.Count(data, []byte(mark)) > 4*maxMerges {
			return fmt.Errorf("more than %d merges", maxMerges)
		}
	}
	var pairs [][]string
	if json.Unmarshal(data, &pairs) == nil {
		for _, p := range pairs {
			if len(p) != 2 {
				return fmt.Errorf("merge %.80q, want two pieces", p)
			}
			*m = append(*m, [2]string(p))
		}
		return nil
	}
	var lines []string
	if err := json.Unmarshal(data, &lines); err != nil {
		return err
	}
	for _, line := range lines {
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			return fmt.Errorf("merge %.80q, want two pieces with a space between them", line)
		}
		*m = append(*m, [2]string{left, right})
	}
	return nil
}

// parseJSON reads a tokenizer.json.
func parseJSON(data []byte, spec *Spec) (*Tokenizer, error) {
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("tokenizer.json: %w: not UTF-8", errFormat)
	}
	var f jsonFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w: %w", errFormat, err)
	}
	t := &Tokenizer{spec: *spec}
	for _, part := range []struct {
		name string
		read func(*Tokenizer, *jsonFile) error
	}{
		{"model", readModel},
		{"pipeline", readPipeline},
		{"merges", readMerges},
		{"added_tokens", readAdded},
		{"post_processor", readPostProcessor},
	} {
		if err := part.read(t, &f); err != nil {
			return nil, fmt.Errorf("tokenizer.json: %w: %s: %w", errFormat, part.name, err)
		}
	}
	return t, nil
}

// readModel refuses settings that no tokenizer of these kinds has.
func readModel(_ *Tokenizer, f *jsonFile) error {
	m := &f.Model
	switch {
	case m.Type != "BPE":
		return fmt.Errorf("type is %.80q, want BPE", m.Type)
	case m.Dropout != 0, m.Prefix != "", m.Suffix != "", m.IgnoreMerges:
		return fmt.Errorf("dropout, continuing_subword_prefix, end_of_word_suffix or ignore_merges is set: not " +
			"supported")
	case len(m.Merges) > maxMerges:
		return fmt.Errorf("%d merges, want at most %d", len(m.Merges), maxMerges)
	}
	return nil
}

// readPipeline recognises which of the two pipelines is in the file, and reads the tokens of the smallest symbols.
func readPipeline(t *Tokenizer, f *jsonFile) error {
	if t.spec.Kind == SentencePiece {
		return readCharacters(t, f)
	}
	if len(f.Normalizer.steps) > 0 {
		return fmt.Errorf("normalizer %.200s, want it absent with kind %s", f.Normalizer, bpe)
	}
	if f.Model.ByteFallback {
		return fmt.Errorf("byte_fallback, want it absent with kind %s", bpe)
	}
	steps := f.PreTokenizer.steps
	if len(steps) == 2 && steps[0].Type == "Digits" && steps[0].IndividualDigits {
		t.digits = true
		steps = steps[1:]
	}
	if len(steps) != 1 || steps[0].Type != "ByteLevel" || steps[0].AddPrefixSpace || steps[0].UseRegex != nil &&
		!*steps[0].UseRegex {
		return fmt.Errorf("pre_tokenizer %.200s, want ByteLevel with use_regex and without add_prefix_space, alone "+
			"or after Digits with individual_digits", f.PreTokenizer)
	}
	t.bytes = new([256]int32)
	hidden := rune(256)
	for b := range t.bytes {
		// A byte that is not a visible character of Latin-1 is written as a character from 256 on.
		r := rune(b)
		if r < '!' || r > '~' && r < 0xA1 || r == 0xAD {
			r, hidden = hidden, hidden+1
		}
		id, ok := f.Model.Vocab[string(r)]
		if !ok {
			if f.Model.UnkToken != "" {
				return fmt.Errorf("byte %#02x has no token and would become %.80q: not supported", b, f.Model.UnkToken)
			}
			id = none
		}
		t.bytes[b] = id
	}
	return nil
}

func readCharacters(t *Tokenizer, f *jsonFile) error {
	steps := f.Normalizer.steps
	if len(steps) != 1 || steps[0].Type != "Replace" || steps[0].Pattern.String != " " || steps[0].Content != "▁" {
		return fmt.Errorf(`normalizer %.200s, want Replace of " " by "▁" with kind %s`, f.Normalizer, SentencePiece)
	}
	// A Split at spaces has no effect, because the normalizer has already replaced the spaces.
	for _, p := range f.PreTokenizer.steps {
		if p.Type != "Split" || p.Pattern.String != " " {
			return fmt.Errorf("pre_tokenizer %.80s, want none or Split at spaces with kind %s", p.Type, SentencePiece)
		}
	}
	if !f.Model.ByteFallback {
		return fmt.Errorf("no byte_fallback, want it with kind %s", SentencePiece)
	}
	t.runes = map[rune]int32{}
	for piece, id := range f.Model.Vocab {
		if r, n := utf8.DecodeRuneInString(piece); n == len(piece) {
			t.runes[r] = id
		}
	}
	return t.readBytes(f.Model.Vocab)
}

// readBytes finds the token of each byte. All 256 must exist, so that every text has tokens.
func (t *Tokenizer) readBytes(tokens map[string]int32) error {
	for b := range t.fall {
		id, ok := tokens[fmt.Sprintf("<0x%02X>", b)]
		if !ok {
			return fmt.Errorf("byte_fallback without a piece <0x%02X>", b)
		}
		t.fall[b] = id
	}
	return nil
}

func readMerges(t *Tokenizer, f *jsonFile) error {
	t.merges.byIDs = make(map[uint64]merged, len(f.Model.Merges))
	var joint []byte
	for rank, m := range f.Model.Merges {
		joint = append(append(joint[:0], m[0]...), m[1]...)
		left, ok1 := f.Model.Vocab[m[0]]
		right, ok2 := f.Model.Vocab[m[1]]
		both, ok3 := f.Model.Vocab[string(joint)]
		if !ok1 || !ok2 || !ok3 {
			return fmt.Errorf("%.80q of merge %d is not in the vocabulary, or the two together are not", m, rank)
		}
		t.merges.byIDs[pair(left, right)] = merged{int32(rank), both}
	}
	return nil
}

func readAdded(t *Tokenizer, f *jsonFile) error {
	for _, a := range f.AddedTokens {
		if err := checkPiece(a.Content, a.ID); err != nil {
			return err
		}
		if a.LStrip || a.RStrip || a.SingleWord {
			return fmt.Errorf("%.80q has lstrip, rstrip or single_word: not supported", a.Content)
		}
		if id, ok := f.Model.Vocab[a.Content]; ok && id != a.ID {
			return fmt.Errorf("%.80q has the id %d here and %d in the vocabulary", a.Content, a.ID, id)
		}
		where, content := &t.raw, a.Content
		if a.Normalized {
			where = &t.added
			if t.bytes == nil {
				content = strings.ReplaceAll(content, " ", "▁")
			}
		}
		if err := where.insert(content, a.ID); err != nil {
			return err
		}
	}
	return nil
}

// readPostProcessor checks that the file adds exactly the tokens that bundle.json names.
func readPostProcessor(t *Tokenizer, f *jsonFile) error {
	var before, want []int64
	for _, p := range f.PostProcessor.steps {
		if p.Type == "ByteLevel" {
			continue // this part changes offsets only
		}
		if p.Type != "TemplateProcessing" {
			return fmt.Errorf("%.80s, want TemplateProcessing", p.Type)
		}
		text := false
		for _, part := range p.Single {
			switch {
			case part.Sequence != nil && !text:
				text = true
			case part.SpecialToken == nil || text:
				return fmt.Errorf("a template with tokens after the text, or with several texts: not supported")
			default:
				before = append(before, p.SpecialTokens[part.SpecialToken.ID].IDs...)
			}
		}
	}
	if t.spec.BOSID != nil {
		want = []int64{*t.spec.BOSID}
	}
	if !slices.Equal(before, want) {
		return fmt.Errorf("it puts the tokens %v before a text, bundle.json's bos_id is %v: export again", before, want)
	}
	return nil
}
