package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/internal/program"
	"github.com/edge-rt/edge-rt/internal/terminal"
	"github.com/edge-rt/edge-rt/record/dataset"
)

// datasetCmd groups the commands that make and inspect datasets.
type datasetCmd struct {
	Export datasetExportCmd `cmd:"" uses:"fps typed,task typed,json typed" help:"Make a LeRobotDataset from records: edge-rt dataset export ~/.local/state/edge-rt/records pick-cubes"`
	Info   datasetInfoCmd   `cmd:"" uses:"json typed" help:"Describe a dataset: episodes, tasks, features."`
	Check  datasetCheckCmd  `cmd:"" uses:"json typed" help:"Check a dataset's files, rows, time stamps, videos and statistics. Exit code 3 with findings."`
}

func (datasetExportCmd) Help() string {
	return `--fps is the dataset's rate; it must divide the record's ticks per second (default: the record's actions per second). --task replaces the records' tasks.`
}

func (datasetCmd) Help() string {
	return `Datasets are LeRobotDatasets v3.0 for LeRobot's loader, training script and editing tools (docs/dataset.md).

Examples:
  edge-rt dataset export run.mcap pick-cubes            one record
  edge-rt dataset export records/ pick-cubes --only success --append
                                                        adds the new successful episodes of a folder
  edge-rt dataset check pick-cubes                      any program's dataset
  edge-rt dataset info pick-cubes --json -              for a script`
}

type datasetExportCmd struct {
	Paths   []string `arg:"" name:"records" help:"Records (files and folders), and last the dataset's folder, which must not exist without --append."`
	Append  bool     `help:"Add to an existing dataset the episodes that it does not have yet."`
	Cameras []string `help:"Only these cameras; default: all in the record." placeholder:"NAME,..."`
	Only    []string `enum:"success,failure,none" help:"Only episodes with these outcomes: success, failure, none (no outcome); default: all but discarded ones." placeholder:"OUTCOME,..."`
	VCodec  string   `name:"vcodec" default:"h264" enum:"h264,av1" help:"How videos are compressed: h264 (fast, plays everywhere), av1 (LeRobot's default, smaller)."`
	CRF     int      `name:"crf" range:"0..63;less is larger and better" help:"Quality of the videos; 0: 23 for h264, 30 for av1." placeholder:"N"`
	Plain   bool     `help:"Only the features that LeRobot's own recordings have, so that both can be merged."`

	Columns []string `enum:"session,episode,model" help:"Further features of each frame: session (id of the session of the action's request), episode (its number in the run), model (sha256 of the policy)." placeholder:"NAME,..."`

	PushToHub string `name:"push-to-hub" help:"Push the dataset to this repository of the Hugging Face Hub, with your huggingface_hub login; if that fails, edge-rt prints the commands." placeholder:"USER/NAME"`
	Python    string `name:"python" default:"python3" help:"Interpreter with huggingface_hub, for --push-to-hub." placeholder:"PROGRAM"`

	MaxGap          time.Duration `range:"0..1h;a longer hold is no demonstrated movement" default:"100ms" help:"The longest time without ticks that the last one fills; a longer gap cuts the episode in two."`
	MaxPictureAge   time.Duration `range:">0..1h" default:"250ms" help:"Greatest age of a frame's picture; an older one counts as missing."`
	MissingPictures string        `default:"drop" enum:"drop,cut" help:"What to do with frames without a picture: drop their episode, or cut them out."`
}

