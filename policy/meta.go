package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/jpeg"
	"github.com/edge-rt/edge-rt/policy/tokenizer"
)

// BundleVersion is the bundle.json version that this program reads.
const BundleVersion = 1

// formSplit is the Form of a policy with a separate graph for a step of its sampler.
const formSplit = "split"

// MaxCameras is the largest number of cameras of a policy.
const MaxCameras = 16

// MaxObserved is the largest number of observations that a policy takes together.
const MaxObserved = 16

// Bounds of the sizes that bundle.json may declare. They keep a damaged file from requesting
// gigabytes or overflowing index arithmetic.
const (
	maxDim      = 1024    // joints of a state or an action
	MaxRows     = 10_000  // actions of a chunk
	maxSide     = 16_384  // pixels of one side of a picture
	maxPixels   = 1 << 26 // pixels of one picture
	maxNumSteps = 1000    // Euler steps
	MaxFPS      = 10_000  // Hz
)

// Camera is one picture input of the graph: image.<Name>, u8 [B, H, W, 3], RGB.
type Camera struct {
	Name string `json:"name"`
	H    int    `json:"height"`
	W    int    `json:"width"`

	// DecodeScale is the largest factor by which the JPEG decoder may shrink a picture to H x W: 2, 4 or 8, each with
	// the smaller factors. If it is 1 or absent, the decoder shrinks no picture. A picture that the decoder has
	// shrunk differs slightly from a resized picture, so set DecodeScale only for a policy whose results were
	// verified to be as good.
	DecodeScale int `json:"decode_scale,omitempty"`

	// With ExactSize, a picture of another size is refused, unless DecodeScale allows that size. Without ExactSize,
	// such a picture is scaled.
	ExactSize bool `json:"exact_size,omitempty"`
}

// Scale returns DecodeScale, 1 when it is absent.
//
//rt:noalloc
func (c Camera) Scale() int { return max(c.DecodeScale, 1) }

// Bytes returns the size of one picture.
func (c Camera) Bytes() int { return c.H * c.W * 3 }

// Tolerance is the largest difference between a golden output and the recorded one: |got - want| <=
// tolerance, in the unit of the output.
type Tolerance struct {
	ChunkModel float64 `json:"chunk_model"`
	ChunkRobot float64 `json:"chunk_robot"`
}

