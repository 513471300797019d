package servo

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// MotorCalibration is one motor's entry in a calibration file. Its range is in raw positions as the
// servo reports them, with the homing offset that the servo itself applies.
type MotorCalibration struct {
	ID           int
	DriveMode    int // not 0: the unit decreases with the raw position
	HomingOffset int
	RangeMin     int
	RangeMax     int
}

// Calibration maps motor names to their calibration, as LeRobot's file does.
type Calibration map[string]MotorCalibration

// LoadCalibration reads a LeRobot calibration file. It is stricter than LeRobot: a motor has
// exactly the five integer keys. Every failure wraps ErrCalibration.
func LoadCalibration(path string) (Calibration, error) {
	if err := userfile.CheckPath(path); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCalibration, err)
	}
	data, err := userfile.Read(path, maxCalibration)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %w; calibrate the arm or name its file", ErrCalibration, err)
		}
		return nil, fmt.Errorf("%w: %w", ErrCalibration, err)
	}
	c, err := parseCalibration(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w; %s", ErrCalibration, path, err, otherFile)
	}
	return c, nil
}

// otherFile is the advice when the calibration cannot be this arm's.
const otherFile = "give this arm's own port, or take the file this arm was calibrated with, or calibrate it again " +
	"(edge-rt calibrate)"

// maxCalibration is far above the size of any arm's file.
const maxCalibration = 1 << 20

// motorJSON has pointers, so that a missing key differs from a zero.
type motorJSON struct {
	ID           *int `json:"id"`
	DriveMode    *int `json:"drive_mode"`
	HomingOffset *int `json:"homing_offset"`
	RangeMin     *int `json:"range_min"`
	RangeMax     *int `json:"range_max"`
}

