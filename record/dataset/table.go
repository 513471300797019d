package dataset

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// Bounds of a table to read, which may come from any source.
const (
	maxTableBytes   = 4 << 30
	maxTableRows    = 100 << 20
	maxTableColumns = 10_000
	maxTableValues  = 1 << 27 // values of one column
	maxTableText    = 256 << 20
)

// compressions are the compressions that pandas, pyarrow and LeRobot use. LZ4 is missing, because the library's LZ4
// decoder never returns for some damaged bytes.
var compressions = []format.CompressionCodec{format.Uncompressed, format.Snappy, format.Gzip, format.Zstd}

// column is one column of a table. A value is a number or a text, inside lists that are nested
// depth times.
type column struct {
	name  string
	kind  parquet.Kind // Boolean, Int64, Float, Double or ByteArray
	depth int
}

func (c *column) node() parquet.Node {
	node := parquet.String()
	if c.kind != parquet.ByteArray {
		node = parquet.Leaf(map[parquet.Kind]parquet.Type{parquet.Boolean: parquet.BooleanType,
			parquet.Int64: parquet.Int64Type,
			parquet.Float: parquet.FloatType, parquet.Double: parquet.DoubleType}[c.kind])
	}
	node = parquet.Compressed(node, &parquet.Snappy)
	for range c.depth {
		node = parquet.List(node)
	}
	return node
}

// number returns v as a value of the column's kind.
func (c *column) number(v float64) parquet.Value {
	switch c.kind {
	case parquet.Boolean:
		return parquet.BooleanValue(v != 0)
	case parquet.Int64:
		return parquet.Int64Value(int64(v))
	case parquet.Float:
		return parquet.FloatValue(float32(v))
	}
	return parquet.DoubleValue(v)
}

// table writes a Parquet table.
type table struct {
	columns []column        // in the library's order: by name
	writer  *parquet.Writer //nolint:staticcheck // its successor needs a Go type for the rows
	row     parquet.Row
}

func newTable(to io.Writer, columns []column, options ...parquet.WriterOption) *table {
	columns = slices.Clone(columns)
	slices.SortFunc(columns, func(a, b column) int { return slices.Compare([]byte(a.name), []byte(b.name)) })
	root := parquet.Group{}
	for i := range columns {
		root[columns[i].name] = columns[i].node()
	}
	options = append(options, parquet.NewSchema("schema", root))
	return &table{columns: columns, writer: parquet.NewWriter(to, options...)}
}

// write adds a row, which has a float64, []float64 or []string for the name of each column.
func (t *table) write(row map[string]any) error {
	t.row = t.row[:0]
	for i := range t.columns {
		c := &t.columns[i]
		var values []parquet.Value
		switch v := row[c.name].(type) {
		case float64:
			values = append(values, c.number(v))
		case []float64:
			for _, x := range v {
				values = append(values, c.number(x))
			}
		case []string:
			for _, x := range v {
				values = append(values, parquet.ByteArrayValue([]byte(x)))
			}
		}
		if len(values) == 0 || c.depth == 0 && len(values) != 1 {
			return fmt.Errorf("column %s: %d values", c.name, len(values))
		}
		for k, v := range values {
			t.row = append(t.row, v.Level(min(k, 1), c.depth, i)) // an inner list has one element
		}
	}
	_, err := t.writer.WriteRows([]parquet.Row{t.row})
	return err
}

// table writes the file of a table. The function fill writes the table's rows.
func (f *folder) table(rel string, columns []column, fill func(*table) error, options ...parquet.WriterOption) error {
	return f.write(rel, func(to *os.File) error {
		t := newTable(to, columns, options...)
		if err := fill(t); err != nil {
			return err
		}
		return t.writer.Close()
	})
}

// cells is a column in memory.
type cells struct {
	rows    int
	size    int // values per row; -1: the rows have different numbers of values
	numbers []float64
	texts   []string
	starts  []int // index of each row's first value in numbers or texts; the last element is their length
}

// row returns the numbers of row i.
func (c *cells) row(i int) []float64 { return c.numbers[c.starts[i]:c.starts[i+1]] }

// text returns the texts of row i.
func (c *cells) text(i int) []string { return c.texts[c.starts[i]:c.starts[i+1]] }

// readTable reads the columns of a file that the function wanted accepts by their names, or all columns if wanted is
// nil. The result columns has the numbers and texts of each column by its name. The result metadata is the file's
// key-value metadata.
func readTable(path string, wanted func(string) bool) (columns map[string]*cells, metadata map[string]string,
	err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular() || info.Size() > maxTableBytes:
		return nil, nil, fmt.Errorf("%s: %d bytes, want a file of at most %d", path, info.Size(), int64(maxTableBytes))
	}
	columns, metadata, err = parseTable(f, info.Size(), wanted)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return columns, metadata, err
}