// Meta is the content of bundle.json. Copies of a Meta share its slices: do not write to them.
type Meta struct {
	BundleVersion int    `json:"bundle_version"`
	PolicyType    string `json:"policy_type"`

	// The origin of the policy; free text for people and logs.
	SourceRepo      string `json:"source_repo,omitempty"`
	SourceRevision  string `json:"source_revision,omitempty"`
	WeightsSHA256   string `json:"weights_sha256,omitempty"`
	Exporter        string `json:"exporter,omitempty"`
	LeRobotVersion  string `json:"lerobot_version,omitempty"`
	Licence         string `json:"licence,omitempty"`
	ImageTransform  string `json:"image_transform,omitempty"`
	NormState       string `json:"norm_state,omitempty"`
	NormAction      string `json:"norm_action,omitempty"`
	NormStatsSHA256 string `json:"norm_stats_sha256,omitempty"`
	Opset           int    `json:"opset,omitempty"`
	DType           string `json:"dtype,omitempty"`

	// Weights is the type in which many of the weights are stored, bfloat16 or float16. The graph then casts them to
	// float32 at each use. If empty, all weights have the type in which the graph computes.
	Weights string `json:"weights,omitempty"`

	// The contract with a robot. FPS is the control rate of the training, in Hz; ChunkSize is the number of actions
	// of a chunk (H), of which NActionSteps are intended to run. Names are in vector order, units in LeRobot's words
	// (degrees, range_0_100, range_m100_100). Limits are [lowest, highest] in these units, with a margin around the
	// training data's values.
	FPS          float64      `json:"fps"`
	ChunkSize    int          `json:"chunk_size"`
	NActionSteps int          `json:"n_action_steps,omitempty"`
	ActionDim    int          `json:"action_dim"`
	ActionNames  []string     `json:"action_names"`
	ActionUnits  []string     `json:"action_units,omitempty"`
	ActionLimits [][2]float64 `json:"action_limits,omitempty"`
	StateNames   []string     `json:"state_names"`
	StateUnits   []string     `json:"state_units,omitempty"`
	StateLimits  [][2]float64 `json:"state_limits,omitempty"`
	RelativeMask []bool       `json:"relative_mask,omitempty"`

	// SimulationOnly marks a policy that was trained in a simulated world only: on a real arm its
	// actions mean nothing, and a robot with a real arm refuses it.
	SimulationOnly bool `json:"simulation_only,omitempty"`

	Cameras []Camera `json:"cameras"`

	// ObservationSteps is the number of observations, one control step apart, that the graph takes together: pictures
	// u8 [B, S, H, W, 3] and state [B, S, D], the oldest first. 0: one observation, without the dimension S.
	ObservationSteps int `json:"observation_steps,omitempty"`

	// The sampler. NumSteps is the number of its steps in the graph (0 for a policy that does not
	// sample), NoiseDim the width of the noise rows (0: no noise input) and NoiseRows their number
	// (0: ChunkSize).
	NumSteps  int `json:"num_steps,omitempty"`
	NoiseDim  int `json:"noise_dim,omitempty"`
	NoiseRows int `json:"noise_rows,omitempty"`

	// Form is the place of the loop over the sampler's steps. If Form is empty, the loop is in policy.onnx. If it is
	// formSplit, the loop is in this package, which runs prefix.onnx once for a request and step.onnx NumSteps times.
	Form string `json:"form,omitempty"`

	// Real-Time Chunking. RTC is "none", "guided" or "guided,trained"; RTCMaxDelay is the longest delay, in steps, with
	// which the prefix was trained; PrefixEnd is the default row at which guidance ends. Schedule lists the possible
	// declines of guidance, from "linear" alone to all of ScheduleNames; with more than one, the schedule and sigma_d
	// are inputs of the graph, per sample.
	RTC         string `json:"rtc"`
	RTCMaxDelay int    `json:"rtc_max_delay,omitempty"`
	PrefixEnd   int    `json:"prefix_end,omitempty"`
	Schedule    string `json:"schedule,omitempty"`
	PrefixSpace string `json:"prefix_space,omitempty"`

	// Tokenizer describes how the task becomes tokens; nil for a policy that does not read it. Its
	// files are in the bundle's folder tokenizer.
	Tokenizer *tokenizer.Spec `json:"tokenizer,omitempty"`

	// BatchBuckets are the recommended batch sizes, ascending; BatchInvariant states that a row's
	// bytes do not depend on its batch.
	BatchBuckets   []int     `json:"batch_buckets,omitempty"`
	BatchInvariant bool      `json:"batch_invariant,omitempty"`
	GoldenTol      Tolerance `json:"golden_tolerance"`

	// Files holds the SHA-256 in hex of the bundle's other files, by slash path. The bundle consists of these files and
	// bundle.json; other files in its folder are not read.
	Files map[string]string `json:"files"`
}

// Guided reports whether the graph can pull a chunk towards a prefix.
//
//rt:noalloc
func (m *Meta) Guided() bool { return strings.Contains(m.RTC, "guided") }

// Trained reports whether the policy was trained with prefixes.
//
//rt:noalloc
func (m *Meta) Trained() bool { return strings.Contains(m.RTC, "trained") }

// Steps returns the number of observations that the graph takes together.
//
//rt:noalloc
func (m *Meta) Steps() int { return max(m.ObservationSteps, 1) }

//rt:noalloc
func (m *Meta) noiseRows() int { return cmp.Or(m.NoiseRows, m.ChunkSize) }

// scheduled reports whether the graph takes a schedule and sigma_d.
//
//rt:noalloc
func (m *Meta) scheduled() bool { return strings.Contains(m.Schedule, ",") }

// parse reads bundle.json. Unknown keys, trailing data and impossible values are errors. The error names all impossible
// values at once.
func (m *Meta) parse(raw []byte) error {
	raw, err := userfile.Text(raw)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		if strings.Contains(err.Error(), "unknown field") {
			err = fmt.Errorf("%w; if a newer edgert-export wrote the file, update lean-server, too", err)
		}
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("data after the closing brace")
	}
	if m.BundleVersion != BundleVersion {
		return fmt.Errorf("bundle_version is %d, this program reads version %d: export the policy again with the "+
			"edgert-export of lean-server's version", m.BundleVersion, BundleVersion)
	}
	return errors.Join(m.Check(), errors.Join(m.checkFiles()...))
}

// Check reports all impossible values of a description without a bundle, whose policy another program computes. Each
// fault begins with the key of bundle.json.
func (m *Meta) Check() error {
	return errors.Join(slices.Concat(m.checkRobot(), m.checkCameras(), m.checkSampler())...)
}

// checks collects the faults of a manifest.
type checks []error

// want adds an error unless ok.
func (c *checks) want(ok bool, format string, args ...any) {
	if !ok {
		*c = append(*c, fmt.Errorf(format, args...))
	}
}

