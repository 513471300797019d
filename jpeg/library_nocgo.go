//go:build !cgo

package jpeg

// Encoder is a stand-in: NewEncoder never returns one.
type Encoder struct{}

// NewEncoder returns ErrNoLibrary.
func NewEncoder(int, Chroma) (*Encoder, error) { return nil, ErrNoLibrary }

// EncodeRGB returns ErrNoLibrary.
func (e *Encoder) EncodeRGB(_, _ []byte, _, _ int) (n int, err error) { return 0, ErrNoLibrary }

// Encode returns ErrNoLibrary.
func (e *Encoder) Encode([]byte, *Image) (n int, err error) { return 0, ErrNoLibrary }

// Reserve does nothing.
func (e *Encoder) Reserve(*Image) {}

// Close returns ErrNoLibrary.
func (e *Encoder) Close() error { return ErrNoLibrary }

// Decoder is a stand-in: NewDecoder never returns one.
type Decoder struct{}

// NewDecoder returns ErrNoLibrary.
func NewDecoder() (*Decoder, error) { return nil, ErrNoLibrary }

// DecodeRGB returns ErrNoLibrary.
func (d *Decoder) DecodeRGB(_, _ []byte, _, _ int) error { return ErrNoLibrary }

// DecodeScaled returns ErrNoLibrary.
func (d *Decoder) DecodeScaled(_, _ []byte, _, _, _ int) error { return ErrNoLibrary }

// Warned is false.
func (d *Decoder) Warned() bool { return false }

// Reserve does nothing.
func (d *Decoder) Reserve(*Image) {}

// ConvertRGB returns ErrNoLibrary.
func (d *Decoder) ConvertRGB([]byte, *Image) error { return ErrNoLibrary }

// Explain wraps err with the sizes.
func (d *Decoder) Explain(err error, src []byte, w, h int) error { return explain(err, src, w, h, "") }

// Close returns ErrNoLibrary.
func (d *Decoder) Close() error { return ErrNoLibrary }
