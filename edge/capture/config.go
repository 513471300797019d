// Package capture takes pictures for observations. In the order of the data: Parse reads a --camera flag (config.go),
// and Open opens its device, file or simulation (open.go). A capture thread keeps the newest frame (capture.go). The
// sender thread decodes the frame where necessary (encode.go), crops, rotates, scales (transform.go) and encodes it. A
// browser may show the sent picture (preview.go). The record's thread decodes and encodes separate copies of the frames
// (tap.go). snapshot.go serves edge-rt cameras.
//
// A camera's own JPEG is sent unchanged: one copy from the driver's buffer into the message,
// without decoding and encoding, unless the configuration sets quality, size, crop or rotation.
package capture

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/camera"
	"github.com/edge-rt/edge-rt/camera/v4l2"
	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/record"
	"github.com/edge-rt/edge-rt/wire"
)

// Limits of a --camera flag.
const (
	maxSide   = 4096
	maxFPS    = 1000
	maxOption = 32
)

// The sources that are not paths.
const (
	Sim     = "sim"     // the simulated arm's world
	Pattern = "pattern" // colour bars

	simOf  = Sim + ":" // followed by the path of the socket of edge-rt sim-bus --scene
	pipeOf = "pipe:"   // followed by the command of a program
)

// defaultMaxAge is the age from which a picture is stale.
const defaultMaxAge = 500 * time.Millisecond

// Config is one --camera.
type Config struct {
	Name string // such as top, which is observation.images.top on the wire
	// sim, sim:SOCKET, pattern, pipe:COMMAND, a device, a picture or a folder of pictures
	Source        string
	Width, Height int                // 0: the policy's size, or close to it
	FPS           int                // 0: 60 for a simulated camera that the policy uses, else 30
	Pixels        camera.PixelFormat // 0: the best available
	Crop          Rect               // part of the camera's picture; zero: the whole picture
	Rotate        int                // 0, 90, 180, 270 degrees clockwise, after Crop
	SendW, SendH  int                // size in the message, after Rotate; 0: the policy's size, else unchanged
	Quality       int                // JPEG quality; 0: the quality of the run
	MaxAge        time.Duration      // older pictures are stale; 0: defaultMaxAge
	Live          *bool              // whether a repeated picture counts as an old one; nil: for devices only
	Controls      []v4l2.Setting
}

// Named returns the cameras of a run under the names that rename gives them, which are the policy's. It refuses
// cameras that a run cannot have together.
func Named(cameras []Config, rename func(string) string) (named []Config, err error) {
	if len(cameras) > record.MaxCameras {
		return nil, exit.Errorf(exit.Usage, "%d cameras, at most %d", len(cameras), record.MaxCameras)
	}
	seen := map[string]bool{}
	users := map[string]string{} // name of the camera that uses a device
	for _, c := range cameras {
		c.Name = rename(c.Name)
		node := device.RealPath(c.Source)
		switch most := wire.MaxNameBytes - len(ImageKey); {
		case c.Name == "" || c.Source == "":
			return nil, exit.Errorf(exit.Usage, "--camera needs NAME=SOURCE, such as top=sim")
		case len(c.Name) > most:
			return nil, exit.Errorf(exit.Usage, "--camera, its name has %d bytes, want at most %d", len(c.Name), most)
		case seen[c.Name]:
			return nil, exit.Errorf(exit.Usage, "--camera %s is given twice", c.Name)
		case strings.HasPrefix(node, "/dev/video") && users[node] != "":
			return nil, exit.Errorf(exit.Usage, "--camera: %s and %s are both %s: give each picture a camera of its "+
				"own (edge-rt cameras lists them)", users[node], c.Name, node)
		}
		users[node] = c.Name
		seen[c.Name] = true
		named = append(named, c)
	}
	if len(cameras) == 0 {
		return nil, nil
	}
	return named, CheckBuild()
}

// Rect is a part of a picture, in pixels.
type Rect struct{ W, H, X, Y int }

// syntax is the form of the value of --camera, for messages.
const syntax = "NAME=SOURCE[:WxH][@FPS][,option=value]..."

