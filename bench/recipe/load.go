package recipe

import (
	"context"
	"runtime"
	"sync"

	"github.com/edge-rt/edge-rt/bench"
	"github.com/edge-rt/edge-rt/jpeg"
)

// startLoad starts a load that runs within the edge's process; for all other loads it does nothing.
func startLoad(ctx context.Context, all *sync.WaitGroup, load string) {
	switch load {
	case "encode":
		for range runtime.NumCPU() {
			all.Go(func() { encode(ctx) })
		}
	case "alloc":
		all.Go(func() { bench.Allocate(ctx, 20e6, 8<<20) })
	}
}

// The preview that every core encodes.
const (
	previewWidth, previewHeight = 640, 480
	previewQuality              = 90
)

// encode compresses pictures without a pause until ctx ends, as a recorder might.
func encode(ctx context.Context) {
	enc, err := jpeg.NewEncoder(previewQuality, jpeg.ChromaOfPicture)
	if err != nil {
		return // a failure here makes the edge fail, too
	}
	defer enc.Close()
	picture := make([]byte, previewWidth*previewHeight*3)
	for i := range picture {
		picture[i] = byte(i * i >> 7)
	}
	file := make([]byte, jpeg.MaxSize(previewWidth, previewHeight, jpeg.Chroma420))
	for ctx.Err() == nil {
		if _, err := enc.EncodeRGB(file, picture, previewWidth, previewHeight); err != nil {
			return
		}
	}
}
