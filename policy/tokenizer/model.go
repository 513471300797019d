package tokenizer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Types of a piece.
//
// Source: https://github.com/google/sentencepiece, src/sentencepiece_model.proto.
const (
	normal      = 1
	unknown     = 2
	control     = 3
	userDefined = 4
	byteType    = 6
)

// piece is one entry of a model's vocabulary. Its id is its index.
type piece struct {
	text  string
	score float32
	kind  uint64
}

// modelFile has the parts of a tokenizer.model that this package reads, with the format's defaults.
type modelFile struct {
	pieces []piece

	modelType    uint64
	bos          int32
	byteFallback bool
	suffix       bool // treat_whitespace_as_suffix

	rules        int // size of the normalisation rules in bytes
	dummyPrefix  bool
	removeSpaces bool
	escapeSpaces bool
}

// parseModel reads a tokenizer.model.
func parseModel(data []byte, spec *Spec) (*Tokenizer, error) {
	f := modelFile{
		modelType:    1,
		bos:          1,
		dummyPrefix:  true,
		removeSpaces: true,
		escapeSpaces: true,
	}
	if err := fields(data, f.field); err != nil {
		return nil, fmt.Errorf("tokenizer.model: %w: %w", errFormat, err)
	}
	t := &Tokenizer{spec: *spec}
	err := f.check(spec)
	if err == nil {
		err = f.fill(t)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer.model: %w: %w", errFormat, err)
	}
	return t, nil
}

// value is the value of one field: a number, or the bytes of a text or a message.
type value struct {
	number uint64
	bytes  []byte
}

// fields calls the function one for every field of a message.
func fields(data []byte, one func(protowire.Number, value) error) error {
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		var v value
		switch typ {
		case protowire.VarintType:
			v.number, n = protowire.ConsumeVarint(data)
		case protowire.Fixed32Type:
			var u uint32
			u, n = protowire.ConsumeFixed32(data)
			v.number = uint64(u)
		case protowire.BytesType:
			v.bytes, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(num, typ, data)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if err := one(num, v); err != nil {
			return err
		}
	}
	return nil
}

func (f *modelFile) field(num protowire.Number, v value) error {
	switch num {
	case 1:
		if len(f.pieces) == maxPieces {
			return fmt.Errorf("more than %d pieces", maxPieces)
		}
		p := piece{kind: normal}
		err := fields(v.bytes, func(num protowire.Number, v value) error {
			switch num {
			case 1:
				p.text = string(v.bytes)
			case 2:
				p.score = math.Float32frombits(uint32(v.number))
			case 3:
				p.kind = v.number
			}
			return nil
		})
		if err != nil {
			return err
		}
		if p.score != p.score {
			return fmt.Errorf("piece %d has no number as its score", len(f.pieces))
		}
		f.pieces = append(f.pieces, p)
		return checkPiece(p.text, int32(len(f.pieces)-1))
	case 2:
		return fields(v.bytes, f.trainerField)
	case 3:
		return fields(v.bytes, f.normalizerField)
	}
	return nil
}

func (f *modelFile) trainerField(num protowire.Number, v value) error {
	switch num {
	case 3:
		f.modelType = v.number
	case 24:
		f.suffix = v.number != 0
	case 35:
		f.byteFallback = v.number != 0
	case 41:
		f.bos = int32(v.number)
	}
	return nil
}

func (f *modelFile) normalizerField(num protowire.Number, v value) error {
	switch num {
	case 2, 6:
		f.rules += len(v.bytes)
	case 3:
		f.dummyPrefix = v.number != 0
	case 4:
		f.removeSpaces = v.number != 0
	case 5:
		f.escapeSpaces = v.number != 0
	}
	return nil
}

// check refuses settings that differ from those of Gemma's model.
func (f *modelFile) check(spec *Spec) error {
	switch {
	case spec.Kind != SentencePiece:
		return fmt.Errorf("want a tokenizer.json with kind %s", spec.Kind)
	case f.modelType != 2:
		return fmt.Errorf("model type %d, want 2: BPE", f.modelType)
	case f.rules != 0 || f.dummyPrefix || f.removeSpaces || !f.escapeSpaces || f.suffix:
		return errors.New("it normalises text, want identity without a dummy prefix that keeps and escapes all spaces")
	case !f.byteFallback:
		return errors.New("no byte_fallback, want it")
	case spec.BOSID != nil && *spec.BOSID != int64(f.bos):
		return fmt.Errorf("its bos_id is %d, bundle.json's %d: export again", f.bos, *spec.BOSID)
	}
	return nil
}

// fill makes the tokenizer's tables from the pieces.
func (f *modelFile) fill(t *Tokenizer) error {
	ranks := f.ranks()
	t.runes = map[rune]int32{}
	t.merges.byText = make(map[string]merged, len(f.pieces))
	bytes := map[string]int32{}
	seen := make(map[string]bool, len(f.pieces))
	for i, p := range f.pieces {
		id := int32(i)
		if seen[p.text] {
			return fmt.Errorf("piece %.80q is there twice", p.text)
		}
		seen[p.text] = true
		switch p.kind {
		case userDefined:
			if err := t.merges.frozen.insert(p.text, id); err != nil {
				return err
			}
			fallthrough
		case normal:
			t.merges.byText[p.text] = merged{ranks[i], id}
			t.merges.longest = max(t.merges.longest, len(p.text))
			if r, n := utf8.DecodeRuneInString(p.text); n == len(p.text) {
				t.runes[r] = id
			}
		case byteType:
			bytes[p.text] = id
		case unknown, control: // no text is encoded as such a piece
		default:
			return fmt.Errorf("piece %.80q has the type %d: not supported", p.text, p.kind)
		}
	}
	return t.readBytes(bytes)
}

// ranks returns the rank of each piece's score, the highest first. Pieces of the same score have
// the same rank.
func (f *modelFile) ranks() []int32 {
	order := make([]int32, len(f.pieces))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(f.pieces[b].score, f.pieces[a].score) })
	ranks := make([]int32, len(order))
	for place := 1; place < len(order); place++ {
		now, before := order[place], order[place-1]
		ranks[now] = ranks[before]
		if f.pieces[now].score != f.pieces[before].score {
			ranks[now] = int32(place)
		}
	}
	return ranks
}
