package dataset

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/rt"
)

// shortest is the minimum length of a part of an episode that was cut.
const shortest = time.Second

// defaultGap is the value of Config.MaxGap without a flag.
const defaultGap = 100 * time.Millisecond

// Values of Config.Missing: the treatment of frames without a picture.
const (
	dropEpisode = "drop" // leaves the episode out
	cutEpisode  = "cut"  // keeps the parts that have pictures
)

// episode becomes one episode of the dataset.
type episode struct {
	key     string // identity of the episode in the record, for journals
	of      *run
	mark    mark
	frames  []frame
	outcome float64 // 1 success, 0 failure, -1 unknown
	held    int     // number of frames whose tick is missing in the record
	oldest  time.Duration
}

// frame is one frame of an episode.
type frame struct {
	at       rt.Instant
	tick     int   // tick that gives the state
	action   int   // tick that gives the action; -1: no action began, and the goal of the frame's tick is the action
	pictures []int // for each camera, index in run.pictures of the picture that the frame shows
	age      time.Duration
	held     bool
}

// Left counts the parts of the records that an export leaves out, by reason.
type Left map[string]int

func (l Left) add(n int, format string, args ...any) {
	if n > 0 {
		l[fmt.Sprintf(format, args...)] += n
	}
}

// episodes returns the run's episodes as the dataset will have them.
func (r *run) episodes(c *Config, left Left) (out []episode, err error) {
	left.add(r.headless, "episodes whose beginning is in no file")
	marks := r.marks
	if c.Task != "" && len(marks) > 0 && marks[0].number == 0 { // a change of the task does not cut the run
		marks = []mark{{begin: math.MinInt64, end: never}}
	}
	for _, m := range marks {
		if m.outcome == record.Discard || m.outcome == record.Rerecord {
			left.add(1, "episodes that were to be left out (%s)", m.outcome)
			continue
		}
		if len(c.Only) > 0 && !slices.Contains(c.Only, cmp.Or(outcomeWord(outcomeNumber(m.outcome)), "none")) {
			left.add(1, "episodes of another outcome (%s)", cmp.Or(m.outcome, "none"))
			continue
		}
		if m.task == "" && c.Task == "" {
			return nil, refuse("%s: the record names no task: give --task TEXT, which LeRobot keeps with every frame",
				r.name)
		}
		if m.cut && c.Task == "" {
			left.add(1, "episodes whose task the record has cut at 240 bytes (--task gives the whole)")
		}
		m.task = cmp.Or(c.Task, m.task)
		parts := r.parts(m, c, left)
		for i, frames := range parts {
			e := episode{
				of:      r,
				mark:    m,
				frames:  frames,
				outcome: -1,
				key:     fmt.Sprintf("%s/%d/%d", r.key, m.number, frames[0].at),
			}
			if i == len(parts)-1 { // only the last part includes the moment of the outcome
				e.outcome = outcomeNumber(m.outcome)
			}
			for _, f := range frames {
				e.oldest = max(e.oldest, f.age)
				if f.held {
					e.held++
				}
			}
			left.add(e.held, "ticks that are not in the record (held)")
			out = append(out, e)
		}
	}
	return out, nil
}

// outcomeWord returns the journal's word for the number of an outcome; empty for an episode without a verdict, such as
// one whose time ran out.
func outcomeWord(n float64) string {
	return map[float64]string{1: record.Success, 0: record.Failure}[n]
}

func outcomeNumber(outcome string) float64 {
	switch outcome {
	case record.Success:
		return 1
	case record.Failure:
		return 0
	}
	return -1
}

// tickAt returns the index of the first tick at or after an instant.
func (r *run) tickAt(at rt.Instant) int {
	return sort.Search(len(r.ticks), func(i int) bool { return r.ticks[i].at >= at })
}

