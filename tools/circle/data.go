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

	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/stage"
)

// exported is a dataset.
type exported struct {
	Episodes     int            `json:"episodes"`
	Frames       int            `json:"frames"`
	FPS          int            `json:"fps"`
	Cameras      []string       `json:"cameras"`
	Added        int            `json:"episodes_added"`
	Intervention int            `json:"frames_intervention"`
	PictureMS    float64        `json:"picture_age_ms_max"`
	Left         map[string]int `json:"left_out"`
}

const exportLimit = 10 * time.Minute

// export makes dataset 1 from the demonstrations. Dataset 2 is a copy of dataset 1, to which export
// adds the corrections.
func (r *round) export(ctx context.Context, n int) error {
	records := r.demonstrations()
	want := r.Found.Demonstrated.Episodes
	args := []string{"dataset", "export"}
	if n == 2 {
		records = r.correctionRecords()
		want = r.Found.Exported[1].Episodes + r.Found.Corrected.Corrections
		args = append(args, "--append")
		if err := os.CopyFS(r.dataset(2), os.DirFS(r.dataset(1))); err != nil {
			return err
		}
	}
	text, err := output(ctx, r.edge(append(args, records, r.dataset(n), "--json", "-")...), exportLimit)
	if err != nil {
		return err
	}
	var e exported
	if err := json.Unmarshal(text, &e); err != nil {
		return fmt.Errorf("edge-rt dataset export: %w", err)
	}
	r.Found.Exported[n] = e
	r.result("%d episodes, %d frames at %d per second, %d of them interventions; oldest picture %.0f ms", e.Episodes,
		e.Frames, e.FPS, e.Intervention, e.PictureMS)
	if err := e.check(n, want, r.corrections); err != nil {
		return err
	}
	if err := checkFeatures(r.dataset(n)); err != nil {
		return err
	}
	if err := checkMoves(r.dataset(n)); err != nil {
		return err
	}
	said, err := output(ctx, r.edge("dataset", "check", r.dataset(n)), exportLimit)
	if err == nil {
		say("%s", strings.TrimSpace(string(said)))
	}
	return err
}

// cuts returns how many more episodes the export has than the recording. If the machine is busy for
// a tenth of a second, an episode has a gap, and the export divides the episode at the gap.
func (e *exported) cuts() (n int) {
	for why, count := range e.Left {
		switch {
		case strings.HasPrefix(why, "gaps longer than"):
			n += count
		case strings.HasPrefix(why, "parts shorter than"):
			n -= count
		}
	}
	return n
}

// check compares the export with the recording.
func (e *exported) check(n, episodes, corrections int) error {
	switch cuts := e.cuts(); {
	case cuts < 0 || e.Episodes != episodes+cuts:
		return fmt.Errorf("the dataset has %d episodes, recorded were %d, of which cuts made %d more; left out: %v",
			e.Episodes, episodes, cuts, e.Left)
	case n == 2 && e.Added != corrections+cuts:
		return fmt.Errorf("%d episodes were added, want the %d corrections; left out: %v", e.Added, corrections, e.Left)
	case e.Frames < fps*e.Episodes:
		return fmt.Errorf("%d frames in %d episodes, want a second of %d each at least", e.Frames, e.Episodes, fps)
	case e.FPS != fps:
		return fmt.Errorf("%d frames a second, want %d", e.FPS, fps)
	case !slices.Equal(e.Cameras, []string{"top"}):
		return fmt.Errorf("cameras %v, want top", e.Cameras)
	case n == 1 && e.Intervention != 0:
		return fmt.Errorf("%d frames of demonstrations are marked as interventions", e.Intervention)
	case n == 2 && e.Intervention < fps*corrections:
		return fmt.Errorf("%d frames are interventions, want a second of each of %d corrections at least",
			e.Intervention, corrections)
	}
	return nil
}

// checkFeatures compares the dataset's description with the robot's.
func checkFeatures(dir string) error {
	var info struct {
		Features map[string]struct {
			Shape []int `json:"shape"`
			Names any   `json:"names"`
		} `json:"features"`
	}
	if err := stage.ReadJSON(dir+"/meta/info.json", &info); err != nil {
		return err
	}
	r, err := robot.ByName(robotName)
	if err != nil {
		return err
	}
	for _, name := range []string{"action", "observation.state"} {
		var got []string
		names, _ := info.Features[name].Names.([]any)
		for _, n := range names {
			got = append(got, fmt.Sprint(n))
		}
		if !slices.Equal(got, r.ActionNames()) {
			return fmt.Errorf("%s has the joints %v, the robot %v", name, got, r.ActionNames())
		}
	}
	if _, ok := info.Features["observation.images.top"]; !ok {
		return errors.New("there is no observation.images.top in the dataset")
	}
	if _, ok := info.Features["intervention"]; !ok {
		return errors.New("there is no feature intervention in the dataset")
	}
	return nil
}

// moves is the least standard deviation of a joint that moves: some encoder counts.
const moves = 0.3

// checkMoves refuses a dataset in which a joint does not move. A policy divides by the joint's standard
// deviation, and no demonstration shows the right output for another position of that joint.
func checkMoves(dir string) error {
	type joints struct {
		Std []float64 `json:"std"`
	}
	var stats struct {
		Action joints `json:"action"`
		State  joints `json:"observation.state"`
	}
	if err := stage.ReadJSON(dir+"/meta/stats.json", &stats); err != nil {
		return err
	}
	r, err := robot.ByName(robotName)
	if err != nil {
		return err
	}
	for name, std := range map[string][]float64{"action": stats.Action.Std, "observation.state": stats.State.Std} {
		if len(std) != len(r.Motors) {
			return fmt.Errorf("%s has statistics of %d joints, the robot %d joints", name, len(std), len(r.Motors))
		}
		for j, m := range r.Motors {
			if std[j] < moves {
				return fmt.Errorf("%s: %s does not move in the dataset, its deviation is %.2g: the teacher has to "+
					"move it", name, m.Name, std[j])
			}
		}
	}
	return nil
}
