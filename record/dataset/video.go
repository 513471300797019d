package dataset

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/internal/child"
)

// codec configures the compression of videos.
type codec struct {
	encoder string // name of ffmpeg's encoder
	preset  any    // for info.json: LeRobot's editing tools encode the video again with this preset
	options []string
	crf     int
	least   int // shortest permitted side of a picture; 0: any length
	fastest int // largest number of frames a second; 0: any number
}

// codecs are the codecs that LeRobot's tools read, cut and merge, by their names in ffprobe's output and in info.json.
var codecs = map[string]codec{
	"h264": {
		encoder: "libx264",
		preset:  "veryfast",
		options: []string{"-bf", "0"},
		crf:     23,
	},
	"av1": {
		encoder: "libsvtav1",
		preset:  12,
		crf:     30,
		least:   64,
		fastest: 240,
	},
}

// takes returns an error for pictures that the encoder would refuse later, after the run was read.
func (c *codec) takes(r *run, name string) error {
	if len(r.cams) > 0 && c.fastest > 0 && r.fps > c.fastest {
		return refuse("%s has %d frames per second, and the encoder of %s takes at most %d: take --vcodec h264, or a "+
			"lower --fps", r.name, r.fps, name, c.fastest)
	}
	for _, camera := range r.cams {
		if s := r.sizes[camera]; min(s.w, s.h) < c.least {
			return refuse(
				"%s: pictures of camera %s are %dx%d, and the encoder of %s wants sides of at least %d: take "+
					"--vcodec h264", r.name, camera, s.w, s.h, name, c.least)
		}
	}
	return nil
}

// Bounds of a child process.
const (
	tailBytes      = 2000            // number of bytes of its stderr that an error contains
	probeTime      = time.Minute     // time limit for ffmpeg -encoders; probing a video may take ten times as long
	encodeTime     = 2 * time.Minute // time limit for encoding a video, plus encodePerFrame for each picture
	encodePerFrame = time.Second     // additional time limit for each picture of a video
	maxProbe       = 1 << 30         // bytes of ffprobe's output
)

const (
	ffmpeg  = "ffmpeg"
	ffprobe = "ffprobe"
	install = "on Debian or Ubuntu: apt-get install ffmpeg"
)

// checkFFmpeg returns an InputError if ffmpeg or ffprobe is missing, or if ffmpeg lacks the codec's
// encoder.
func checkFFmpeg(ctx context.Context, name string) error {
	for _, program := range []string{ffmpeg, ffprobe} {
		if _, err := exec.LookPath(program); err != nil {
			return refuse("videos need the program %s, which is not here: %s", program, install)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var out bytes.Buffer
	var stderr tail
	cmd := exec.CommandContext(ctx, ffmpeg, "-hide_banner", "-encoders")
	cmd.Stdout, cmd.Stderr = &out, &stderr
	cmd.WaitDelay = time.Second
	err := child.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("%s -encoders: %w%s", ffmpeg, err, stderr.words())
	}
	for line := range strings.Lines(out.String()) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == codecs[name].encoder {
			return nil
		}
	}
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(codecs)), func(c string) bool { return c == name })
	return refuse("the ffmpeg here has no encoder %s, which --vcodec %s needs: Debian's and Ubuntu's has it (%s), or "+
		"take --vcodec %s", codecs[name].encoder, name, install, strings.Join(others, " or "))
}

// tail keeps the end of a process's output.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	*t = slices.Delete(*t, 0, max(0, len(*t)-tailBytes))
	return len(p), nil
}

// words formats the output for the end of an error. It returns "" if there is no output.
func (t *tail) words() string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(*t), "?")), " ")
	if text == "" {
		return ""
	}
	return ", its output: " + text
}

// encoder is an ffmpeg process that makes one video from JPEGs.
type encoder struct {
	path   string
	fps    int
	frames int // number of frames that the video must get
	given  int
	cancel context.CancelFunc
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr tail
}

// newEncoder starts ffmpeg for a video of the given number of frames.
func newEncoder(ctx context.Context, name string, crf, fps, frames int, path string) (*encoder, error) {
	c := codecs[name]
	e := &encoder{path: path, fps: fps, frames: frames}
	ctx, e.cancel = context.WithTimeout(ctx, encodeTime+time.Duration(frames)*encodePerFrame)
	// -noautorotate, because nothing else turns pictures by the orientation in their Exif
	args := []string{"-hide_banner", "-loglevel", "error", "-nostdin", "-y",
		"-f", "image2pipe", "-framerate", strconv.Itoa(fps), "-c:v", "mjpeg", "-noautorotate", "-i", "pipe:0",
		"-an", "-map_metadata", "-1",
		"-c:v", c.encoder, "-preset", fmt.Sprint(c.preset), "-crf", strconv.Itoa(crf), "-g", "2", "-pix_fmt", "yuv420p"}
	// The prefix file: is needed because a folder's name may look like a protocol.
	args = append(append(args, c.options...), "-movflags", "+faststart", "-f", "mp4", "file:"+path)
	e.cmd = exec.CommandContext(ctx, ffmpeg, args...)
	e.cmd.Stderr, e.cmd.WaitDelay = &e.stderr, time.Second
	var err error
	if e.in, err = e.cmd.StdinPipe(); err == nil {
		err = child.Start(e.cmd)
	}
	if err != nil {
		e.cancel()
		return nil, fmt.Errorf("%s: %w", ffmpeg, err)
	}
	return e, nil
}

