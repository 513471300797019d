package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/stage"
)

// round is one round of the circle; its results are kept as JSON.
type round struct {
	plan
	at string // the present stage

	Began   time.Time          `json:"began"`
	Seconds map[string]float64 `json:"seconds"` // s, duration of each completed stage
	Results map[string]string  `json:"results"` // result of each stage in one line
	Found   found              `json:"found"`
}

// found holds the results that the stages pass to later stages.
type found struct {
	Demonstrated demonstrated `json:"demonstrated"`
	Exported     [3]exported  `json:"exported"` // [1] of the demonstrations, [2] with the corrections
	Trained      [3]trained   `json:"trained"`
	Bundled      [3]bundled   `json:"bundled"`
	Judged       [3]judged    `json:"judged"`
	Corrected    corrected    `json:"corrected"`
}

// step is a part of a round, with the files that it makes in the round's folder.
type step struct {
	name  string
	what  string
	makes []string
	run   func(*round, context.Context) error
}

// stages are in the order of a round. Number 1 is the first policy, and number 2 the policy after the corrections.
var stages = []step{
	{"demonstrate", "the teacher leads, edge-rt teleop records", []string{"demonstrations"}, (*round).demonstrate},
	{"export", "edge-rt dataset export and check", []string{"dataset-1", "dataset-1.partial"},
		nth((*round).export, 1)},
	{"train", "LeRobot's lerobot_train, ACT", []string{"training-1"}, nth((*round).train, 1)},
	{"bundle", "edgert-export and lean-server check", []string{"bundle-1"}, nth((*round).makeBundle, 1)},
	{"run", "lean-server serves it, edge-rt runs it, the worlds judge", []string{"run-1"},
		nth((*round).judge, 1)},
	{"correct", "edge-rt --strategy dagger: the teacher takes over", []string{"corrections"}, (*round).correct},
	{"append", "edge-rt dataset export --append and check", []string{"dataset-2", "dataset-2.partial"},
		nth((*round).export, 2)},
	{"retrain", "lerobot_train from the checkpoint", []string{"training-2"}, nth((*round).train, 2)},
	{"rebundle", "edgert-export and lean-server check", []string{"bundle-2"},
		nth((*round).makeBundle, 2)},
	{"rerun", "the same worlds judge the second policy", []string{"run-2"}, nth((*round).judge, 2)},
}

// nth returns the function of a stage for policy n, from a function for both policies.
func nth(run func(*round, context.Context, int) error, n int) func(*round, context.Context) error {
	return func(r *round, ctx context.Context) error { return run(r, ctx, n) }
}

// stageNames returns the words for --from.
func stageNames() (names []string) {
	for _, s := range stages {
		names = append(names, s.name)
	}
	return names
}

// load returns a new round if the parameter from is empty or the first stage. Otherwise it reads the results of the
// round that continues.
func load(p plan, from string) (*round, error) {
	r := &round{
		plan:    p,
		Began:   time.Now().UTC().Truncate(time.Second),
		Seconds: map[string]float64{},
		Results: map[string]string{},
	}
	if from == "" {
		if _, err := os.Stat(p.at(stages[0].makes[0])); err == nil {
			return nil, exit.Errorf(exit.Usage,
				"%s has a round already: go on with --from STAGE, remove it, or give another --out", p.dir)
		}
		return r, nil
	}
	i := slices.Index(stageNames(), from)
	if i < 0 {
		return nil, exit.Errorf(exit.Usage, "--from %s: want one of %s", from, strings.Join(stageNames(), ", "))
	}
	if i == 0 {
		return r, nil
	}
	if err := stage.ReadJSON(r.file(), r); err != nil {
		return nil, exit.Errorf(exit.Usage,
			"--from %s goes on with the files in --out, and there are no such files: %w", from, err)
	}
	for _, s := range stages[:i] {
		if _, ok := r.Seconds[s.name]; !ok {
			return nil, exit.Errorf(exit.Usage, "--from %s: stage %s has not ended in %s; begin with it", from, s.name,
				p.dir)
		}
	}
	return r, nil
}

func (r *round) file() string { return r.plan.at("circle.json") }

// run runs the stages from the given one to the last.
func (r *round) run(ctx context.Context, from string) error {
	begin := max(0, slices.Index(stageNames(), from))
	for i, s := range stages[begin:] {
		r.at = s.name
		if err := r.clear(stages[begin+i:]); err != nil {
			return err
		}
		say("%d of %d, %s: %s", begin+i+1, len(stages), s.name, s.what)
		began := time.Now()
		if err := s.run(r, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.Seconds[s.name] = time.Since(began).Seconds()
		say("%s took %.1f s", s.name, r.Seconds[s.name])
		if err := r.save(); err != nil {
			return err
		}
	}
	return r.verdict()
}

// clear removes the files and times that the coming stages have left in an earlier round.
func (r *round) clear(coming []step) (err error) {
	for _, s := range coming {
		delete(r.Seconds, s.name)
		for _, name := range s.makes {
			err = errors.Join(err, os.RemoveAll(r.plan.at(name)))
		}
	}
	return err
}

// result keeps the result of the present stage, and prints it.
func (r *round) result(format string, args ...any) {
	r.Results[r.at] = fmt.Sprintf(format, args...)
	say("%s", r.Results[r.at])
}

func (r *round) save() error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.file(), append(text, '\n'), 0o644)
}

// verdict compares both policies, if the training was long enough for a meaningful result.
func (r *round) verdict() error {
	before, after := r.Found.Judged[1], r.Found.Judged[2]
	say("success before the corrections: %s", before)
	say("success after them:             %s", after)
	switch {
	case !r.whole:
		say("every hand-over held; the success of %d training steps is not judged", r.steps)
	case after.rate() < before.rate():
		return fmt.Errorf("the second policy reaches fewer targets than the first: %s, before %s", after, before)
	}
	return nil
}