var (
	sizeAtEnd = regexp.MustCompile(`:(\d+)x(\d+)$`)
	fpsAtEnd  = regexp.MustCompile(`@(\d+)$`)
	// oddEnd matches a size or a rate in a wrong form, which would otherwise count as a part of the
	// path.
	oddEnd    = regexp.MustCompile(`(?i)(?:@[\d.,]+(?:fps|hz)?|:\d+[x*×]\d*(?:@.*)?)$`)
	plainSize = regexp.MustCompile(`^(\d+)x(\d+)$`)
	cropSize  = regexp.MustCompile(`^(\d+)x(\d+)\+(\d+)\+(\d+)$`)
	word      = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)
)

// Parse reads the value of one --camera flag.
func Parse(text string) (c Config, err error) {
	bad := func(format string, args ...any) (Config, error) {
		return Config{}, exit.Errorf(exit.Usage, "--camera %q: %s", text, fmt.Sprintf(format, args...))
	}
	name, source, ok := strings.Cut(text, "=")
	cutOptions, piped := cutFirst, strings.HasPrefix(source, pipeOf)
	if piped {
		cutOptions = cutLast
	}
	source, options := cutOptions(source)
	if !ok || name == "" || strings.Contains(name, ",") || source == "" {
		return bad("want %s, such as top=sim, front=/dev/video0:640x480@30 or wrist=/dev/video2,rotate=180", syntax)
	}
	if err := record.CheckCamera(name); err != nil {
		return bad("%v", err)
	}
	c.Name = name
	if m := fpsAtEnd.FindStringSubmatch(source); m != nil {
		source = strings.TrimSuffix(source, m[0])
		if c.FPS, err = strconv.Atoi(m[1]); err != nil || c.FPS < 1 || c.FPS > maxFPS {
			return bad("%s frames a second, want 1 to %d", m[1], maxFPS)
		}
	}
	if m := sizeAtEnd.FindStringSubmatch(source); m != nil {
		source = strings.TrimSuffix(source, m[0])
		if c.Width, c.Height, ok = sides(numbers(m)); !ok {
			return bad("size %s, want sides of 1 to %d", m[0][1:], maxSide)
		}
	}
	if odd := oddEnd.FindString(source); odd != "" && !piped {
		return bad("%s at its end: want whole numbers as in :640x480@30", odd)
	}
	if source == "" || !strings.Contains(source, "/") && source != Sim && source != Pattern && !piped {
		return bad("source %q, want sim, sim:SOCKET of an edge-rt sim-bus --scene, pattern, pipe:'COMMAND', a device "+
			"such as /dev/video0, or the path of a picture or folder, such as ./run1", source)
	}
	if c.Source = expandSource(source); c.Source == pipeOf {
		return bad("pipe: has no command; give one, such as pipe:'rpicam-vid -t 0 --codec mjpeg -o -'")
	}
	if options == "" {
		return c, nil
	}
	list := strings.Split(options, ",")
	if len(list) > maxOption {
		return bad("%d options, at most %d", len(list), maxOption)
	}
	for _, o := range list {
		key, value, ok := strings.Cut(o, "=")
		if !ok || value == "" {
			return bad("option %q, want option=value", o)
		}
		if why := c.setOption(key, value); why != "" {
			return bad("%s=%s: %s", key, value, why)
		}
	}
	return c, nil
}

// optionAtEnd matches an option of edge-rt at the end of a command. The command may contain commas,
// too.
var optionAtEnd = regexp.MustCompile(`,(?:format|rotate|crop|send|quality|live|max-age)=[^\s,'"]*$`)

// cutFirst cuts a source's options off.
func cutFirst(text string) (source, options string) {
	source, options, _ = strings.Cut(text, ",")
	return source, options
}

// cutLast cuts the options after a command off.
func cutLast(text string) (source, options string) {
	for at := optionAtEnd.FindStringIndex(text); at != nil; at = optionAtEnd.FindStringIndex(text) {
		options = strings.TrimSuffix(text[at[0]+1:]+","+options, ",")
		text = text[:at[0]]
	}
	return text, options
}