// Run exports the records and shows the progress.
func (c *datasetExportCmd) Run(flags *cli, screen *terminal.Terminal) error {
	if len(c.Paths) < 2 {
		return exit.Errorf(exit.Usage, "dataset export: want records and after them the dataset's folder: edge-rt "+
			"dataset export run.mcap pick-cubes")
	}
	wanted := program.ValueOr(flags.FPS, 0)
	fps := int(wanted)
	if float64(fps) != wanted {
		return exit.Errorf(exit.Usage, "dataset export: --fps %v, want a whole number, as LeRobot has", wanted)
	}
	if c.PushToHub != "" {
		if err := dataset.CheckRepo(c.PushToHub); err != nil {
			return exit.Errorf(exit.Usage, "dataset export: --push-to-hub: %w", err)
		}
	}
	ctx, stop := program.Interruptible()
	defer stop()
	cfg := dataset.Config{
		Records:       c.Paths[:len(c.Paths)-1],
		Out:           c.Paths[len(c.Paths)-1],
		Append:        c.Append,
		FPS:           fps,
		Cameras:       c.Cameras,
		Only:          c.Only,
		Task:          flags.Task,
		VCodec:        c.VCodec,
		CRF:           c.CRF,
		Plain:         c.Plain,
		Columns:       c.Columns,
		MaxGap:        c.MaxGap,
		MaxPictureAge: c.MaxPictureAge,
		Missing:       c.MissingPictures,
	}
	debug.SetGCPercent(25) // a robot's computer may have little memory, and ffmpeg takes most of the time
	began := time.Now()
	live := terminal.Is(os.Stderr)
	if live {
		cfg.Progress = progressOn(screen)
	}
	report, err := dataset.Export(ctx, cfg)
	if live {
		screen.Clear()
	}
	if err != nil {
		return datasetError(err)
	}
	took := time.Since(began)
	var failed error
	if c.PushToHub != "" {
		report.Pushed, failed = dataset.Push(ctx, c.Python, report.Out, c.PushToHub)
	}
	err = flags.write(report, func(w io.Writer) { printExport(w, report, took) })
	return errors.Join(err, failed)
}

// progressOn returns a function that writes an export's progress to w, at most five times a second.
func progressOn(w io.Writer) func(dataset.Progress) {
	var next time.Time
	return func(p dataset.Progress) {
		if now := time.Now(); now.After(next) {
			next = now.Add(200 * time.Millisecond)
			fmt.Fprintf(w, "run %d of %d, episode %d of %d, frame %d of %d", p.Run, p.OfRuns, p.Episodes+1,
				p.OfEpisodes, p.Frames, p.OfFrames)
		}
	}
}

// datasetError adds the exit code to an error: Usage if a file on the command line is missing, Config for other faulty
// input.
func datasetError(err error) error {
	var input dataset.InputError
	switch {
	case errors.As(err, &input) && input.Gone: // a file named in the command line
		return exit.With(exit.Usage, err)
	case errors.As(err, &input):
		return exit.With(exit.Config, err)
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	}
	return err
}

// write writes a result as JSON with --json, otherwise as text.
func (r *runFlags) write(result any, print func(io.Writer)) error {
	if r.JSON == "" {
		print(stdout)
		return nil
	}
	file, err := r.openJSON()
	if err != nil {
		return err
	}
	enc := json.NewEncoder(plain.Writer(file))
	enc.SetIndent("", "  ")
	return errors.Join(enc.Encode(result), file.Close())
}

