package bench

import (
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/sim/pattern"
)

// PictureBytes returns the size of pattern.Scenery as JPEG of this quality, or raw with 0.
func PictureBytes(w, h, quality int) (int, error) {
	if quality == 0 {
		return 3 * w * h, nil
	}
	enc, err := jpeg.NewEncoder(quality, jpeg.ChromaOfPicture)
	if err != nil {
		return 0, err
	}
	defer enc.Close()
	return enc.EncodeRGB(make([]byte, jpeg.MaxSize(w, h, jpeg.Chroma420)), pattern.Scenery(w, h), w, h)
}