func parseCalibration(data []byte) (Calibration, error) {
	data, err := userfile.Text(data)
	if err != nil {
		return nil, err
	}
	if isListFormat(data) {
		return nil, errors.New("this is LeRobot's old format of lists (motor_names, start_pos, end_pos), from before " +
			"June 2025; its numbers mean something else and cannot be converted")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	var file map[string]json.RawMessage
	if err := dec.Decode(&file); err != nil {
		return nil, fmt.Errorf("want a JSON object of motors: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("want one JSON object, got more after it")
	}
	if len(file) == 0 {
		return nil, errors.New("want a JSON object of motors, got an empty one")
	}
	if name := twice(data); name != "" {
		return nil, fmt.Errorf("%s occurs twice; remove one of them", name)
	}
	c := Calibration{}
	for name, text := range file {
		if c[name], err = parseMotor(text); err != nil {
			return nil, fmt.Errorf("motor %s: %w", name, err)
		}
	}
	return c, nil
}

func parseMotor(text []byte) (c MotorCalibration, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	var m *motorJSON
	err = dec.Decode(&m)
	if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is && wrong.Type.Kind() == reflect.Int {
		return c, fmt.Errorf("got %s for %s, want a whole number", wrong.Value, wrong.Field)
	}
	if err != nil {
		return c, err
	}
	return m.calibration()
}

// twice returns the first key that one object of the file has twice: a motor's name, or a key of a motor. It returns ""
// if there is no such key. The data are valid JSON, objects in an object.
func twice(data []byte) string {
	dec := json.NewDecoder(bytes.NewReader(data))
	var seen []map[string]bool // keys of each open object
	isKey := false
	for {
		token, err := dec.Token()
		switch {
		case err != nil:
			return ""
		case token == json.Delim('{'):
			seen, isKey = append(seen, map[string]bool{}), true
		case token == json.Delim('}'):
			seen, isKey = seen[:len(seen)-1], true
		case isKey:
			key := fmt.Sprint(token)
			if len(seen) == 2 { // the decoder takes Range_Min for range_min
				key = strings.ToLower(key)
			}
			if seen[len(seen)-1][key] {
				return key
			}
			seen[len(seen)-1][key], isKey = true, false
		default:
			isKey = true
		}
	}
}

// isListFormat recognizes a file of LeRobot before June 2025: one list for each kind of value.
func isListFormat(data []byte) bool {
	var lists map[string]json.RawMessage
	if json.Unmarshal(data, &lists) != nil {
		return false
	}
	for _, key := range []string{"motor_names", "calib_mode", "start_pos", "end_pos", "homing_offset", "drive_mode"} {
		if bytes.HasPrefix(lists[key], []byte("[")) {
			return true
		}
	}
	return false
}

func (m *motorJSON) calibration() (MotorCalibration, error) {
	if m == nil {
		return MotorCalibration{}, errors.New("got null, want an object")
	}
	var missing []string
	take := func(key string, v *int) int {
		if v == nil {
			missing = append(missing, key)
			return 0
		}
		return *v
	}
	c := MotorCalibration{
		ID:           take("id", m.ID),
		DriveMode:    take("drive_mode", m.DriveMode),
		HomingOffset: take("homing_offset", m.HomingOffset),
		RangeMin:     take("range_min", m.RangeMin),
		RangeMax:     take("range_max", m.RangeMax),
	}
	if len(missing) > 0 {
		return c, fmt.Errorf("no %s", strings.Join(missing, ", "))
	}
	return c, c.check()
}

// check enforces the rules that hold for every model of motor. The rules that depend on the model
// are in fits.
func (m MotorCalibration) check() error {
	if m.RangeMin == m.RangeMax {
		return fmt.Errorf("range_min and range_max are both %d: the joint was not moved while its range was "+
			"recorded", m.RangeMin)
	}
	if m.RangeMin < -maxRaw || m.RangeMax > maxRaw {
		return fmt.Errorf("got range %d to %d, want at most %d either way: no encoder counts that far", m.RangeMin,
			m.RangeMax, maxRaw)
	}
	if m.RangeMin > m.RangeMax {
		return fmt.Errorf("got range %d to %d, want range_min < range_max", m.RangeMin, m.RangeMax)
	}
	return nil
}

// maxRaw is larger than the value of any register, and a float32 represents it exactly.
const maxRaw = 1 << 20

// fits enforces the rules that depend on the motor's model.
func (m MotorCalibration) fits(motor robot.Motor) error {
	mode, _ := motor.Setting(table.OperatingMode)
	if top := motor.Model.MaxRaw(); !CountsTurns(motor.Model, mode) && (m.RangeMin < 0 || m.RangeMax > top) {
		return fmt.Errorf("got range %d to %d, want 0 <= range_min < range_max <= %d", m.RangeMin, m.RangeMax, top)
	}
	if row := motor.Model.Row(table.DriveMode); row.Size != 0 {
		if err := row.Check(m.DriveMode); err != nil {
			return fmt.Errorf("drive_mode: %w", err)
		}
	} else if m.DriveMode&^1 != 0 {
		return fmt.Errorf("drive_mode: got %d, want 0 or 1", m.DriveMode)
	}
	row := motor.Model.Row(table.HomingOffset)
	if row.Size == 0 && m.HomingOffset == 0 {
		return nil
	}
	if row.Size == 0 {
		return fmt.Errorf("homing_offset: got %d, but a %s has no such register", m.HomingOffset, motor.Model.Name)
	}
	if err := row.Check(m.HomingOffset); err != nil {
		return fmt.Errorf("homing_offset: %w", err)
	}
	return m.obeyed(motor.Model, mode)
}

// offsetMost is the largest homing offset that a Dynamixel adds in Operating_Mode 3.
//
// Source: ROBOTIS e-manual, Homing Offset(20).
const offsetMost = 1024

// obeyed refuses a homing offset that the servo ignores in this Operating_Mode, because its positions would be shifted
// against those of the mode in which it was calibrated.
func (m MotorCalibration) obeyed(model *table.Model, mode int) error {
	offset := max(m.HomingOffset, -m.HomingOffset)
	if model.Protocol == table.Dynamixel2 && mode == table.ModePosition && offset > offsetMost {
		return fmt.Errorf("homing_offset: got %d, and in Operating_Mode %d a Dynamixel ignores an offset beyond %d: "+
			"put Operating_Mode: %d under settings in the robot's description", m.HomingOffset, mode, offsetMost,
			table.ModeExtendedPosition)
	}
	return nil
}

// narrowest is the least range of a joint, in degrees. A smaller range is only noise of the
// encoder, and goals in it would have no meaning.
const narrowest = 2.0

// wide refuses a range during whose recording the joint was not moved.
func (m MotorCalibration) wide(motor robot.Motor) error {
	least := narrowest
	if motor.MinTravel > 0 {
		least = min(least, motor.MinTravel)
	}
	counts := m.RangeMax - m.RangeMin
	if degrees := motor.Degrees(counts); degrees < least {
		return fmt.Errorf("got range %d to %d, which is %.1f degrees (%d counts): the joint was not moved while its "+
			"range was recorded", m.RangeMin, m.RangeMax, degrees, counts)
	}
	return nil
}

// Check fails with ErrCalibration unless the calibration has exactly the robot's motors, with their
// ids.
func (c Calibration) Check(r robot.Robot) error {
	if err := c.check(r); err != nil {
		return fmt.Errorf("%w: %w; %s", ErrCalibration, err, otherFile)
	}
	return nil
}

func (c Calibration) check(r robot.Robot) error {
	for _, m := range r.Motors {
		entry, ok := c[m.Name]
		if !ok {
			return fmt.Errorf("no motor %s, which %s has; it has %s", m.Name, r.Name, strings.Join(c.names(), ", "))
		}
		if entry.ID != int(m.ID) {
			return fmt.Errorf("motor %s: got id %d, want %d as on a %s", m.Name, entry.ID, m.ID, r.Name)
		}
		if err := cmp.Or(entry.check(), entry.fits(m), entry.wide(m)); err != nil {
			return fmt.Errorf("motor %s: %w", m.Name, err)
		}
	}
	for _, name := range c.names() {
		if !slices.ContainsFunc(r.Motors, func(m robot.Motor) bool { return m.Name == name }) {
			return fmt.Errorf("unknown motor %s: %s has no such motor", name, r.Name)
		}
	}
	return nil
}

// names returns the motors' names in the order of their ids, as LeRobot writes them.
func (c Calibration) names() []string {
	return slices.SortedFunc(maps.Keys(c), func(a, b string) int {
		return cmp.Or(cmp.Compare(c[a].ID, c[b].ID), cmp.Compare(a, b))
	})
}

// Save writes the file as LeRobot does: motors by id, four spaces of indent, no newline at the end.
// A reader gets the old file or the new one, never a part.
func (c Calibration) Save(path string) error {
	err := userfile.CheckPath(path)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = userfile.Replace(path, c.json())
	}
	if err != nil {
		return fmt.Errorf("servo: save calibration: %w", err)
	}
	return nil
}

// json returns the calibration as LeRobot writes it.
func (c Calibration) json() []byte {
	dst := []byte{'{'}
	for i, name := range c.names() {
		if i > 0 {
			dst = append(dst, ',')
		}
		m := c[name]
		key, _ := json.Marshal(name) // a string has no error
		dst = fmt.Appendf(dst, "\n    %s: {\n        \"id\": %d,\n        \"drive_mode\": %d,\n"+
			"        \"homing_offset\": %d,\n        \"range_min\": %d,\n        \"range_max\": %d\n    }", key, m.ID,
			m.DriveMode, m.HomingOffset, m.RangeMin, m.RangeMax)
	}
	return append(dst, "\n}"...)
}

// Text returns the calibration as one line of JSON, the form in a recording's metadata.
func (c Calibration) Text() string {
	var line bytes.Buffer
	if err := json.Compact(&line, c.json()); err != nil {
		return "" // a reader then finds no calibration
	}
	return line.String()
}

// Join adds the motors of one part of a robot, with the part's prefix before their names.
func (c Calibration) Join(prefix string, part Calibration) {
	for name, m := range part {
		c[prefix+name] = m
	}
}

// ParseCalibration parses the text of a calibration. Every failure wraps ErrCalibration.
func ParseCalibration(text string) (Calibration, error) {
	if len(text) > maxCalibration {
		return nil, fmt.Errorf("%w: a text of %d bytes, want at most %d", ErrCalibration, len(text), maxCalibration)
	}
	c, err := parseCalibration([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCalibration, err)
	}
	return c, nil
}

// CalibrationPath returns the path of LeRobot's calibration file for the robot with that id, in one
// of calibrationRoots. An empty id becomes None, as in LeRobot. Older releases of LeRobot used
// other names for some robots; their file is used when no newer one exists.
func CalibrationPath(r robot.Robot, id string) string {
	if id == "" {
		id = "None"
	}
	folders := calibrationFolders(r)
	for _, folder := range folders {
		path := folder + "/" + id + ".json"
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return folders[0] + "/" + id + ".json"
}

// calibrationRoots returns the folders that may contain LeRobot's calibrations. New calibrations are written into the
// first folder. If a variable is set but empty, the first folder is the one without that variable. LeRobot takes such a
// variable for the working directory, probably by mistake. If this gives another folder, that folder is the second.
func calibrationRoots() []string {
	roots := []string{calibrationRoot(func(name string) (string, bool) {
		value := os.Getenv(name)
		return value, value != ""
	})}
	if exact := calibrationRoot(os.LookupEnv); exact != roots[0] {
		roots = append(roots, exact)
	}
	return roots
}

// calibrationRoot returns $HF_LEROBOT_CALIBRATION, else $HF_LEROBOT_HOME/calibration, else
// $HF_HOME/lerobot/calibration, where HF_HOME is by default $XDG_CACHE_HOME/huggingface, else
// ~/.cache/huggingface. A ~ is expanded in all four variables, and $NAME in HF_HOME and XDG_CACHE_HOME.
//
// Source: LeRobot utils/constants.py; huggingface_hub constants.py.
func calibrationRoot(lookup func(name string) (value string, ok bool)) string {
	or := func(name, otherwise string) string {
		if value, ok := lookup(name); ok {
			return value
		}
		return otherwise
	}
	hub := userfile.Expand(or("HF_HOME", pythonJoin(or("XDG_CACHE_HOME", "~/.cache"), "huggingface")))
	home := expandPath(or("HF_LEROBOT_HOME", pythonJoin(hub, "lerobot")))
	return expandPath(or("HF_LEROBOT_CALIBRATION", pythonJoin(home, "calibration")))
}

// expandPath is Python's pathlib.Path(path).expanduser(), which first drops every ./ at the
// beginning.
func expandPath(path string) string {
	for strings.HasPrefix(path, "./") {
		path = strings.TrimLeft(path[1:], "/")
	}
	if path = userfile.ExpandHome(path); path == "" {
		return "."
	}
	return path
}

// pythonJoin is Python's os.path.join: after an empty first path it returns the second one alone.
func pythonJoin(dir, name string) string {
	if dir == "" || strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}

// calibrationFolders returns the folders that may contain calibrations of this kind of robot; new
// ones are written into the first. It joins with slashes: filepath.Join would cut link/.. out of
// the paths in the variables.
func calibrationFolders(r robot.Robot) (folders []string) {
	for _, root := range calibrationRoots() {
		for _, folder := range r.Calibration {
			folders = append(folders, strings.Join([]string{root, r.Role(), folder}, "/"))
		}
	}
	return folders
}

// maxCalibrationFiles limits the files of one kind of robot that are compared with its motors.
const maxCalibrationFiles = 256

// CalibrationFiles returns the calibration files of all arms of this kind in LeRobot's folders,
// sorted by name. Of two files for one id it returns the file that CalibrationPath returns.
func CalibrationFiles(r robot.Robot) ([]string, error) {
	var files []string
	seen := map[string]bool{}
	for _, folder := range calibrationFolders(r) {
		entries, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w: %w", ErrCalibration, err)
		}
		for _, entry := range entries {
			id, isJSON := strings.CutSuffix(entry.Name(), ".json")
			if !isJSON || id == "" || seen[id] {
				continue
			}
			if len(files) == maxCalibrationFiles {
				return nil, fmt.Errorf("%w: more than %d calibration files of %s in %s", ErrCalibration,
					maxCalibrationFiles, r.Name, folder)
			}
			seen[id] = true
			files = append(files, folder+"/"+entry.Name())
		}
	}
	slices.SortFunc(files, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	return files, nil
}