func printExport(w io.Writer, r *dataset.Report, took time.Duration) {
	fmt.Fprintf(w, "%s: %d episodes of %d frames together at %d per second, %d tasks, cameras: %s; %s\n", r.Out,
		r.Episodes, r.Frames, r.FPS, r.Tasks, cmp.Or(strings.Join(r.Cameras, ", "), "none"), megabytes(r.Bytes))
	if r.Added != r.Episodes || r.Resumed > 0 {
		fmt.Fprintf(w, "added: %d episodes; %d more were taken over from an interrupted export, %d were there\n",
			r.Added, r.Resumed, r.There)
	}
	fmt.Fprintf(w, "took %.1f s, %.0f frames per second\n", took.Seconds(), float64(r.AddedFrames)/took.Seconds())
	if r.WorstPictureMS > 0 {
		fmt.Fprintf(w, "the oldest picture of a frame: %.0f ms, in episode %s\n", r.WorstPictureMS, r.WorstPictureTold)
	}
	if r.Intervention > 0 {
		fmt.Fprintf(w, "a person's, at a leader arm: %d frames\n", r.Intervention)
	}
	for _, why := range slices.Sorted(maps.Keys(r.Left)) {
		fmt.Fprintf(w, "  %d %s\n", r.Left[why], why)
	}
	for _, t := range r.Torn {
		fmt.Fprintf(w, "  %d pictures of camera %s %s, and no frame shows them: %s\n", t.Count, t.Camera, t.Why(),
			t.When())
	}
	if r.Replaced > 0 {
		fmt.Fprintf(w, "  %d episodes that were there have changed on their record since: they were made anew, at "+
			"the end\n", r.Replaced)
	}
	if r.Removed > 0 {
		fmt.Fprintf(w, "  %d episodes that were there were discarded since: they are gone\n", r.Removed)
	}
	if r.Recording > 0 {
		fmt.Fprintf(w, "  %d runs are still being recorded: --append completes them later\n", r.Recording)
	}
	if r.Endless > 0 {
		fmt.Fprintf(w, "  %d records have no end (a power cut, or a record that is still being written)\n", r.Endless)
	}
	if r.Pushed != "" {
		fmt.Fprintf(w, "pushed to %s\n", r.Pushed)
	}
	if r.Kept != "" {
		fmt.Fprintf(w, "  files of the dataset that edge-rt has not made came while it was exported; they are in %s\n",
			filepath.Dir(r.Kept))
	}
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

type datasetInfoCmd struct {
	Path string `arg:"" help:"The dataset's folder."`
}

// Run prints a dataset's properties.
func (c *datasetInfoCmd) Run(flags *cli) error {
	s, err := dataset.Describe(c.Path)
	if err != nil {
		return datasetError(err)
	}
	return flags.write(s, func(w io.Writer) {
		fmt.Fprintf(w, "%s: LeRobotDataset %s, robot %s, %d episodes, %d frames at %v per second (%v), %s\n", s.Path,
			dataset.Version, plain.Text(cmp.Or(s.Robot, "not given")), s.Episodes, s.Frames, s.FPS,
			s.Seconds().Round(time.Second), megabytes(s.Bytes))
		for _, t := range s.Tasks {
			fmt.Fprintf(w, "  %4d episodes: %s\n", t.Episodes, plain.Text(t.Task))
		}
		for _, outcome := range slices.Sorted(maps.Keys(s.Outcomes)) {
			fmt.Fprintf(w, "  %4d with outcome %s\n", s.Outcomes[outcome], outcome)
		}
		if s.Intervention > 0 {
			fmt.Fprintf(w, "  %4d frames are a person's, at a leader arm\n", s.Intervention)
		}
		for _, name := range s.Names() {
			f := s.Features[name]
			fmt.Fprintf(w, "  %-28s %-8s %v\n", plain.Text(name), plain.Text(f.DType), f.Shape)
		}
	})
}

type datasetCheckCmd struct {
	Path       string `arg:"" help:"The dataset's folder."`
	SkipVideos bool   `help:"Skip videos, whose check needs ffprobe and time."`
}

// Run compares a dataset's files with its metadata.
func (c *datasetCheckCmd) Run(flags *cli) error {
	ctx, stop := program.Interruptible()
	defer stop()
	v, err := dataset.Check(ctx, c.Path, !c.SkipVideos)
	if err != nil {
		return datasetError(err)
	}
	err = flags.write(v, func(w io.Writer) {
		for _, f := range v.Findings {
			fmt.Fprintln(w, plain.Text(f))
		}
		for _, n := range v.Notes {
			fmt.Fprintln(w, "note:", plain.Text(n))
		}
		if v.More > 0 {
			fmt.Fprintf(w, "and %d more\n", v.More)
		}
		if v.Whole() {
			fmt.Fprintf(w, "%s is whole: %d episodes, %d frames, %d videos, statistics recomputed\n", c.Path,
				v.Episodes, v.Rows, v.Videos)
		}
	})
	if err == nil && !v.Whole() {
		err = exit.Errorf(exit.Config, "%s: %d findings", c.Path, len(v.Findings)+v.More)
	}
	return err
}
