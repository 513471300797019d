package pattern

// Scenery returns an RGB picture with ramps, edges and sensor noise, for measurements of encoders.
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
