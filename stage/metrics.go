package stage

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// scraper makes a new connection for each reading, so that all readings cost the program the same.
var scraper = http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// Scrape reads the metrics of the program whose page is at address.
func Scrape(address string) (map[string]float64, error) {
	reply, err := scraper.Get("http://" + address + "/metrics")
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	return ReadMetrics(reply.Body)
}

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
