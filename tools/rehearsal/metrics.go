package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/stage"
)

const (
	askLimit = 2 * time.Second // longest wait for the answer of one program
	live     = 5 * time.Second // interval between two lines of live figures
)

var client = http.Client{Timeout: askLimit}

// figures are the values of a program's metrics, by name and labels.
type figures map[string]float64

// startTicks is the metric of the ticks before an episode's first chunk.
const startTicks = "edge_rt_starved_at_start_ticks_total"

// starved returns the number of ticks on which an action was due and none ran. It leaves out the ticks on which the
// bus was silent, and those before the first chunk of an episode.
func (a figures) starved() float64 {
	return a["edge_rt_starved_ticks_total"] - a["edge_rt_starved_by_bus_ticks_total"] -
		a[startTicks]
}

// model returns the metric of a robot's model with its labels, which contain the model's sha256.
func (a figures) model() string {
	for name, value := range a {
		if value == 1 && strings.HasPrefix(name, "edge_rt_model_info{") {
			return name
		}
	}
	return ""
}

// look reads the metrics of all robots, and prints a line about the robots from time to time. A
// robot that cannot be reached keeps its last metrics.
func (f *fleet) look() {
	var reading sync.WaitGroup
	for _, r := range f.robots {
		reading.Go(func() {
			if now, err := stage.Scrape(f.hosts[r.name] + metricsPort); err == nil {
				r.now = now
				r.runway = min(r.runway, now["edge_rt_runway_seconds"])
			}
		})
	}
	reading.Wait()
	f.looked = time.Now()
	if time.Since(f.shown) < live {
		return
	}
	f.shown = time.Now()
	open := 0.
	starved := 0.
	runway := f.robots[0].now["edge_rt_runway_seconds"]
	for _, r := range f.robots {
		open += r.now["edge_rt_session_open"]
		starved += r.now.starved()
		runway = min(runway, r.now["edge_rt_runway_seconds"])
	}
	fmt.Printf("%s  %.0f robots of %d have a session, shortest runway %.2f s, %.0f starved ticks so far\n",
		f.shown.UTC().Format(time.TimeOnly), open, len(f.robots), runway, starved)
}

// asked are the queries to Prometheus about a phase of %[1]d seconds, with the format of each answer.
var asked = []struct{ format, query string }{
	{"%.0f ms, ", `1000 * histogram_quantile(0.5, sum by (le) (increase(edge_rt_round_trip_seconds_bucket[%[1]ds])))`},
	{"%.0f ms", `1000 * histogram_quantile(0.99, sum by (le) (increase(edge_rt_round_trip_seconds_bucket[%[1]ds])))`},
	{"%.0f ms",
		`1000 * histogram_quantile(0.99, sum by (le) (increase(lean_server_queue_wait_seconds_bucket[%[1]ds])))`},
	{"", `count by (alertname) (max_over_time(ALERTS{alertstate="firing"}[%[1]ds]))`},
}

// ask returns the answers of Prometheus about the last d of time: round trips, waits and alerts.
func (f *fleet) ask(d time.Duration) ([]string, error) {
	if f.o.Prometheus == "" {
		return []string{"", "", ""}, nil
	}
	var texts []string
	for _, a := range asked {
		var reply struct {
			Data struct {
				Result []struct {
					Metric map[string]string `json:"metric"`
					Value  [2]any            `json:"value"` // time, value
				} `json:"result"`
			} `json:"data"`
		}
		query := url.Values{"query": {fmt.Sprintf(a.query, int(d.Seconds())+1)}}
		got, err := client.Get("http://" + prometheusAt + "/api/v1/query?" + query.Encode())
		if err != nil {
			return nil, err
		}
		err = json.NewDecoder(got.Body).Decode(&reply)
		got.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("prometheus: %w", err)
		}
		var found []string
		for _, result := range reply.Data.Result {
			text, _ := result.Value[1].(string)
			value, _ := strconv.ParseFloat(text, 64)
			if a.format == "" {
				found = append(found, fmt.Sprintf("%s (%.0f)", result.Metric["alertname"], value))
			} else {
				found = append(found, fmt.Sprintf(a.format, value))
			}
		}
		slices.Sort(found)
		texts = append(texts, strings.Join(found, ", "))
	}
	return []string{texts[0] + texts[1], texts[2], texts[3]}, nil
}
