package uplink

import (
	"fmt"
	"time"

	"github.com/edge-rt/edge-rt/chunk"
)

// Profile has the waiting times of a run for one kind of network. The probes of a silent server
// follow RequestTimeout.
type Profile struct {
	Name                    string
	MaxActionAge            time.Duration
	DegradedAfter           time.Duration
	RequestTimeout          time.Duration
	MaxOffline              time.Duration
	ReconnectInitialBackoff time.Duration
	ReconnectMaxBackoff     time.Duration
	Buffer                  time.Duration // buffer of a schedule that has a buffer; 0: the schedule's default
}

// profiles has first the limits without a profile, then the values of --profile, all for a policy that
// is fast enough for them. docs/lab/profiles.md has their measurement.
var profiles = []Profile{
	{
		MaxActionAge:            DefaultMaxActionAge,
		DegradedAfter:           DefaultDegradedAfter,
		RequestTimeout:          DefaultRequestTimeout,
		MaxOffline:              60 * time.Second,
		ReconnectInitialBackoff: 500 * time.Millisecond,
		ReconnectMaxBackoff:     10 * time.Second,
	},
	{
		Name:                    "wired",
		MaxActionAge:            2 * time.Second,
		DegradedAfter:           300 * time.Millisecond,
		RequestTimeout:          2 * time.Second,
		MaxOffline:              30 * time.Second,
		ReconnectInitialBackoff: 200 * time.Millisecond,
		ReconnectMaxBackoff:     2 * time.Second,
		Buffer:                  chunk.AutoBuffer,
	},
	{
		Name:                    "wifi",
		MaxActionAge:            3 * time.Second,
		DegradedAfter:           time.Second,
		RequestTimeout:          5 * time.Second,
		MaxOffline:              60 * time.Second,
		ReconnectInitialBackoff: 500 * time.Millisecond,
		ReconnectMaxBackoff:     5 * time.Second,
		Buffer:                  500 * time.Millisecond,
	},
	{
		Name:                    "wan",
		MaxActionAge:            3 * time.Second,
		DegradedAfter:           2 * time.Second,
		RequestTimeout:          10 * time.Second,
		MaxOffline:              120 * time.Second,
		ReconnectInitialBackoff: time.Second,
		ReconnectMaxBackoff:     10 * time.Second,
		Buffer:                  chunk.AutoBuffer,
	},
}

// ProfileNamed returns a profile; an empty name selects the limits without a profile.
func ProfileNamed(name string) (Profile, error) {
	for _, p := range profiles {
		if p.Name == name {
			return p, nil
		}
	}
	return Profile{}, fmt.Errorf("no profile %q, want wired, wifi or wan", name)
}
