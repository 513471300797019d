package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/tinylib/msgp/msgp"
)

func judgeTensor(raw json.RawMessage) error {
	var v struct {
		Hex       string
		Shape     []int
		WireDType string `json:"wire_dtype"`
		DataHex   string `json:"data_hex"`
		Values    []any
	}
	rttest.PanicOn(json.Unmarshal(raw, &v))
	var got Tensor
	present, err := ParseTensor(&got, unhex(v.Hex))
	if err != nil || present != (v.WireDType != "") {
		return fmt.Errorf("ParseTensor(%s) = %v, %v", v.Hex, present, err)
	}
	if !present {
		return nil
	}
	if dtypes[got.DType].name != v.WireDType || !slices.Equal(got.Shape, v.Shape) ||
		hex.EncodeToString(got.Data) != v.DataHex {
		return fmt.Errorf("ParseTensor(%s) = %v %v %x, want %s %v %s", v.Hex, got.DType, got.Shape, got.Data,
			v.WireDType, v.Shape, v.DataHex)
	}
	if again := hex.EncodeToString(AppendTensor(nil, got)); again != v.Hex {
		return fmt.Errorf("AppendTensor = %s, want %s", again, v.Hex)
	}
	if got.DType != float32Type && got.DType != float64Type {
		return nil
	}
	return judgeFloats(unhex(v.Hex), v.Values)
}

// judgeFloats reads the tensor as the numbers of an action.
func judgeFloats(src []byte, values []any) error {
	r := reader{b: src}
	view, _ := r.tensor()
	got := r.floats(nil, &view)
	want := []float32{}
	for _, v := range values {
		f, ok := v.(float64)
		if !ok { // v is "nan" or "inf", which must never reach a motor
			if !errors.Is(r.err, ErrNotFinite) {
				return fmt.Errorf("floats = %v, want ErrNotFinite", r.err)
			}
			return nil
		}
		want = append(want, float32(f))
	}
	if r.err != nil || !slices.Equal(got, want) {
		return fmt.Errorf("floats = %v, %v, want %v", got, r.err, want)
	}
	return nil
}

func judgeTensorEdge(raw json.RawMessage) error {
	var v struct {
		Obj   map[string]any
		Out   *struct{ DType string }
		Error string
	}
	rttest.PanicOn(json.Unmarshal(raw, &v))
	src := msgp.AppendMapHeader(nil, uint32(len(v.Obj)))
	for _, key := range slices.Sorted(maps.Keys(v.Obj)) {
		src = msgp.AppendString(src, key)
		src = appendJSON(src, key, v.Obj[key])
	}
	var got Tensor
	_, err := ParseTensor(&got, src)
	if (err != nil) != (v.Error != "") {
		return fmt.Errorf("ParseTensor(% x) = %v, want error %q", src, err, v.Error)
	}
	if err == nil && dtypes[got.DType].name != v.Out.DType {
		return fmt.Errorf("ParseTensor(% x) has dtype %v, want %s", src, got.DType, v.Out.DType)
	}
	return nil
}

// appendJSON encodes the vector's JSON as MessagePack. Under the key "data", a text is the hexadecimal form of bytes,
// which appendJSON encodes as a MessagePack bin; only the text abcd becomes a MessagePack str.
func appendJSON(dst []byte, key string, v any) []byte {
	switch v := v.(type) {
	case string:
		if key == "data" && v != "abcd" {
			return msgp.AppendBytes(dst, unhex(v))
		}
		return msgp.AppendString(dst, v)
	case float64:
		return appendInt(dst, int64(v))
	case []any:
		dst = msgp.AppendArrayHeader(dst, uint32(len(v)))
		for _, e := range v {
			dst = appendJSON(dst, "", e)
		}
		return dst
	}
	panic(fmt.Sprintf("no MessagePack for %T", v))
}

