package main

import (
	"time"

	"github.com/alecthomas/kong"

	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/internal/program"
	"github.com/edge-rt/edge-rt/record"
)

// episodeFlags are the flags that divide a run into episodes for a dataset.
type episodeFlags struct {
	Episodes    int            `range:"0..100000;how many" help:"Record this many episodes, then end; rerecorded ones do not count. 0: a person begins each (edge-rt ctl start)." placeholder:"N"`
	EpisodeTime *time.Duration `name:"episode-time" range:"0..87600h;0 is no end" help:"Longest episode; 0: until a person ends it. Default: 30s with --episodes and --strategy sentry, else 0." placeholder:"TIME"`
	ResetTime   *time.Duration `name:"reset-time" range:"0..87600h;0 is none" help:"Time between episodes to restore the scene; default 10s." placeholder:"TIME"`
}

// plan returns the plan of the episodes that the flags describe. If these episodes need another recording mode
// than *mode, plan sets *mode.
func (f *episodeFlags) plan(strategy string, leader bool, mode *record.Mode, parsed *kong.Context) (episode.Plan,
	error) {
	p := episode.Plan{
		Strategy: strategy,
		Leader:   leader,
		Count:    f.Episodes,
		Time:     f.EpisodeTime,
		Reset:    f.ResetTime,
	}
	want, err := p.Check(*mode, program.Set(parsed, "record"))
	*mode = want
	return p, err
}
