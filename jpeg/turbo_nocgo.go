//go:build !cgo

package jpeg

// Encoder is a stand-in: NewEncoder never returns one.
type Encoder struct{}

// NewEncoder returns ErrNoLibrary.
func NewEncoder(int) (*Encoder, error) { return nil, ErrNoLibrary }

// EncodeRGB returns ErrNoLibrary.
func (e *Encoder) EncodeRGB(_, _ []byte, _, _ int) (n int, err error) { return 0, ErrNoLibrary }

// Close returns ErrNoLibrary.
func (e *Encoder) Close() error { return ErrNoLibrary }

// Decoder is a stand-in: NewDecoder never returns one.
type Decoder struct{}

// NewDecoder returns ErrNoLibrary.
func NewDecoder() (*Decoder, error) { return nil, ErrNoLibrary }

// Size returns ErrNoLibrary.
func (d *Decoder) Size([]byte) (w, h int, err error) { return 0, 0, ErrNoLibrary }

// DecodeRGB returns ErrNoLibrary, or ErrTooLarge as the library's twin does.
func (d *Decoder) DecodeRGB(_, src []byte, w, h int) error {
	if !pictureOK(w, h) || !scansOK(src) {
		return ErrTooLarge
	}
	return ErrNoLibrary
}

// Explain wraps err with the sizes.
func (d *Decoder) Explain(err error, src []byte, w, h int) error {
	return explain(err, 0, 0, w, h, len(src), "")
}

// Close returns ErrNoLibrary.
func (d *Decoder) Close() error { return ErrNoLibrary }