// parseTable does the same as readTable for an open file.
func parseTable(f io.ReaderAt, size int64, wanted func(string) bool) (columns map[string]*cells,
	metadata map[string]string, err error) {
	defer func() { // the library panics on wrong sizes in a file
		if p := recover(); p != nil {
			columns, err = nil, fmt.Errorf("no table that makes sense: %v", p)
		}
	}()
	if err := checkFooter(f, size); err != nil {
		return nil, nil, err
	}
	file, err := parquet.OpenFile(f, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true),
		parquet.FileReadMode(parquet.ReadModeSync))
	if err != nil {
		return nil, nil, err
	}
	metadata = map[string]string{}
	for _, kv := range file.Metadata().KeyValueMetadata {
		metadata[kv.Key] = kv.Value
	}
	leaves := file.Schema().Columns()
	for _, group := range file.Metadata().RowGroups {
		for _, chunk := range group.Columns {
			if m := chunk.MetaData; !slices.Contains(compressions, m.Codec) || m.NumValues < 0 ||
				m.NumValues > maxTableValues {
				return nil, nil, fmt.Errorf("%d values compressed by %v, want at most %d by %v", m.NumValues, m.Codec,
					maxTableValues, compressions)
			}
		}
	}
	if file.NumRows() < 0 || file.NumRows() > maxTableRows || len(leaves) > maxTableColumns {
		return nil, nil, fmt.Errorf("%d rows of %d columns, want at most %d of %d", file.NumRows(), len(leaves),
			maxTableRows, maxTableColumns)
	}
	columns = map[string]*cells{}
	for i, leaf := range leaves {
		name := leaf[0]
		if wanted != nil && !wanted(name) {
			continue
		}
		if columns[name] != nil {
			return nil, nil, fmt.Errorf("column %s has fields, want numbers or texts", name)
		}
		c := &cells{size: -2}
		for _, group := range file.RowGroups() {
			if err := c.read(group.ColumnChunks()[i]); err != nil {
				return nil, nil, fmt.Errorf("column %s: %w", name, err)
			}
		}
		if int64(c.rows) != file.NumRows() {
			return nil, nil, fmt.Errorf("column %s has %d rows, the table %d", name, c.rows, file.NumRows())
		}
		c.measure()
		columns[name] = c
	}
	return columns, metadata, nil
}

// checkFooter returns an error for a file that is not Parquet. Without this check, the library would allocate memory
// for the sizes in the file.
func checkFooter(f io.ReaderAt, size int64) error {
	var b [12]byte
	if size < int64(len(b)) {
		return errors.New("too short for a parquet file")
	}
	if _, err := f.ReadAt(b[:4], 0); err != nil {
		return err
	}
	if _, err := f.ReadAt(b[4:], size-8); err != nil {
		return err
	}
	if string(b[:4]) != "PAR1" || string(b[8:]) != "PAR1" {
		return errors.New("no parquet file, which begins and ends with PAR1: it was cut off or never finished, or is " +
			"only a pointer of Git LFS (git lfs pull fetches the file)")
	}
	if footer := int64(binary.LittleEndian.Uint32(b[4:])); footer > size-12 {
		return fmt.Errorf("a footer of %d bytes in a file of %d", footer, size)
	}
	return nil
}

// read appends the column's values of one row group.
func (c *cells) read(chunk parquet.ColumnChunk) error {
	pages := chunk.Pages()
	defer pages.Close()
	buffer := make([]parquet.Value, 1024)
	text := 0
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for values := page.Values(); ; {
			n, err := values.ReadValues(buffer)
			for i := range buffer[:n] {
				text += c.append(&buffer[i])
			}
			if len(c.numbers)+len(c.texts) > maxTableValues || c.rows > maxTableRows || text > maxTableText {
				return errors.New("more values than any dataset has")
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || n == 0 {
				parquet.Release(page)
				return cmp.Or(err, io.ErrNoProgress)
			}
		}
		parquet.Release(page)
	}
}

// append adds one value and returns the length of its text in bytes.
func (c *cells) append(v *parquet.Value) int {
	if v.RepetitionLevel() == 0 {
		c.rows++
		c.starts = append(c.starts, len(c.numbers)+len(c.texts))
	}
	switch {
	case v.IsNull():
	case v.Kind() == parquet.Boolean:
		c.numbers = append(c.numbers, number(v.Boolean()))
	case v.Kind() == parquet.Int32:
		c.numbers = append(c.numbers, float64(v.Int32()))
	case v.Kind() == parquet.Int64:
		c.numbers = append(c.numbers, float64(v.Int64()))
	case v.Kind() == parquet.Float:
		c.numbers = append(c.numbers, float64(v.Float()))
	case v.Kind() == parquet.Double:
		c.numbers = append(c.numbers, v.Double())
	case v.Kind() == parquet.ByteArray:
		c.texts = append(c.texts, string(v.ByteArray()))
		return len(v.ByteArray())
	}
	return 0
}

// measure sets size, the number of values per row, and the last element of starts.
func (c *cells) measure() {
	c.starts = append(c.starts, len(c.numbers)+len(c.texts))
	for i := range c.rows {
		switch n := c.starts[i+1] - c.starts[i]; {
		case i == 0:
			c.size = n
		case c.size != n:
			c.size = -1
		}
	}
}