// parts returns the frames of an episode. A long gap in time cuts an episode into several parts.
func (r *run) parts(m mark, c *Config, left Left) (parts [][]frame) {
	first, last := r.tickAt(m.begin), r.tickAt(m.end)
	cut := m.number == 0 && (m.begin > math.MinInt64 || m.end < never) // at a change of the task
	for from := first; from < last; {
		to := from + 1
		for to < last && r.ticks[to].slept+time.Duration(float64(r.steps(to)-1)*r.period) <= c.MaxGap {
			to++
		}
		cut = cut || to < last
		begin, end := from, to
		for begin < end && r.ticks[begin].action == nil { // skips ticks before the first chunk
			begin++
		}
		for end > begin && r.ticks[end-1].action == nil {
			end--
		}
		left.add((to-from)-(end-begin), "ticks before the first action or after the last")
		if begin < end {
			parts = append(parts, r.frames(begin, end))
		}
		from = to
	}
	if len(parts) == 0 {
		left.add(1, "episodes without an action")
	}
	left.add(max(len(parts)-1, 0), "gaps longer than %v, at which an episode was cut", c.MaxGap)
	parts, cutHere := r.show(parts, c, left)
	return r.keepLong(parts, cut || cutHere, left)
}

// steps returns how many periods tick i is later than tick i-1.
func (r *run) steps(i int) int {
	return max(1, int(math.Round(float64(r.ticks[i].deadline-r.ticks[i-1].deadline)/r.period)))
}

// frames returns the frames of ticks without a long gap. A missing tick becomes a held frame, which
// repeats the last state and the last goal.
func (r *run) frames(begin, end int) (frames []frame) {
	every := r.every()
	at := 0 // time of the next frame after tick i, in periods
	for i := begin; i < end; i++ {
		behind := 1
		if i+1 < end {
			behind = r.steps(i + 1)
		}
		for at < behind {
			// A late tick makes its successors late or missing. A held frame that repeats the late tick must not be
			// earlier than the tick itself.
			due := r.ticks[i].deadline + rt.Instant(float64(at)*r.period)
			f := frame{
				at:     max(r.ticks[i].at, due),
				tick:   i,
				action: -1,
				held:   at > 0,
			}
			for k := i; k < end && r.ticks[k].deadline-r.ticks[i].deadline < rt.Instant((float64(at+
				every)-0.5)*r.period); k++ {
				if (k > i || at == 0) && r.ticks[k].action != nil {
					f.action = k
					break
				}
			}
			frames = append(frames, f)
			at += every
		}
		at -= behind
	}
	return frames
}

// startup is the longest time from the beginning of an episode until each camera has given a whole picture. The cameras
// may still be starting when an episode begins, because teleop does not wait for pictures.
const startup = 2 * time.Second

// show finds the pictures that each frame shows: from each camera the newest picture taken no later than the frame. It
// leaves out the frames before the cameras' first pictures. cut reports whether show left out other frames without a
// picture.
func (r *run) show(parts [][]frame, c *Config, left Left) (out [][]frame, cut bool) {
	if len(r.cams) == 0 {
		return parts, false
	}
	for _, frames := range parts {
		var early, blind, from int
		var camera string // the camera of a missing picture
		var shown [][]frame
		end := func(to int) {
			if to > from {
				shown = append(shown, frames[from:to])
			}
			from = to + 1
		}
		for i := range frames {
			switch age, of := r.setPictures(&frames[i]); {
			case age == math.MaxInt64 && frames[i].at.Sub(frames[0].at) < startup:
				early++
				end(i)
			case age > c.MaxPictureAge:
				camera = of
				blind++
				end(i)
			}
		}
		end(len(frames))
		if blind > 0 && c.Missing != cutEpisode {
			left.add(1, "episodes with frames that have no picture of the last %v, as from camera %s "+
				"(--missing-pictures cut leaves out only the frames)%s", c.MaxPictureAge, camera, r.ring())
			continue
		}
		left.add(early, "frames before the first picture of a camera")
		left.add(blind, "frames without a picture of the last %v", c.MaxPictureAge)
		out, cut = append(out, shown...), cut || blind > 0
	}
	return out, cut
}

