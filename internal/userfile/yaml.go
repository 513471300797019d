package userfile

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

const (
	// maxYAMLBytes is the largest size of a YAML file, which a person writes by hand.
	maxYAMLBytes = 256 << 10

	// lineMax is the longest line in bytes: enough for a long path or task, and short enough to be
	// repeated in an error.
	lineMax = 8 << 10

	// nestingMax is deeper than any real file. The module's memory grows with the square of the
	// depth: 800 kB of "- " took 8 GB.
	nestingMax = 64
)

// errNesting means that lists or maps are nested deeper than in any real file.
var errNesting = errors.New("no YAML that is read here")

// ReadYAML reads a whole file of at most maxYAMLBytes.
func ReadYAML(name string) ([]byte, error) { return Read(name, maxYAMLBytes) }

// DecodeYAML reads data into dst, a pointer.
func DecodeYAML(data []byte, dst any) (err error) {
	defer clean(&err)
	if data, err = check(data); err != nil {
		return err
	}
	if file, err := parser.ParseBytes(data, 0); err == nil { // otherwise the decoder returns the error
		for _, doc := range file.Docs {
			if err := (wholeNumbers{}).check(doc.Body, reflect.TypeOf(dst).Elem()); err != nil {
				return err
			}
		}
	}
	err = yaml.UnmarshalWithOptions(data, dst, yaml.Strict())
	if wrong, is := errors.AsType[*yaml.TypeError](err); is && wrong.Token != nil && wrong.Token.Position != nil {
		at := wrong.Token.Position
		return fmt.Errorf("[%d:%d] got %q, want %s", at.Line, at.Column, wrong.Token.Value, kindOf(wrong.DstType))
	}
	return err
}

// wholeNumbers finds numbers that the YAML module reads as another value: the module cuts off a fraction where
// the type is an integer, reads 010 as 8, and 0x10 as 16 where the type is a text. The map contains the nodes of
// the anchors so far.
type wholeNumbers map[string]ast.Node

// check checks a node that becomes a value of type t.
func (w wholeNumbers) check(node ast.Node, t reflect.Type) (err error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	number := 0.
	switch n := node.(type) {
	case *ast.AnchorNode:
		err = w.check(n.Value, t)
		w[n.Name.GetToken().Value] = n.Value
		return err
	case *ast.AliasNode:
		if scalar, ok := w[n.Value.GetToken().Value].(ast.ScalarNode); ok {
			return w.check(scalar, t)
		}
	case ast.MapNode:
		for it := n.MapRange(); it.Next() && err == nil; {
			if value := valueType(t, it.Key().GetToken().Value); value != nil {
				err = w.check(it.Value(), value)
			}
		}
		return err
	case *ast.SequenceNode:
		for i := 0; i < len(n.Values) && err == nil; i++ {
			switch t.Kind() {
			case reflect.Slice:
				err = w.check(n.Values[i], t.Elem())
			case reflect.Interface:
				err = w.check(n.Values[i], t)
			}
		}
		return err
	case *ast.FloatNode:
		number = n.Value
	case *ast.InfinityNode:
		number = n.Value
	case *ast.StringNode: // the module reads numbers in quotes, too
		number, _ = strconv.ParseFloat(n.Value, 64)
	}
	integer := t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64 && t != reflect.TypeFor[time.Duration]()
	_, isNumber := node.(*ast.IntegerNode)
	if !integer && !isNumber {
		return nil
	}
	token := node.GetToken()
	want, got := "", fmt.Sprintf("got %q, ", token.Value)
	switch {
	case integer && (number != math.Trunc(number) || math.IsInf(number, 0)):
		want = aWholeNumber
	case octal.MatchString(token.Value), !integer && !decimal.MatchString(token.Value):
		want = "digits without 0 before them, or quotes around a text"
	default:
		return nil
	}
	if !integer {
		got = "" // a text may be a secret, such as a key in the wrong file
	}
	return fmt.Errorf("[%d:%d] %swant %s", token.Position.Line, token.Position.Column, got, want)
}

var (
	octal   = regexp.MustCompile(`^[-+]?0[0-9_]`) // an octal number in YAML 1.1
	decimal = regexp.MustCompile(`^[-+]?[0-9]+$`)
)

// valueType returns the type of the value of a key in a map or struct of type t; nil if t has no such key.
func valueType(t reflect.Type, key string) reflect.Type {
	switch t.Kind() {
	case reflect.Map:
		return t.Elem()
	case reflect.Interface:
		return t
	case reflect.Struct:
		for f := range t.Fields() {
			if f.Tag.Get("yaml") == key {
				return f.Type
			}
		}
	}
	return nil
}

const aWholeNumber = "a whole number"

// kindOf describes a Go type in words for the person who wrote the file.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "keys with values"
	}
	return aWholeNumber
}

// ParseYAML returns the syntax tree, for callers that need the lines of its nodes.
func ParseYAML(data []byte) (file *ast.File, err error) {
	defer clean(&err)
	if data, err = check(data); err != nil {
		return nil, err
	}
	return parser.ParseBytes(data, 0)
}

// SyntaxError is an error of the YAML module in one line, without its excerpt of the file.
type SyntaxError struct{ err yaml.Error }

func (e SyntaxError) Error() string {
	line, _, _ := strings.Cut(e.err.Error(), "\n")
	return line
}

func (e SyntaxError) Unwrap() error { return e.err }

// clean turns the module's error into a SyntaxError, and a panic into an error: the module panics on some tags, such
// as the tag of a sequence before another value.
func clean(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("no YAML: %v", p)
	}
	if syntax, is := errors.AsType[yaml.Error](*err); is {
		*err = SyntaxError{syntax}
	}
}

// check returns the text for the parser, without a byte order mark. It refuses a text that is
// nested too deeply, or that has a line too long to be repeated in an error.
func check(data []byte) ([]byte, error) {
	if len(data) > maxYAMLBytes {
		return nil, fmt.Errorf("%d bytes, want at most %d", len(data), maxYAMLBytes)
	}
	data, err := Text(data)
	if err != nil {
		return nil, err
	}
	if err := checkNesting(data); err != nil {
		return nil, err
	}
	line := 1
	for text := range bytes.Lines(data) {
		if len(text) > lineMax {
			return nil, fmt.Errorf("line %d has %d bytes, want at most %d", line, len(text), lineMax)
		}
		line++
	}
	return data, nil
}

// checkNesting refuses a text with too many open brackets, or too many list and key marks in a row on a line. It also
// counts brackets and marks in quotes and comments. It does not count indentation, which cannot nest deeply in a file
// of this size.
func checkNesting(data []byte) error {
	brackets := 0
	marks := 0
	line := 1
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
			return fmt.Errorf("%w: line %d is nested deeper than %d", errNesting, line, nestingMax)
		}
	}
	return nil
}
