package dataset

import (
	"fmt"
	"os"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// BenchmarkExport exports ten seconds of a run at 30 Hz with two cameras. It reports the exported
// frames per second, and the size of the record and of the dataset in MB per minute of the run.
func BenchmarkExport(b *testing.B) {
	needFFmpeg(b)
	for _, codec := range []string{"h264", "av1"} {
		for _, size := range []size{{160, 120}, {640, 480}} {
			b.Run(fmt.Sprintf("codec=%s/size=%dx%d", codec, size.w, size.h), func(b *testing.B) {
				const seconds = 10
				s := &scene{seconds: seconds, cameras: []string{"top", "wrist"}, w: size.w, h: size.h, task: "x"}
				path := s.write(b, b.TempDir(), "a.mcap")
				var bytes int64
				frames := 0
				for b.Loop() {
					cfg := testConfig(b, path)
					cfg.VCodec = codec
					r := rttest.Must(Export(b.Context(), cfg))(b)
					bytes, frames = r.Bytes, frames+r.Frames
				}
				info := rttest.Must(os.Stat(path))(b)
				b.ReportMetric(float64(frames)/b.Elapsed().Seconds(), "frames/s")
				b.ReportMetric(float64(bytes)*60/seconds/1e6, "MB/min")
				b.ReportMetric(float64(info.Size())*60/seconds/1e6, "record-MB/min")
			})
		}
	}
}
