// Package otlp sends the traces of requests to an OpenTelemetry collector: OTLP over HTTP, as JSON.
//
// A request of a robot is one trace across both programs. Messages carry no ids of the trace, because both programs
// derive the ids from the session and the request's number, which every message has (function Of).
//
// Source: the OTLP specification of opentelemetry.io, JSON Protobuf Encoding.
package otlp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/internal/plain"
)

const (
	waiting      = 1024 // spans that wait for the collector
	batchMost    = 256
	batchEvery   = time.Second
	postTimeout  = 3 * time.Second
	flushTimeout = time.Second // longest time of the last sending, in Close
	answerMost   = 16 << 10    // bytes of a collector's answer
	maxValues    = 8
)

// SpanKind is OTLP's kind of a span.
type SpanKind uint8

// The kinds.
const (
	Internal SpanKind = iota + 1
	Server
	Client
)

// Request has the ids of a request's trace.
type Request struct {
	Trace         [16]byte
	Robot, Server [8]byte // ids of the robot's span and of the server's span, whose parent is the robot's span
}

// Of returns the trace ids of the request with number seq of a session.
func Of(session string, seq uint64) (r Request) {
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte(session), seq))
	copy(r.Trace[:], sum[:])
	copy(r.Robot[:], sum[16:])
	copy(r.Server[:], sum[24:])
	return r
}

// Part returns the id of the child span with the number part.
func Part(span [8]byte, part byte) [8]byte {
	span[7] += part
	span[0] ^= 0x80
	return span
}

// Value is an attribute of a span: its text, or its number if the text is empty.
type Value struct {
	Key, Text string
	Number    int64
}

// Span is one span, in a fixed size.
type Span struct {
	Trace      [16]byte
	ID, Parent [8]byte
	Name       string
	Kind       SpanKind
	Start, End time.Time
	Failed     string // the failure; "" without one
	Values     [maxValues]Value
}

// Exporter sends spans. A nil Exporter drops them. Any goroutine may call its methods.
type Exporter struct {
	// Numbers of spans. Dropped counts spans for which the queue was full, or that the collector did not accept.
	Sent, Dropped atomic.Uint64

	url      string
	resource json.RawMessage
	client   http.Client
	spans    chan Span
	report   func(string)
	end      chan struct{}
	ended    sync.WaitGroup
	failing  bool // owner: run
}

// Check refuses a text that cannot be the address of a collector. It accepts "", which means no
// traces.
func Check(address string) error {
	if address == "" {
		return nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is no address of an OpenTelemetry collector, want http://HOST:4318",
			plain.Address(address))
	}
	return nil
}

// Open starts sending spans to a collector, such as http://HOST:4318. service and instance are the names of the program
// and the machine. report gets the first failure of each series of failures.
func Open(address, service, instance string, report func(string)) (*Exporter, error) {
	if err := Check(address); address == "" || err != nil {
		return nil, err
	}
	u, _ := url.Parse(address)
	e := &Exporter{
		url:    u.JoinPath("v1/traces").String(),
		client: http.Client{Timeout: postTimeout},
		spans:  make(chan Span, waiting),
		report: report,
		end:    make(chan struct{}),
	}
	e.resource, _ = json.Marshal(map[string]any{"attributes": []attribute{ // never fails for texts
		text("service.name", service), text("service.instance.id", instance),
	}})
	e.ended.Go(e.run)
	return e, nil
}

// Add queues a span for sending. It never waits: when the queue is full, it drops the span.
//
//rt:noalloc
func (e *Exporter) Add(s Span) {
	if e == nil {
		return
	}
	select {
	case e.spans <- s:
	default:
		e.Dropped.Add(1)
	}
}

// Close sends the waiting spans and ends.
func (e *Exporter) Close() {
	if e != nil {
		close(e.end)
		e.ended.Wait()
	}
}