func (m *Meta) checkRobot() (c checks) {
	c.want(m.PolicyType != "", "policy_type is missing")
	c.want(m.FPS > 0 && m.FPS <= MaxFPS, "fps is %v, want above 0 and at most %d", m.FPS, MaxFPS)
	c.want(m.ChunkSize >= 1 && m.ChunkSize <= MaxRows, "chunk_size is %d, want 1 to %d", m.ChunkSize, MaxRows)
	c.want(m.NActionSteps >= 0 && m.NActionSteps <= m.ChunkSize, "n_action_steps is %d, want 0 to chunk_size %d",
		m.NActionSteps, m.ChunkSize)
	c.want(m.ActionDim >= 1 && m.ActionDim <= maxDim && len(m.ActionNames) == m.ActionDim,
		"action_dim is %d with %d action_names, want as many names as joints, 1 to %d", m.ActionDim, len(m.ActionNames),
		maxDim)
	c.want(len(m.StateNames) >= 1 && len(m.StateNames) <= maxDim, "state_names has %d names, want 1 to %d",
		len(m.StateNames), maxDim)
	c.want(m.RelativeMask == nil || len(m.RelativeMask) == m.ActionDim, "relative_mask has %d values, want %d",
		len(m.RelativeMask), m.ActionDim)
	c.joints("action", m.ActionNames, m.ActionUnits, m.ActionLimits)
	c.joints("state", m.StateNames, m.StateUnits, m.StateLimits)
	return c
}

// knownUnits are the units of joints and of a base's velocities, in the words of a robot's description.
var knownUnits = []string{"degrees", "range_0_100", "range_m100_100", "m/s", "deg/s"}

// joints checks the names of one vector, and its units and limits if the description has them.
func (c *checks) joints(vector string, names, units []string, limits [][2]float64) {
	for i, name := range names {
		c.want(name != "" && !slices.Contains(names[:i], name),
			"%s_names[%d] is %q, want names that are not empty and differ", vector, i, name)
	}
	c.want(units == nil || len(units) == len(names), "%s_units has %d units, want one for each of the %d names", vector,
		len(units), len(names))
	for i, unit := range units {
		c.want(slices.Contains(knownUnits, unit), "%s_units[%d] is %q, want one of %s, as robots name theirs", vector,
			i, unit, strings.Join(knownUnits, ", "))
	}
	c.want(limits == nil || len(limits) == len(names), "%s_limits has %d pairs, want one for each of the %d names",
		vector, len(limits), len(names))
	for i, l := range limits {
		c.want(l[0] < l[1], "%s_limits[%d] is %v, want [lowest, highest]", vector, i, l)
	}
}

func (m *Meta) checkCameras() (c checks) {
	if len(m.Cameras) > MaxCameras {
		return checks{fmt.Errorf("cameras has %d entries, want at most %d", len(m.Cameras), MaxCameras)}
	}
	for i, cam := range m.Cameras {
		c.want(cam.Name != "" && !slices.ContainsFunc(m.Cameras[:i], func(d Camera) bool { return d.Name == cam.Name }),
			"cameras[%d].name is %q, want names that are not empty and differ", i, cam.Name)
		if cam.H < 1 || cam.W < 1 || cam.H > maxSide || cam.W > maxSide || cam.H*cam.W > maxPixels {
			c.want(false, "cameras[%d] is %dx%d (height x width), want 1 to %d pixels a side and at most %d in all", i,
				cam.H, cam.W, maxSide, maxPixels)
			continue
		}
		switch k := cam.DecodeScale; k {
		case 0, 1, 2, 4, jpeg.MaxShrink:
			c.want(k <= 1 || cam.H*cam.W*k*k <= jpeg.MaxPixels,
				"cameras[%d].decode_scale is %d: JPEG of %dx%d (height x width) is not decoded, want at most %d pixels",
				i, k, cam.H*k, cam.W*k, jpeg.MaxPixels)
		default:
			c.want(false, "cameras[%d].decode_scale is %d, want 1, 2, 4 or %d", i, k, jpeg.MaxShrink)
		}
	}
	return c
}

