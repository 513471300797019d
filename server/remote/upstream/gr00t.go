package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"github.com/edge-rt/edge-rt/wire/ndarray"
	"github.com/edge-rt/edge-rt/wire/zmtp"
)

// groot is a connection to GR00T's server. Its metadata is the modality configuration.
type groot struct {
	conn *zmtp.Conn
	meta ndarray.Map
}

func dialGR00T(ctx context.Context, url, token string) (link, error) {
	conn, err := zmtp.Dial(ctx, url, messageMost)
	if errors.Is(err, zmtp.ErrProtocol) {
		return nil, fmt.Errorf("%w: is it a server of GR00T?", err)
	}
	if err != nil {
		return nil, err
	}
	g := &groot{conn: conn}
	v, err := g.ask(ctx, endpoint("get_modality_config", token))
	if err == nil {
		if g.meta, _ = v.(ndarray.Map); g.meta == nil {
			err = fmt.Errorf("its modality configuration is %s, want a map: is it a server of GR00T?", ndarray.Kind(v))
		} else if text, failed := g.meta["error"].(string); failed {
			err = reported(text)
		}
	}
	if err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// endpoint returns a request without data to the endpoint called name.
func endpoint(name, token string) []byte {
	b := msgp.AppendMapHeader(nil, 1)
	if token != "" {
		b = msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, 2), "api_token"), token)
	}
	return msgp.AppendString(msgp.AppendString(b, "endpoint"), name)
}

func (g *groot) ask(ctx context.Context, message []byte) (any, error) {
	reply, err := g.conn.Request(ctx, message)
	if err != nil {
		return nil, err
	}
	if string(reply) == "ERROR" { // GR00T's servers before N1.5 report errors in this form
		return nil, reported("ERROR")
	}
	return ndarray.Parse(reply)
}

func (g *groot) metadata() ndarray.Map  { return g.meta }
func (g *groot) Ended() <-chan struct{} { return nil }
func (g *groot) Why() error             { return nil }
func (g *groot) Close() error           { return g.conn.Close() }

// modality is the part of a server's modality configuration with which the spec must agree.
type modality struct {
	keys  []string
	steps int
}

// modalityOf reads one modality. ok is false if the server does not describe it.
func modalityOf(meta ndarray.Map, name string) (m modality, ok bool) {
	config, _ := meta[name].(ndarray.Map)
	if inner, wrapped := config["as_json"].(ndarray.Map); wrapped {
		config = inner
	}
	list, ok := config["modality_keys"].([]any)
	for _, v := range list {
		key, _ := v.(string)
		m.keys = append(m.keys, key)
	}
	steps, isList := config["delta_indices"].([]any)
	m.steps = len(steps)
	return m, ok && isList
}

// compareModalities compares a server's modality configuration with the spec. Parts that the
// server does not describe are not compared.
func compareModalities(meta ndarray.Map, spec *Spec, horizon int) error {
	own := map[string][]string{}
	add := func(key string) {
		if name, rest, ok := strings.Cut(key, "."); ok {
			own[name] = append(own[name], rest)
		}
	}
	for _, c := range spec.Cameras {
		add(c.Key)
	}
	for _, part := range slices.Concat(spec.State, spec.Actions) {
		add(part.Key)
	}
	add(spec.Prompt)
	for _, name := range []string{"video", "state", "language", "action"} {
		served, ok := modalityOf(meta, name)
		if !ok {
			continue
		}
		for _, key := range served.keys {
			if !slices.Contains(own[name], key) && name != "action" {
				return fmt.Errorf("the server wants %s.%s, and model.inputs names only %s", name, short(key),
					list(name, own[name]))
			}
		}
		for _, key := range own[name] {
			if !slices.Contains(served.keys, key) && (name != "language" || spec.Nested) {
				return fmt.Errorf("model.inputs names %s.%s, and the server has only %s", name, key,
					list(name, served.keys))
			}
		}
		switch {
		case name == "action" && served.steps != horizon:
			return &horizonError{got: served.steps, want: horizon}
		case name != "action" && served.steps != 1:
			return fmt.Errorf("the server wants %d steps of %s in an observation, and this runtime sends one",
				served.steps, name)
		}
	}
	return nil
}

func list(modality string, names []string) string {
	if len(names) == 0 {
		return "no " + modality
	}
	return short(strings.Join(names, ", "))
}