func (e *Exporter) run() {
	for tick, ending := time.NewTicker(batchEvery), false; !ending; {
		limit := postTimeout
		select {
		case <-tick.C:
		case <-e.end:
			limit, ending = flushTimeout, true
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		for len(e.spans) > 0 && ctx.Err() == nil {
			e.post(ctx)
		}
		cancel()
	}
	e.Dropped.Add(uint64(len(e.spans)))
}

// post sends one batch of spans. A batch that the collector does not accept is lost.
func (e *Exporter) post(ctx context.Context) {
	batch := make([]span, 0, batchMost)
	for len(batch) < batchMost && len(e.spans) > 0 {
		batch = append(batch, encode(<-e.spans))
	}
	refused, err := e.send(ctx, batch)
	e.Sent.Add(uint64(len(batch) - refused))
	e.Dropped.Add(uint64(refused))
	if err != nil && !e.failing {
		e.report(plain.Text(err.Error()))
	}
	e.failing = err != nil
}

// send sends a batch. It returns how many of its spans the collector has refused, and why.
func (e *Exporter) send(ctx context.Context, batch []span) (refused int, err error) {
	body, err := json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{
		"resource":   e.resource,
		"scopeSpans": []any{map[string]any{"scope": map[string]string{"name": "edge-rt"}, "spans": batch}},
	}}})
	if err != nil {
		return len(batch), err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return len(batch), err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := e.client.Do(request)
	if err != nil {
		return len(batch), err
	}
	defer response.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(response.Body, answerMost))
	if response.StatusCode/100 != 2 {
		return len(batch), fmt.Errorf("%s: %s: %.200s", request.URL.Redacted(), response.Status, said)
	}
	var answer struct {
		Partial struct {
			Rejected json.Number `json:"rejectedSpans"` // also as text
			Message  string      `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	_ = json.Unmarshal(said, &answer)       // an answer of another form refuses nothing
	n, _ := answer.Partial.Rejected.Int64() // fails for an absent number
	refused = int(max(0, min(n, int64(len(batch)))))
	if refused > 0 || answer.Partial.Message != "" {
		err = fmt.Errorf("%s: the collector has taken %d of %d spans: %.200s", request.URL.Redacted(),
			len(batch)-refused, len(batch), answer.Partial.Message)
	}
	return refused, err
}

// attribute, value, status and span are OTLP's JSON: ids in hexadecimal, 64-bit numbers as text.
type (
	attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		Text   *string `json:"stringValue,omitempty"`
		Number *string `json:"intValue,omitempty"`
	}
	status struct {
		Code    int    `json:"code,omitempty"`
		Message string `json:"message,omitempty"`
	}
	span struct {
		Trace      string      `json:"traceId"`
		ID         string      `json:"spanId"`
		Parent     string      `json:"parentSpanId,omitempty"`
		Name       string      `json:"name"`
		Kind       SpanKind    `json:"kind"`
		Start      string      `json:"startTimeUnixNano"`
		End        string      `json:"endTimeUnixNano"`
		Attributes []attribute `json:"attributes,omitempty"`
		Status     status      `json:"status"`
	}
)

const statusError = 2

func text(key, s string) attribute { return attribute{key, value{Text: &s}} }

func encode(s Span) span {
	out := span{
		Trace: hex.EncodeToString(s.Trace[:]),
		ID:    hex.EncodeToString(s.ID[:]),
		Name:  s.Name,
		Kind:  s.Kind,
		Start: strconv.FormatInt(s.Start.UnixNano(), 10),
		End:   strconv.FormatInt(s.End.UnixNano(), 10),
	}
	if s.Parent != [8]byte{} {
		out.Parent = hex.EncodeToString(s.Parent[:])
	}
	for _, v := range s.Values {
		switch {
		case v.Key == "":
		case v.Text != "":
			out.Attributes = append(out.Attributes, text(v.Key, v.Text))
		default:
			number := strconv.FormatInt(v.Number, 10)
			out.Attributes = append(out.Attributes, attribute{v.Key, value{Number: &number}})
		}
	}
	if s.Failed != "" {
		out.Status = status{statusError, plain.Text(s.Failed)}
	}
	return out
}