func (m *Meta) checkSampler() (c checks) {
	c.want(m.NumSteps >= 0 && m.NumSteps <= maxNumSteps, "num_steps is %d, want 0 to %d", m.NumSteps, maxNumSteps)
	c.want(m.NoiseDim >= 0 && m.NoiseDim <= maxDim, "noise_dim is %d, want 0 to %d", m.NoiseDim, maxDim)
	c.want(slices.Contains([]string{"none", "guided", "guided,trained"}, m.RTC),
		"rtc is %q, want none, guided or guided,trained", m.RTC)
	c.want(!m.Guided() || m.NumSteps >= 1, "num_steps is %d with rtc %q, want at least 1: guidance is clamped to it",
		m.NumSteps, m.RTC)
	c.want(m.RTCMaxDelay >= 0 && m.RTCMaxDelay < max(m.ChunkSize, 1) && m.Trained() == (m.RTCMaxDelay > 0),
		"rtc_max_delay is %d with rtc %q, want 1 to chunk_size-1 for a trained prefix and 0 otherwise", m.RTCMaxDelay,
		m.RTC)
	c.want(m.PrefixEnd >= 0 && m.PrefixEnd <= m.ChunkSize, "prefix_end is %d, want 0 to chunk_size %d", m.PrefixEnd,
		m.ChunkSize)
	all := strings.Join(ScheduleNames, ",")
	c.want(slices.Contains([]string{"", ScheduleNames[0], all}, m.Schedule), "schedule is %q, want %s or %s",
		m.Schedule, ScheduleNames[0], all)
	c.want(!m.scheduled() || m.RTC != "none", "schedule is %q with rtc none, want nothing", m.Schedule)
	c.want(m.PrefixSpace == "" || m.PrefixSpace == "robot", "prefix_space is %q, want robot", m.PrefixSpace)
	c.want(m.NoiseRows >= 0 && m.NoiseRows <= MaxRows, "noise_rows is %d, want 0 (chunk_size) to %d", m.NoiseRows,
		MaxRows)
	c.want(m.NoiseRows == 0 || m.NoiseDim > 0, "noise_rows is %d with noise_dim 0, want neither or both", m.NoiseRows)
	c.want(m.ObservationSteps >= 0 && m.ObservationSteps <= MaxObserved, "observation_steps is %d, want 0 to %d",
		m.ObservationSteps, MaxObserved)
	c.want(m.Form != formSplit || m.NumSteps >= 1 && m.NoiseDim >= 1,
		"num_steps is %d and noise_dim %d with form %q, want both above 0: its steps begin with noise", m.NumSteps,
		m.NoiseDim, m.Form)
	c.want(m.Weights == "" || slices.Contains(DTypes[1:], m.Weights), "weights is %q, want %s or nothing", m.Weights,
		strings.Join(DTypes[1:], " or "))
	c.want(m.Form == "" || m.Form == formSplit, "form is %q, want nothing or %s", m.Form, formSplit)
	if m.Tokenizer != nil {
		if err := m.Tokenizer.Check(len(m.StateNames)); err != nil {
			c.want(false, "tokenizer: %w", err)
		}
	}
	c.want(slices.IsSorted(m.BatchBuckets) && (len(m.BatchBuckets) == 0 || m.BatchBuckets[0] >= 1),
		"batch_buckets is %v, want ascending sizes from 1", m.BatchBuckets)
	return c
}

func (m *Meta) checkFiles() (c checks) {
	for name, tol := range map[string]float64{"chunk_model": m.GoldenTol.ChunkModel,
		"chunk_robot": m.GoldenTol.ChunkRobot} {
		c.want(tol > 0 && !math.IsInf(tol, 0), "golden_tolerance.%s is %v, want above 0", name, tol)
	}
	for _, name := range m.graphs() {
		c.want(m.Files[name] != "", "files does not list %s with its sha256", name)
	}
	c.want(len(m.Files) <= maxBundleFiles, "files lists %d files, want at most %d", len(m.Files), maxBundleFiles)
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		sum := m.Files[name]
		c.want(fs.ValidPath(name) && name != "." && strings.IndexFunc(name, unprintable) < 0,
			"files[%q] is no path within the bundle, want one like golden/b1.safetensors: no /, . or .. at its "+
				"beginning or in it, no backslash", name)
		c.want(name != manifestName, "files lists %s itself, want the other files: no file holds its own sha256",
			manifestName)
		c.want(len(sum) == 64 && strings.Trim(sum, "0123456789abcdef") == "",
			"files[%q] is %q, want a sha256 in lower-case hex", name, sum)
	}
	return c
}

// unprintable reports whether sha256sum would escape the character, or a terminal could interpret it.
func unprintable(r rune) bool { return r == '\\' || !unicode.IsPrint(r) }

// promptLen returns the number of tokens of a task; 0 for a policy that does not read its task.
//
//rt:noalloc
func (m *Meta) promptLen() int {
	if m.Tokenizer == nil {
		return 0
	}
	return m.Tokenizer.MaxLen
}
