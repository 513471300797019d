package dataset

import (
	"cmp"
	"maps"
	"slices"
)

// Summary describes a dataset.
type Summary struct {
	Path         string             `json:"path"`
	Robot        string             `json:"robot"`
	FPS          float64            `json:"fps"`
	Episodes     int                `json:"episodes"`
	Frames       int                `json:"frames"`
	Tasks        []TaskCount        `json:"tasks"`
	Features     map[string]Feature `json:"features"`
	Bytes        int64              `json:"bytes"`
	Outcomes     map[string]int     `json:"outcomes,omitempty"`     // only for datasets that edge-rt has exported
	Intervention int                `json:"intervention,omitempty"` // frames
}

// TaskCount is the number of episodes of a task.
type TaskCount struct {
	Task     string `json:"task"`
	Episodes int    `json:"episodes"`
}

// Names returns the names of the features, sorted.
func (s *Summary) Names() []string { return slices.Sorted(maps.Keys(s.Features)) }

// Describe summarizes a dataset without reading its frames.
func Describe(dir string) (*Summary, error) {
	info, err := readInfo(dir)
	if err != nil {
		return nil, err
	}
	s := summary(dir, info)
	c := &checker{dir: dir, info: info}
	if err := c.readEpisodes(); err != nil {
		return nil, err
	}
	for _, e := range c.episodes {
		for _, task := range e.tasks {
			i := slices.IndexFunc(s.Tasks, func(t TaskCount) bool { return t.Task == task })
			if i < 0 {
				i = len(s.Tasks)
				s.Tasks = append(s.Tasks, TaskCount{Task: task})
			}
			s.Tasks[i].Episodes++
		}
	}
	if j, err := readJournal(dir); err == nil && len(j.entries) == info.Episodes {
		s.Outcomes = map[string]int{}
		for _, e := range j.entries {
			s.Intervention += e.Intervention
			s.Outcomes[cmp.Or(e.Outcome, "none")]++
		}
	}
	return &s, nil
}

func summary(dir string, info *infoFile) Summary {
	s := Summary{
		Path:     dir,
		FPS:      info.FPS,
		Episodes: info.Episodes,
		Frames:   info.Frames,
		Features: info.Features,
	}
	if info.RobotType != nil {
		s.Robot = *info.RobotType
	}
	s.Bytes, _ = bytesOf(dir)
	return s
}