// ring returns a hint for an error if the record was made by --record ring, which keeps few pictures. Otherwise
// it returns "".
func (r *run) ring() string {
	if r.info["record"] == string(record.Ring) {
		return " (--record ring has ten pictures a second, of the last ten seconds: record with --record all)"
	}
	return ""
}

// setPictures sets a frame's pictures and returns the age of the oldest picture, and its camera.
func (r *run) setPictures(f *frame) (oldest time.Duration, camera string) {
	f.pictures = make([]int, len(r.cams))
	for k, name := range r.cams {
		all := r.pictures[name]
		after, _ := slices.BinarySearch(all, f.at+1)
		if after == 0 {
			return math.MaxInt64, name
		}
		f.pictures[k] = after - 1
		if age := f.at.Sub(all[after-1]); age >= oldest {
			oldest, camera = age, name
		}
	}
	f.age = oldest
	return oldest, camera
}

// keepLong leaves out parts that are too short after a cut.
func (r *run) keepLong(parts [][]frame, cut bool, left Left) [][]frame {
	if !cut {
		return parts
	}
	all := len(parts)
	parts = slices.DeleteFunc(parts, func(frames []frame) bool {
		return len(frames)*int(time.Second)/r.fps < int(shortest)
	})
	left.add(all-len(parts), "parts shorter than %v of episodes that were cut", shortest)
	return parts
}

// values returns the numbers of frame i, by the names of their features.
func (e *episode) values(i int, place *place) map[string]any {
	f := &e.frames[i]
	t := &e.of.ticks[f.tick]
	values := map[string]any{
		stateName:      wide(t.state),
		actionName:     wide(t.goal),
		timestamp:      float64(float32(float64(i) / float64(place.fps))),
		frameIndex:     float64(i),
		episodeIndex:   float64(place.episode),
		index:          float64(place.first + i),
		taskIndex:      float64(place.task),
		outcomeName:    e.outcome,
		seqName:        -1.0,
		epochName:      -1.0,
		chunkIndexName: -1.0,
		sourceAgeName:  -1.0,
		pictureAgeName: float64(float32(float64(f.age) / 1e6)),
		runEpisode:     float64(e.mark.number),
	}
	var session record.Session
	if f.action >= 0 {
		t = &e.of.ticks[f.action]
		values[actionName] = wide(e.of.sent(f.action))
		if !t.person && e.of.info["schedule"] != "teleop" {
			values[seqName] = float64(t.seq)
			values[epochName] = float64(t.epoch)
			values[chunkIndexName] = float64(t.row)
			session = e.of.sessions[t.epoch]
		}
		if t.source > 0 {
			values[sourceAgeName] = float64(float32(float64(t.at.Sub(t.source)) / 1e6))
		}
	}
	values[sessionName], values[modelHashName] = []string{session.ID}, []string{session.SHA256}
	values[intervention] = number(t.person)
	return values
}

// sent returns the goals that the arm received for the action that began on tick i. For most joints
// this goal is the action. For joints that the gate (edge-rt's limits of goals) held back, it is
// the last goal during the action: a policy that learned the action itself would expect a motion
// that the arm never made.
func (r *run) sent(i int) []float32 {
	action := r.ticks[i].action
	last := i
	cut := r.ticks[i].cut
	ticks := min(r.every(), int(math.Round(1e9/r.period/r.rate))) // ticks that the action lasts
	for k := i + 1; k < len(r.ticks) && r.ticks[k].action == nil; k++ {
		if r.ticks[k].deadline-r.ticks[i].deadline > rt.Instant((float64(ticks)-0.5)*r.period) {
			break
		}
		last, cut = k, cut|r.ticks[k].cut
	}
	if cut == 0 {
		return action
	}
	sent := slices.Clone(action)
	for j := range sent {
		if cut&(1<<j) != 0 {
			sent[j] = r.ticks[last].goal[j]
		}
	}
	return sent
}

// place is the position of an episode in the dataset.
type place struct {
	fps, episode, first, task int
}

func wide(row []float32) []float64 {
	out := make([]float64, len(row))
	for i, v := range row {
		out[i] = float64(v)
	}
	return out
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