// expandSource expands the path of a source, also a socket's path after sim:. It removes quotes
// around a command: a shell removes them itself, but the value in a file may have them.
func expandSource(source string) string {
	if command, ok := strings.CutPrefix(source, pipeOf); ok {
		for _, quote := range []string{`'`, `"`} {
			if in, ok := strings.CutPrefix(command, quote); ok && strings.Index(in, quote) == len(in)-1 {
				command = in[:len(in)-1]
			}
		}
		return pipeOf + strings.TrimSpace(command)
	}
	if path, ok := strings.CutPrefix(source, simOf); ok {
		return simOf + userfile.Expand(path)
	}
	return userfile.Expand(source)
}

// Simulated reports whether the pictures show a simulated world.
func (c *Config) Simulated() bool { return c.Source == Sim || strings.HasPrefix(c.Source, simOf) }

// synthetic reports whether a program draws the pictures.
func (c *Config) synthetic() bool {
	return c.Source == Pattern || c.Simulated()
}

// program returns the command after pipe:.
func (c *Config) program() (command string, ok bool) { return strings.CutPrefix(c.Source, pipeOf) }

// ffmpegNames has the pixel formats with another name in ffmpeg.
var ffmpegNames = map[string]string{"rgb24": "rgb", "yuyv422": "yuyv", "gray": "grey"}

func (c *Config) setOption(key, value string) (reason string) {
	var err error
	switch key {
	case "format":
		if c.Pixels, err = camera.ParsePixelFormat(cmp.Or(ffmpegNames[value], value)); err != nil {
			return "want mjpeg, yuyv, nv12, grey or rgb"
		}
		if c.Width%2 != 0 && (c.Pixels == camera.YUYV || c.Pixels == camera.NV12) {
			return fmt.Sprintf("its pictures have an even width, got %d", c.Width)
		}
	case "rotate":
		if c.Rotate, err = strconv.Atoi(value); err != nil || c.Rotate%90 != 0 || c.Rotate < 0 || c.Rotate > 270 {
			return "want 0, 90, 180 or 270, clockwise"
		}
	case "crop":
		n := numbers(cropSize.FindStringSubmatch(value))
		w, h, ok := sides(n)
		if !ok || max(n[2], n[3]) >= maxSide {
			return "want WxH+X+Y, such as 480x480+80+0"
		}
		c.Crop = Rect{
			W: w,
			H: h,
			X: n[2],
			Y: n[3],
		}
	case "send":
		var ok bool
		if c.SendW, c.SendH, ok = sides(numbers(plainSize.FindStringSubmatch(value))); !ok {
			return fmt.Sprintf("want WxH, sides of 1 to %d", maxSide)
		}
	case "quality":
		if c.Quality, err = strconv.Atoi(value); err != nil || c.Quality < 1 || c.Quality > 100 {
			return "want 1 to 100"
		}
	case "live":
		if value != "yes" && value != "no" {
			return "want yes (a repeated picture is an old one) or no"
		}
		c.Live = new(value == "yes")
	case "max-age":
		if c.MaxAge, err = time.ParseDuration(value); err != nil || c.MaxAge <= 0 {
			return "want a duration, such as 200ms"
		}
	default:
		// Any other word may name a control of the device, which only its driver knows.
		if c.synthetic() || !word.MatchString(key) {
			return "no such option: there are format, rotate, crop, send, quality, max-age and live, and for a " +
				"device its controls, which edge-rt cameras lists"
		}
		c.Controls = append(c.Controls, v4l2.Setting{Name: key, Value: value})
	}
	return ""
}

// numbers returns the submatches of a pattern, which consist of digits, as numbers. A number that is too large for an
// int becomes the largest int.
func numbers(match []string) (n []int) {
	for _, text := range match[min(1, len(match)):] {
		v, _ := strconv.Atoi(text)
		n = append(n, v)
	}
	return n
}

// sides returns the first two of the numbers, and whether they may be the sides of a picture.
func sides(n []int) (w, h int, ok bool) {
	if len(n) < 2 {
		return 0, 0, false
	}
	return n[0], n[1], min(n[0], n[1]) >= 1 && max(n[0], n[1]) <= maxSide
}
