package ndarray

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// An .npy file is magic, version, length of the header, the header as a Python dict, and the data.
//
// Source: numpy/lib/format.py.
const (
	npyMagic  = "\x93NUMPY"
	npyAlign  = 64       // alignment of the data in the file
	npyHeader = 64 << 10 // largest header that is read; NumPy's own limit is 10,000 characters
)

// npyDict is the header in the form in which NumPy writes it.
var npyDict = regexp.MustCompile(`^\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\),? ?\} *\n?$`)

// parseNPY reads an .npy file. The array's data is lent from b unless the file is in Fortran order.
// A file of objects, which NumPy would read as a pickle, is refused by its dtype.
func parseNPY(b []byte) (a Array, err error) {
	rest, ok := bytes.CutPrefix(b, []byte(npyMagic))
	if !ok || len(rest) < 2 {
		return a, fmt.Errorf("%w: an .npy file begins with % x, want % x and a version", ErrFormat, head(b), npyMagic)
	}
	var header []byte
	switch major := rest[0]; {
	case major == 1 && len(rest) >= 4:
		header, rest, ok = cut(rest[4:], uint64(binary.LittleEndian.Uint16(rest[2:])))
	case (major == 2 || major == 3) && len(rest) >= 6:
		header, rest, ok = cut(rest[6:], uint64(binary.LittleEndian.Uint32(rest[2:])))
	default:
		return a, fmt.Errorf("%w: an .npy file has version %d and %d bytes, want version 1, 2 or 3 and a header",
			ErrFormat, major, len(b))
	}
	if !ok {
		return a, fmt.Errorf("%w: the header of an .npy file is longer than the file, or than %d bytes", ErrFormat,
			npyHeader)
	}
	parts := npyDict.FindSubmatch(header)
	if parts == nil {
		return a, fmt.Errorf("%w: an .npy file has the header %.120q, want descr, fortran_order and shape", ErrFormat,
			header)
	}
	a = Array{DType: string(parts[1]), Data: rest}
	for _, side := range strings.Split(string(parts[3]), ",") {
		if side = strings.TrimSpace(side); side == "" {
			continue
		}
		n, err := strconv.Atoi(side)
		if err != nil || len(a.Shape) > maxDims {
			return Array{}, fmt.Errorf("%w: an .npy file has the shape (%.60s)", ErrFormat, parts[3])
		}
		a.Shape = append(a.Shape, n)
	}
	if err := a.check(); err != nil {
		return Array{}, err
	}
	if string(parts[2]) == "True" {
		a.toC()
	}
	return a, nil
}

func cut(b []byte, n uint64) (head, rest []byte, ok bool) {
	if n > npyHeader || n > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

func head(b []byte) []byte { return b[:min(len(b), len(npyMagic))] }

// npyPrefix returns all bytes of an .npy file before its data, as numpy.save writes them.
func npyPrefix(dtype string, shape []int) []byte {
	sides := make([]string, len(shape))
	for i, side := range shape {
		sides[i] = strconv.Itoa(side)
	}
	tuple := strings.Join(sides, ", ")
	if len(shape) == 1 {
		tuple += ","
	}
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", dtype, tuple)
	const fixed = len(npyMagic) + 2 + 2 // magic, version, length
	// NumPy adds spaces, so that the first dimension can grow to 21 digits. Below, 1 is the line feed.
	if len(shape) > 0 {
		const growth = 21
		dict += strings.Repeat(" ", growth-len(sides[0]))
	}
	pad := npyAlign - (fixed+len(dict)+1)%npyAlign
	dict += strings.Repeat(" ", pad) + "\n"
	b := append([]byte(npyMagic), 1, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(dict)))
	return append(b, dict...)
}