// write sends one JPEG.
func (e *encoder) write(picture []byte) error {
	if _, err := e.in.Write(picture); err != nil {
		return e.fail(err)
	}
	e.given++
	return nil
}

func (e *encoder) fail(err error) error {
	e.in.Close()
	err = cmp.Or(e.cmd.Wait(), err)
	e.cancel()
	return fmt.Errorf("%s, at picture %d of %s: %w%s", ffmpeg, e.given, e.path, err, e.stderr.words())
}

// finish waits for the end of the video, and checks that the video has every frame at the right
// time.
func (e *encoder) finish(ctx context.Context) error {
	defer e.cancel()
	if err := e.in.Close(); err != nil {
		return e.fail(err)
	}
	if err := e.cmd.Wait(); err != nil {
		return fmt.Errorf("%s, %s: %w%s", ffmpeg, e.path, err, e.stderr.words())
	}
	v, err := probe(ctx, e.path)
	if why := e.stderr.words(); err != nil && why != "" { // on a full disk ffmpeg exits with status 0
		return fmt.Errorf("%s made no whole %s%s", ffmpeg, e.path, why)
	}
	if err != nil {
		return err
	}
	if len(v.Times) != e.frames || v.FPS != float64(e.fps) || v.Uneven != 0 {
		return fmt.Errorf("%s made %d frames of %d pictures, at %v of %d per second, %d of them off their time: "+
			"is a picture damaged?%s", ffmpeg, len(v.Times), e.frames, v.FPS, e.fps, v.Uneven, e.stderr.words())
	}
	return nil
}

// stop ends ffmpeg and removes the unfinished video.
func (e *encoder) stop() {
	e.cancel()
	e.in.Close()
	e.cmd.Wait()
	os.Remove(e.path)
}

// video is ffprobe's description of a video.
type video struct {
	videoStream
	FPS    float64   // average rate, by which LeRobot selects frames
	Times  []float64 // time of each frame in s
	Uneven int       // frames whose time is off by more than a tenth of a period
}

// videoStream is the part of the description that ffprobe gives as it is.
type videoStream struct {
	Codec       string `json:"codec_name"`
	PixelFormat string `json:"pix_fmt"`
	W           int    `json:"width"`
	H           int    `json:"height"`
	Rate        string `json:"avg_frame_rate"`
	Base        string `json:"time_base"`
}

// probe reads a video's stream and the time of each of its frames.
func probe(ctx context.Context, path string) (v video, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*probeTime)
	defer cancel()
	var stderr tail
	cmd := exec.CommandContext(ctx, ffprobe, "-v", "error", "-select_streams", "v:0", "-of", "json=compact=1",
		"-show_entries", "stream=codec_name,width,height,pix_fmt,avg_frame_rate,time_base:packet=pts", "file:"+path)
	cmd.Stderr, cmd.WaitDelay = &stderr, time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = child.Start(cmd)
	}
	if err != nil {
		return v, fmt.Errorf("%s: %w", ffprobe, err)
	}
	parseErr := v.parse(out)
	cancelled := ctx.Err()
	if parseErr != nil {
		cancel()
	}
	if err := cmd.Wait(); parseErr == nil && err != nil {
		return v, fmt.Errorf("%s %s: %w%s", ffprobe, path, cmp.Or(cancelled, err), stderr.words())
	}
	if parseErr != nil {
		return v, fmt.Errorf("%s: %w%s", path, parseErr, stderr.words())
	}
	return v, nil
}

// parse reads ffprobe's JSON.
func (v *video) parse(out io.Reader) error {
	var all struct {
		Packets []struct {
			PTS *int64 `json:"pts"`
		} `json:"packets"`
		Streams []videoStream `json:"streams"`
	}
	if err := json.NewDecoder(io.LimitReader(out, maxProbe)).Decode(&all); err != nil {
		return err
	}
	if len(all.Streams) == 0 || all.Streams[0].Codec == "" {
		return errors.New("no video stream")
	}
	v.videoStream = all.Streams[0]
	v.FPS = ratio(v.Rate)
	base := ratio(v.Base)
	for _, p := range all.Packets {
		if p.PTS == nil {
			return errors.New("a frame without a time")
		}
		v.Times = append(v.Times, float64(*p.PTS)*base)
	}
	slices.Sort(v.Times)
	for i, t := range v.Times {
		if off := t*v.FPS - float64(i); off > 0.1 || off < -0.1 {
			v.Uneven++
		}
	}
	return nil
}

// ratio parses a ratio such as "30/1"; it returns 0 for other text.
func ratio(text string) float64 {
	over, under, _ := strings.Cut(text, "/")
	a, err := strconv.ParseFloat(over, 64)
	b, err2 := strconv.ParseFloat(cmp.Or(under, "1"), 64)
	if err != nil || err2 != nil || b == 0 {
		return 0
	}
	return a / b
}
