package bench

import "github.com/edge-rt/edge-rt/jpeg"

// Scenery returns an RGB picture with ramps, edges and sensor noise.
func Scenery(w, h int) []byte {
	pix := make([]byte, w*h*3)
	x := uint32(1)
	for i := range w * h {
		x = x*1664525 + 1013904223
		noise := byte(x >> 29)
		pix[3*i] = byte(i%w*255/w) + noise
		pix[3*i+1] = byte(i/w*255/h) + noise
		pix[3*i+2] = byte(i/w/8*8) ^ noise
	}
	return pix
}

// PictureBytes returns the size of such a picture as JPEG of this quality, or raw with 0.
func PictureBytes(w, h, quality int) (int, error) {
	if quality == 0 {
		return 3 * w * h, nil
	}
	enc, err := jpeg.NewEncoder(quality, jpeg.ChromaOfPicture)
	if err != nil {
		return 0, err
	}
	defer enc.Close()
	return enc.EncodeRGB(make([]byte, jpeg.MaxSize(w, h, jpeg.Chroma420)), Scenery(w, h), w, h)
}
