package report

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	table := Table{Left: 1, Columns: []string{"", "p50", "µs"}}
	table.Add("loop", "7", "12345")
	table.Add("whole edge", "1234", "")
	var text strings.Builder
	if err := table.Write(&text); err != nil {
		t.Fatal(err)
	}
	const want = "             p50     µs\nloop           7  12345\nwhole edge  1234\n"
	if text.String() != want {
		t.Errorf("table:\n%s\nwant:\n%s", text.String(), want)
	}
}

func TestMedian(t *testing.T) {
	tests := []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}}
	for _, tt := range tests {
		if got := Median(tt.in); got != tt.want {
			t.Errorf("Median(%v) = %v, want %v", tt.in, got, tt.want)
		}
	}
}
