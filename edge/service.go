package edge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"edgert/edge/capture"
	"edgert/internal/exit"
	"edgert/wire"
)

// errNoService means that nobody serves; it passes.
var errNoService = errors.New("no lean-server answers")

// temporaryError is an error that the server says will pass.
type temporaryError struct {
	error
	after time.Duration
}

func (r *temporaryError) Unwrap() error { return r.error }

// find returns the key prefix of the service, of one that had been used that one alone.
func (l *link) find(ctx context.Context) (string, error) {
	keys, err := l.net.Tokens(ctx, wire.ServerAliveAny, statusTimeout)
	if err != nil {
		return "", err
	}
	want := ""
	if l.cfg.Service != "" {
		if want, err = wire.Slug(l.cfg.Service); err != nil {
			return "", exit.Errorf(exit.Usage, "--service: %w", err)
		}
	}
	var found []string
	for _, key := range keys {
		svc, err := wire.ServiceOf(key)
		if err != nil || want != "" && svc.Name != want {
			continue
		}
		if p := svc.Prefix(); !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	slices.Sort(found)
	had := l.contract.prefix
	switch {
	case had != "" && slices.Contains(found, had):
		return had, nil
	case had != "" && len(found) > 0:
		return "", fmt.Errorf("%s, which this run began with, is away: waiting for it; others are there (%s), and a new start may choose one", had, strings.Join(found, ", "))
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1 && want == "":
		return "", exit.Errorf(exit.Config, "%d services are in reach (%s): choose one with --service NAME", len(found), strings.Join(found, ", "))
	case len(found) > 1:
		return "", exit.Errorf(exit.Config, "several models serve %q (%s): connect to one of them only", l.cfg.Service, strings.Join(found, ", "))
	case want != "":
		return "", fmt.Errorf("%w as service %q at %s", errNoService, l.cfg.Service, strings.Join(l.cfg.Connect, ", "))
	}
	return "", fmt.Errorf("%w at %s", errNoService, strings.Join(l.cfg.Connect, ", "))
}

func (l *link) open(ctx context.Context, prefix string) (*wire.SessionAck, error) {
	request := wire.SessionOpen{
		ClientUUID: l.identity.ID, RobotType: l.cfg.Robot, FPS: l.cfg.FPS, ActionNames: l.names, StateDim: len(l.names),
		SchemaVersion: wire.SchemaVersion, RTCEnabled: l.cfg.Schedule.Conditioned(), Task: l.cfg.Task,
		SessionEpoch: l.epoch, ActionUnits: l.units, StateUnits: l.units, Instance: l.identity.Instance, Host: l.identity.Host,
	}
	for _, key := range keys(l.cfg.Tags) {
		request.Tags = append(request.Tags, wire.Tag{Key: key, Value: l.cfg.Tags[key]})
	}
	for _, c := range l.cfg.Cameras {
		request.CameraNames = append(request.CameraNames, capture.ImageKey+c.Name)
	}
	replies, err := l.net.Get(ctx, wire.SessionKey(prefix), wire.AppendSessionOpen(nil, &request), l.cfg.RequestTimeout)
	if err != nil {
		return nil, err
	}
	for _, r := range replies {
		if r.Err {
			continue
		}
		var ack wire.SessionAck
		if err := wire.ParseSessionAck(&ack, r.Payload); err != nil {
			return nil, fmt.Errorf("session at %s: %w", prefix, err)
		}
		if ack.Accepted {
			return &ack, nil
		}
		if ack.Temporary() {
			return nil, l.temporaryRefusal(&ack)
		}
		return nil, exit.Errorf(exit.Config, "session refused by %s: %s", prefix, ack.Error)
	}
	return nil, fmt.Errorf("no answer to the session request at %s within %v", prefix, l.cfg.RequestTimeout)
}

func (l *link) temporaryRefusal(ack *wire.SessionAck) error {
	err := fmt.Errorf("session refused for now: %s (load %.2f)", ack.Error, ack.ServerLoad)
	switch ack.HeldBy {
	case "":
	case wire.HostUnknown:
		err = fmt.Errorf("another robot runs as %s: give one of them another --id", l.identity.ID)
	default:
		err = fmt.Errorf("another robot on host %s runs as %s: give one of them another --id", ack.HeldBy, l.identity.ID)
	}
	return &temporaryError{err, time.Duration(ack.RetryAfterMs) * time.Millisecond}
}
