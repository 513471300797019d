package policy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Bounds for reading a graph.
const (
	maxGraphDepth   = 64   // depth of messages within messages
	maxLocations    = 1000 // files that one graph may name
	maxLocationName = 4096 // bytes of the name of one of these files
)

// externalName is the key of the entry that names the file with a tensor's values.
const externalName = "location"

// onnxMessage describes a kind of message in an ONNX file. It has only the fields that contain, at any depth, the
// entries that name files. The scan skips all other fields.
type onnxMessage map[protowire.Number]onnxMessage

// onnxModel is the outermost message, and onnxEntry the innermost, whose fields 1 and 2
// are key and value.
//
// Source: onnx.proto of ONNX 1.17.
var onnxModel, onnxEntry = onnxMessages()

func onnxMessages() (model, entry onnxMessage) {
	entry = onnxMessage{1: nil, 2: nil}
	tensor := onnxMessage{13: entry}
	sparse := onnxMessage{1: tensor, 2: tensor}
	attribute := onnxMessage{5: tensor, 10: tensor, 22: sparse, 23: sparse}
	node := onnxMessage{5: attribute}
	graph := onnxMessage{1: node, 5: tensor, 15: sparse}
	attribute[6], attribute[11] = graph, graph
	training := onnxMessage{1: graph, 2: graph}
	return onnxMessage{7: graph, 20: training, 25: {7: node}}, entry
}

// checkWeights refuses a graph that reads weights from a file that bundle.json does not list, because the digest does
// not cover that file. Before, the caller has opened the graph in ONNX Runtime, which refuses damaged files and names
// that lead out of the bundle.
func (b *Bundle) checkWeights(graph string) error {
	locations, err := externalFiles(filepath.Join(b.Dir, graph))
	if err != nil {
		return err
	}
	for _, location := range locations {
		if _, listed := b.Files[path.Clean(location)]; !listed {
			return fmt.Errorf("it keeps weights in %q, which files in %s does not list: export the bundle again",
				location, manifestName)
		}
	}
	return nil
}

// externalFiles returns the names of the files beside the graph that contain its tensors' values.
// It skips values in the graph itself.
func externalFiles(file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := &onnxScan{r: bufio.NewReaderSize(f, 64<<10)}
	if err := s.message(onnxModel, math.MaxInt64, 0); err != nil {
		return nil, fmt.Errorf("after byte %d: %w", s.read, err)
	}
	return s.locations, nil
}

var (
	errNoGraph   = errors.New("not an ONNX graph, or a cut one: copy it or export it again")
	errLocations = fmt.Errorf("its weights are in more than %d files", maxLocations)
)

// onnxScan reads a graph from its beginning to its end.
type onnxScan struct {
	r         *bufio.Reader
	read      int64
	locations []string
}

// ReadByte counts the bytes that binary.ReadUvarint reads.
func (s *onnxScan) ReadByte() (byte, error) {
	c, err := s.r.ReadByte()
	if err == nil {
		s.read++
	}
	return c, err
}

// message reads one message of the given kind. The message ends at the offset end, and the outermost message may also
// end with the file.
func (s *onnxScan) message(kind onnxMessage, end int64, depth int) error {
	if depth > maxGraphDepth {
		return errNoGraph
	}
	var entry [2]string
	isEntry := len(kind) == len(onnxEntry) && kind[1] == nil && kind[2] == nil
	for s.read < end {
		tag, err := binary.ReadUvarint(s)
		if errors.Is(err, io.EOF) && depth == 0 {
			return nil
		} else if err != nil {
			return fmt.Errorf("%w: %w", errNoGraph, err)
		}
		number, wire := protowire.DecodeTag(tag)
		size, err := s.size(wire)
		if err != nil {
			return err
		}
		inner, wanted := kind[number]
		switch {
		case size > end-s.read:
			return errNoGraph
		case wire != protowire.BytesType || !wanted:
			err = s.skip(size)
		case isEntry:
			entry[number-1], err = s.text(size)
		default:
			err = s.message(inner, s.read+size, depth+1)
		}
		if err != nil {
			return err
		}
	}
	if s.read != end {
		return errNoGraph
	}
	if isEntry && entry[0] == externalName && !slices.Contains(s.locations, entry[1]) {
		if len(s.locations) == maxLocations {
			return errLocations
		}
		s.locations = append(s.locations, entry[1])
	}
	return nil
}

// size returns the number of bytes that follow as a field's value. If the value is a number, size reads it and returns
// 0.
func (s *onnxScan) size(wire protowire.Type) (int64, error) {
	switch wire {
	case protowire.VarintType:
		_, err := binary.ReadUvarint(s)
		return 0, err
	case protowire.Fixed32Type:
		return 4, nil
	case protowire.Fixed64Type:
		return 8, nil
	case protowire.BytesType:
		n, err := binary.ReadUvarint(s)
		if err == nil && n > math.MaxInt64 {
			err = errNoGraph
		}
		return int64(n), err
	}
	return 0, errNoGraph
}

// skip skips a value.
func (s *onnxScan) skip(size int64) error {
	n, err := io.CopyN(io.Discard, s.r, size)
	s.read += n
	return err
}

// text reads a short value and skips a long one, which cannot be a file name.
func (s *onnxScan) text(size int64) (string, error) {
	if size > maxLocationName {
		return "", s.skip(size)
	}
	value := make([]byte, size)
	n, err := io.ReadFull(s.r, value)
	s.read += int64(n)
	return string(value), err
}
