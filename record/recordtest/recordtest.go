// Package recordtest writes records for the tests of packages that read them.
package recordtest

import (
	"maps"
	"os"
	"strconv"
	"testing"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt/rttest"
	"github.com/foxglove/mcap/go/mcap"
)

// Wall is the Unix time of instant 0 in these records, in ns.
const Wall = 1_764_000_000_000_000_000

// File is a record in progress.
type File struct {
	t        testing.TB
	file     *os.File
	mcap     *mcap.Writer
	channels map[string]uint16
}

// Create begins a record with the metadata of a run.
func Create(t testing.TB, path string, run map[string]string) *File {
	t.Helper()
	f := &File{t: t, channels: map[string]uint16{}}
	f.file = rttest.Must(os.Create(path))(t)
	f.mcap = rttest.Must(mcap.NewWriter(f.file, &mcap.WriterOptions{
		Chunked:     true,
		ChunkSize:   1 << 20,
		Compression: mcap.CompressionZSTD,
		IncludeCRC:  true,
	}))(t)
	f.check(f.mcap.WriteHeader(&mcap.Header{Profile: record.Profile}))
	metadata := map[string]string{"clock_offset_ns": strconv.Itoa(Wall)}
	maps.Copy(metadata, run)
	f.check(f.mcap.WriteMetadata(&mcap.Metadata{Name: record.RunMetadata, Metadata: metadata}))
	return f
}

func (f *File) check(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// Tick writes a tick.
func (f *File) Tick(m *record.Tick) {
	f.write(record.TickTopic, int64(m.At), record.Append(nil, m, Wall))
}

// Episode writes an episode's beginning or end.
func (f *File) Episode(m *record.Episode) {
	f.write(record.EpisodeTopic, int64(m.At), record.Append(nil, m, Wall))
}

// Event writes an event.
func (f *File) Event(m *record.Event) {
	f.write(record.EventTopic, int64(m.At), record.Append(nil, m, Wall))
}

// Session writes a session, at the record's beginning.
func (f *File) Session(m *record.Session) {
	f.write(record.SessionTopic, 0, record.Append(nil, m, Wall))
}

// Image writes a picture.
func (f *File) Image(m *record.Image) {
	f.write(record.CameraTopic+m.Camera, int64(m.At), record.Append(nil, m, Wall))
}

func (f *File) write(topic string, at int64, data []byte) {
	f.t.Helper()
	id, known := f.channels[topic]
	if !known {
		id = uint16(len(f.channels) + 1)
		f.channels[topic] = id
		f.check(f.mcap.WriteChannel(&mcap.Channel{ID: id, Topic: topic, MessageEncoding: "protobuf"}))
	}
	f.check(f.mcap.WriteMessage(&mcap.Message{
		ChannelID:   id,
		LogTime:     uint64(Wall + at),
		PublishTime: uint64(Wall + at),
		Data:        data,
	}))
}

// Close ends the record.
func (f *File) Close() {
	f.t.Helper()
	f.check(f.mcap.Close())
	f.check(f.file.Close())
}