func judgeImage(raw json.RawMessage) error {
	var v struct {
		Name, Hex, Error string
		RGBHex           string `json:"rgb_hex"`
		Shape            []int
		OutShape         []int `json:"out_shape"`
	}
	rttest.PanicOn(json.Unmarshal(raw, &v))
	switch {
	case strings.HasPrefix(v.Name, "reject_"):
		return judgeImageReject(v.Error)
	case strings.HasPrefix(v.Name, "decode_"):
		return judgeImageEdge(v.Name, v.Error)
	}
	m, err := parseImage(unhex(v.Hex))
	if err != nil {
		return err
	}
	if got := appendImage(nil, &m); hex.EncodeToString(got[1+len(m.Name):]) != v.Hex {
		return fmt.Errorf("appendImage = %x, want %s", got[1+len(m.Name):], v.Hex)
	}
	if v.RGBHex == "" {
		if m.Codec != JPEG || !bytes.HasPrefix(m.Data, []byte{0xff, 0xd8}) {
			return fmt.Errorf("codec %v with data % x…, want a JPEG file", m.Codec, m.Data[:4])
		}
		return nil
	}
	if m.Codec != Raw || !slices.Equal([]int{m.H, m.W, m.C}, v.Shape) || hex.EncodeToString(m.Data) != v.RGBHex {
		return fmt.Errorf("image = %v %dx%dx%d %x, want raw %v %s", m.Codec, m.H, m.W, m.C, m.Data, v.Shape, v.RGBHex)
	}
	return nil
}

// judgeImageReject checks that no picture that Python refuses can be sent. Image.Data can hold only
// bytes, and the encoder panics on a picture that is not H x W x 3.
func judgeImageReject(text string) error {
	if !strings.Contains(text, "dtype=uint8") {
		if reflect.TypeFor[Image]().Field(5).Type != reflect.TypeFor[[]byte]() {
			return errors.New("Image.Data is not bytes")
		}
		return nil
	}
	var s [3]int
	_, _ = fmt.Sscanf(text[strings.Index(text, "shape="):], "shape=(%d, %d, %d)", &s[0], &s[1], &s[2])
	m := Image{
		Name:  "x",
		Codec: Raw,
		H:     s[0],
		W:     s[1],
		C:     s[2],
		Data:  make([]byte, max(1, s[0])*max(1, s[1])*max(1, s[2])),
	}
	defer func() { recover() }()
	appendImage(nil, &m)
	return fmt.Errorf("appendImage of %v did not panic", s)
}

// judgeImageEdge builds the image object that the vector's name describes, because the file contains only the outcome.
func judgeImageEdge(name, wantErr string) error {
	data := func(dst []byte, b ...byte) []byte { return msgp.AppendBytes(msgp.AppendString(dst, "data"), b) }
	shape := func(dst []byte, dims ...int64) []byte {
		dst = msgp.AppendArrayHeader(msgp.AppendString(dst, "shape"), uint32(len(dims)))
		for _, d := range dims {
			dst = appendInt(dst, d)
		}
		return dst
	}
	object := map[string][]byte{
		"decode_unknown_codec":            data(appendTextKey([]byte{0x82}, "codec", "webp"), 1),
		"decode_jpeg_garbage":             data(appendTextKey([]byte{0x82}, "codec", "jpeg"), 1, 2, 3),
		"decode_jpeg_empty":               data(appendTextKey([]byte{0x82}, "codec", "jpeg")),
		"decode_codec_missing_means_jpeg": data([]byte{0x81}, 1, 2, 3),
		"decode_raw_bad_len": data(shape(appendTextKey([]byte{0x83}, "codec", "raw"), 2, 2, 3), 1, 2, 3, 4,
			5),
		"decode_raw_any_shape_ok": data(shape(appendTextKey([]byte{0x83}, "codec", "raw"), 12),
			make([]byte, 12)...),
		"decode_raw_missing_shape": data(appendTextKey([]byte{0x82}, "codec", "raw"), make([]byte, 12)...),
	}[name]
	if object == nil {
		return fmt.Errorf("the judge does not know %s", name)
	}
	m, err := parseImage(object)
	if strings.Contains(wantErr, "JPEG decoding failed") {
		// Package jpeg decides whether the bytes are a JPEG. Here they must arrive unchanged and with the codec JPEG.
		if err != nil || m.Codec != JPEG || !bytes.Equal(m.Data, []byte{1, 2, 3}) {
			return fmt.Errorf("image = %v % x, %v, want jpeg 01 02 03", m.Codec, m.Data, err)
		}
		return nil
	}
	if (err != nil) != (wantErr != "") {
		return fmt.Errorf("parse of %s = %v, want error %q", name, err, wantErr)
	}
	return nil
}

// parseImage parses an image object inside the smallest observation.
func parseImage(object []byte) (Image, error) {
	src := append([]byte{0x81}, msgp.AppendString(nil, "images")...)
	src = append(src, 0x81)
	src = append(msgp.AppendString(src, "x"), object...)
	var o Observation
	if err := ParseObservation(&o, src); err != nil {
		return Image{}, err
	}
	return o.Images[0], nil
}
