//go:build !cgo

package jpeg

// Encoder and Decoder replace the real types in a build without cgo, and have no instances: NewEncoder and NewDecoder
// return ErrNoLibrary, like every method that would use the library.
type (
	Encoder struct{}
	Decoder struct{}
)

// NewEncoder returns ErrNoLibrary.
func NewEncoder(int, Chroma) (*Encoder, error)                        { return nil, ErrNoLibrary }
func (e *Encoder) EncodeRGB(_, _ []byte, _, _ int) (n int, err error) { return 0, ErrNoLibrary }
func (e *Encoder) Encode([]byte, *Image) (n int, err error)           { return 0, ErrNoLibrary }
func (e *Encoder) Reserve(*Image)                                     {}
func (e *Encoder) Close() error                                       { return ErrNoLibrary }

// NewDecoder returns ErrNoLibrary.
func NewDecoder() (*Decoder, error)                                      { return nil, ErrNoLibrary }
func (d *Decoder) DecodeRGB(_, _ []byte, _, _ int) error                 { return ErrNoLibrary }
func (d *Decoder) DecodeScaled(_, _ []byte, _, _, _ int) error           { return ErrNoLibrary }
func (d *Decoder) ReserveFit(int)                                        {}
func (d *Decoder) DecodeFit(_, _ []byte, _, _ int) (w, h int, err error) { return 0, 0, ErrNoLibrary }
func (d *Decoder) Fit([]byte, int, int, []byte, int, int) error          { return ErrNoLibrary }
func (d *Decoder) Check([]byte) error                                    { return ErrNoLibrary }
func (d *Decoder) Warned() bool                                          { return false }
func (d *Decoder) Reserve(*Image)                                        {}
func (d *Decoder) ConvertRGB([]byte, *Image) error                       { return ErrNoLibrary }
func (d *Decoder) Explain(err error, src []byte, w, h int) error         { return explain(err, src, w, h, "") }
func (d *Decoder) Close() error                                          { return ErrNoLibrary }
