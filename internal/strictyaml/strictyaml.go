// Package strictyaml reads YAML that people write: unknown keys are refused, and
// no text can end the program.
package strictyaml

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

const (
	// MaxBytes of a file: these are pages, not data sets.
	MaxBytes = 256 << 10

	// nestingMax is deeper than anybody nests. The module's memory grows with the
	// square of the depth: 800 kB of "- " took 8 GB.
	nestingMax = 64
)

// ErrNesting means that lists or maps stand in each other deeper than anybody
// writes.
var ErrNesting = errors.New("no YAML that is read here")

// ReadFile reads a whole file of at most MaxBytes.
func ReadFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err == nil && len(data) > MaxBytes {
		err = fmt.Errorf("%s has more than %d bytes", name, MaxBytes)
	}
	return data, err
}

// Decode reads data into dst, a pointer.
func Decode(data []byte, dst any) (err error) {
	defer noPanic(&err)
	if err := checkNesting(data); err != nil {
		return err
	}
	return yaml.UnmarshalWithOptions(data, dst, yaml.Strict())
}

// Parse returns the syntax tree, for those who need to know lines.
func Parse(data []byte) (file *ast.File, err error) {
	defer noPanic(&err)
	if err := checkNesting(data); err != nil {
		return nil, err
	}
	return parser.ParseBytes(data, 0)
}

// noPanic makes an error of a panic: the module has one for some tags, such as a
// sequence's on what is none.
func noPanic(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("no YAML: %v", p)
	}
}

// checkNesting looks at brackets, and at the list and key marks that stand behind
// each other on a line; by indentation alone a file cannot become deep. It does
// not know quotes and comments, which may hold some of them, too.
func checkNesting(data []byte) error {
	brackets, marks, line := 0, 0, 1
	for i, c := range data {
		switch c {
		case '[', '{':
			brackets++
		case ']', '}':
			brackets = max(brackets-1, 0)
		case '-', '?':
			if i+1 < len(data) && (data[i+1] == ' ' || data[i+1] == '\t') {
				marks++
			}
		case '\n':
			marks = 0
			line++
		}
		if brackets > nestingMax || marks > nestingMax {
			return fmt.Errorf("%w: line %d is nested deeper than %d", ErrNesting, line, nestingMax)
		}
	}
	return nil
}
