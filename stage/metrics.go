package stage

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

// ReadMetrics reads metrics in Prometheus's text format, and returns the values by name and labels.
func ReadMetrics(r io.Reader) (map[string]float64, error) {
	all := map[string]float64{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if at <= 0 || line[0] == '#' {
			continue
		}
		if value, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			all[line[:at]] = value
		}
	}
	return all, lines.Err()
}
