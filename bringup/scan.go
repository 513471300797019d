package bringup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/edge-rt/edge-rt/edge/device"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/servo"
	"github.com/edge-rt/edge-rt/servo/robot"
	"github.com/edge-rt/edge-rt/servo/table"
)

// ScanConfig holds the settings of edge-rt scan.
type ScanConfig struct {
	Config
	Last  uint8 // highest id to ping; 0: defaultLastID
	Named bool  // --robot is given: compare with it
}

const (
	defaultLastID = 30 // arms number their motors from 1
	// wait for the answer to one ping: an FTDI adapter delays it by 16 ms if we have no permission to set its timer
	scanWait = 20 * time.Millisecond
	// wait for the answers to a ping to all motors, which an adapter passes on in several transfers
	broadcastWait = 80 * time.Millisecond
	// a Dynamixel delays its answer to a ping to all motors by this time for each lower id
	broadcastTurn = 3 * time.Millisecond
	scanTries     = 2
	strangeSpeeds = 2 // the scan ends after this many baud rates at which bytes come but no servo answers
)

// found is one servo that answered.
type found struct {
	id         servo.ID
	baud       int
	protocol   table.Protocol
	model      *table.Model // nil: unknown
	number     int
	voltage    int // 0.1 V
	fault      servo.Fault
	duplicate  bool // the answers are garbled: probably two servos have the id
	unreadable bool // the servo answers pings, but not the read of its model
	mute       bool // the servo answered only pings, until its status return level was changed
}

// ScanReport is the --json of edge-rt scan.
type ScanReport struct {
	Servos  []ServoFound `json:"servos"`
	Missing []string     `json:"missing"` // motors of --robot that did not answer
	Wrong   []string     `json:"wrong"`   // motors that differ from --robot
	// a robot of several parts: the report of each part; the other keys are for all parts
	Parts []PartScan `json:"parts,omitempty"`
}

// PartScan is the report of one part of a robot.
type PartScan struct {
	Part    string       `json:"part"` // name of the part
	Servos  []ServoFound `json:"servos"`
	Missing []string     `json:"missing"` // motors of the part that did not answer
	Wrong   []string     `json:"wrong"`   // motors of the part that differ from --robot
}

// ServoFound is one servo that answered.
type ServoFound struct {
	Part     string  `json:"part,omitempty"` // part of the robot with this servo
	ID       int     `json:"id"`             // id on the bus
	Model    string  `json:"model"`          // name of the model, or number N of an unknown one
	Protocol string  `json:"protocol"`       // protocol of its frames
	Baud     int     `json:"baud"`           // bit/s, rate of the bus
	SupplyV  float64 `json:"supply_v"`       // V, supply
	State    string  `json:"state"`          // ok, or the fault
}

// plainBauds and packetBauds are the baud rates of servos, the usual ones first. Feetech's sheets
// disagree about the slower codes, so all rates are tried; an AX-12A also has 400,000 and 200,000.
//
// Sources: Feetech memory tables, LeRobot SCAN_BAUDRATES; ROBOTIS e-manual, Baud Rate.
var (
	plainBauds = []int{1_000_000, 500_000, 250_000, 128_000, 115_200, 76_800, 57_600, 38_400, 400_000, 200_000, 19_200,
		14_400, 9_600, 4_800}
	packetBauds = []int{1_000_000, 57_600, 115_200, 2_000_000, 3_000_000, 4_000_000, 4_500_000, 9_600}
)

// Scan pings the ids up to cfg.Last at every baud rate, and lists the servos that answer.
func Scan(ctx context.Context, cfg ScanConfig) error {
	report, err := ScanBus(ctx, cfg)
	if report.Servos == nil {
		return err
	}
	return errors.Join(err, newSession(cfg.Config).report(report))
}

// ScanBus does the same as Scan, but returns the report instead of printing it as JSON. report.Servos is nil if the
// scan itself failed.
func ScanBus(ctx context.Context, cfg ScanConfig) (report ScanReport, err error) {
	if err := cfg.checkBus(); err != nil {
		return report, err
	}
	if cfg.Last == 0 {
		cfg.Last = defaultLastID
	}
	s := newSession(cfg.Config)
	defer s.close()
	var all []found
	if cfg.Named {
		p := cfg.Robot.Protocol()
		all, err = s.scan(ctx, cfg.Last, &p)
	}
	if err == nil && len(all) == 0 {
		all, err = s.scan(ctx, cfg.Last, nil)
	}
	if err != nil {
		return report, err
	}
	report = newScanReport()
	for _, f := range all {
		report.Servos = append(report.Servos, ServoFound{
			ID:       int(f.id),
			Model:    f.name(),
			Protocol: f.protocol.String(),
			Baud:     f.baud,
			SupplyV:  float64(f.voltage) / 10,
			State:    f.state(),
		})
	}
	if cfg.Named && len(all) > 0 {
		report.Missing, report.Wrong = s.compare(all)
	}
	return report, s.advise(cfg, &report, all)
}

func newScanReport() ScanReport {
	return ScanReport{Servos: []ServoFound{}, Missing: []string{}, Wrong: []string{}}
}

func (f found) name() string {
	if f.model != nil {
		return f.model.Name
	}
	if f.unreadable {
		return "unknown"
	}
	return fmt.Sprintf("number %d", f.number)
}

func (f found) state() string {
	switch {
	case f.duplicate:
		return "garbled answers, or answers at two speeds: two servos with this id?"
	case f.unreadable:
		return "answers pings, not every question: a bad cable, or a busy machine; scan again"
	case f.fault != 0:
		return f.fault.Error()
	case f.mute:
		return "ok; it answered to pings only (status return level 0), and answers to all now, until its supply is off"
	}
	return "ok"
}

func (s *session) advise(cfg ScanConfig, r *ScanReport, all []found) error {
	if len(all) == 0 {
		question := "is the servos' supply on, and the cable in the first one?"
		if s.strange > 0 {
			question = "a ping to all ids has an answer: do the servos have higher ids?"
		}
		return exit.Errorf(exit.Absent, "no servo answers on %s, ids 0 to %d at any speed: %s More ids: --last 252",
			s.Bus, cfg.Last, question)
	}
	s.printf("%4s  %-12s %-16s %8s %7s  %s", "ID", "MODEL", "PROTOCOL", "BAUD", "SUPPLY", "STATE")
	for _, f := range r.Servos {
		s.printf("%4d  %-12s %-16s %8d %6.1fV  %s", f.ID, f.Model, f.Protocol, f.Baud, f.SupplyV, f.State)
	}
	switch {
	case garbled(all) > 0:
		s.printf("\nConnect the servos one at a time and give each its own id: edge-rt setup-motors %s", s.flags())
		if cfg.Named {
			return exit.Errorf(exit.Absent, "this is not a whole %s: two servos may have the same id", s.Robot.Name)
		}
		return nil
	case !cfg.Named:
		s.adviseRobot(all)
		return nil
	case len(r.Missing)+len(r.Wrong) == 0:
		s.adviseOthers(all)
		all := fmt.Sprintf("\nAll %d motors of a %s are here.", len(s.Robot.IDs()), s.Robot.Name)
		s.printf("%s", s.next(all, "edge-rt calibrate %s, or edge-rt monitor %s", s.flags(), s.flags()))
		return nil
	}
	if arms, whole := kin(all); whole && !slices.Contains(arms, s.Robot.Flag()) {
		return exit.Errorf(exit.Absent, "these are not the motors of a %s but those of %s: edge-rt scan --bus %s "+
			"--robot %s, and that --robot for every other command",
			s.Robot.Name, strings.Join(arms, " or "), device.Quote(s.Bus), arms[0])
	}
	for _, w := range r.Wrong {
		s.printf("%s", w)
	}
	for _, m := range r.Missing {
		s.printf("missing: %s", m)
	}
	return exit.Errorf(exit.Absent, "this is not a whole %s: check cables in the order of the ids; new motors get "+
		"their id and speed from edge-rt setup-motors %s", s.Robot.Name, s.flags())
}

// adviseOthers names the motors that the robot does not have.
func (s *session) adviseOthers(all []found) {
	var others []string
	for _, f := range all {
		if !slices.Contains(s.Robot.IDs(), f.id) {
			others = append(others, fmt.Sprintf("%d (%s)", f.id, f.name()))
		}
	}
	if len(others) == 0 {
		return
	}
	known := ""
	if arms, whole := kin(all); whole {
		known = "; all together are the motors of " + strings.Join(arms, " or ")
	}
	s.printf("\nA %s has no motor %s%s.", s.Robot.Name, strings.Join(others, ", "), known)
}

// adviseRobot prints which --robot the operator should compare the motors with: the arm that has exactly these motors,
// otherwise the arms with a motor of such a model.
func (s *session) adviseRobot(all []found) {
	switch arms, whole := kin(all); {
	case whole:
		s.printf("\nThey are the motors of %s. Next: edge-rt scan --bus %s --robot %s", strings.Join(arms, " or "),
			device.Quote(s.Bus), arms[0])
	case len(arms) > 0:
		s.printf("\nNext: compare with your arm, edge-rt scan --bus %s --robot NAME, which is one of %s or a FILE.yaml",
			device.Quote(s.Bus), strings.Join(arms, ", "))
	default:
		s.printf("\nNext: compare with your arm, edge-rt scan --bus %s --robot FILE.yaml: no arm that is built in has "+
			"such motors", device.Quote(s.Bus))
	}
}

// kin returns the built-in arms whose motors are exactly those in all, by ids and models; whole is then true. Without
// such an arm it returns the arms with a motor of one of the models.
func kin(all []found) (arms []string, whole bool) {
	var some []string
	for _, name := range robot.Names() {
		r, err := robot.ByName(name)
		if err != nil || len(r.Parts()) > 1 { // a bus has one arm
			continue
		}
		has := func(f found) bool {
			return slices.ContainsFunc(r.ServosOf(f.id), func(m robot.Motor) bool { return m.Model == f.model })
		}
		if len(all) == len(r.IDs()) && !slices.ContainsFunc(all, func(f found) bool { return !has(f) }) {
			arms = append(arms, name)
		}
		if slices.ContainsFunc(all, func(f found) bool {
			return slices.ContainsFunc(r.Motors, func(m robot.Motor) bool { return m.Model == f.model })
		}) {
			some = append(some, name)
		}
	}
	if len(arms) > 0 {
		slices.SortStableFunc(arms, func(a, b string) int { return cmp.Compare(likelihood(a), likelihood(b)) })
		return arms, true
	}
	return some, false
}

// likelihood orders arms with the same motors, the lowest value first. The order is the default arm, followers,
// leaders, and the description that is only a pattern for other descriptions.
func likelihood(arm string) int {
	switch {
	case arm == device.DefaultRobot:
		return 0
	case arm == "generic":
		return 3
	case strings.HasSuffix(arm, "_leader"):
		return 2
	}
	return 1
}

// compare returns descriptions of the robot's motors that are missing, and of the motors with a wrong model or baud
// rate.
func (s *session) compare(all []found) (missing, wrong []string) {
	missing, wrong = []string{}, []string{}
	for _, m := range s.servos() {
		i := slices.IndexFunc(all, func(f found) bool { return f.id == m.ID })
		if i < 0 {
			missing = append(missing, fmt.Sprintf("motor %d (%s)", m.ID, m.Name))
			continue
		}
		f := all[i]
		if f.unreadable {
			wrong = append(wrong, fmt.Sprintf("motor %d (%s): its model could not be read", m.ID, m.Name))
		} else if f.model != m.Model {
			wrong = append(wrong, fmt.Sprintf("motor %d (%s) is a %s, want a %s", m.ID, m.Name, f.name(), m.Model.Name))
		} else if f.baud != s.Robot.Baud {
			wrong = append(wrong, fmt.Sprintf("motor %d (%s) runs at %d baud, want %d", m.ID, m.Name, f.baud,
				s.Robot.Baud))
		}
	}
	return missing, wrong
}

// scan searches for servos at all baud rates, up to the id last. If only is not nil, scan leaves out protocols with
// another frame.
func (s *session) scan(ctx context.Context, last uint8, only *table.Protocol) (all []found, err error) {
	s.strange = 0
	for _, family := range []struct {
		protocol table.Protocol
		bauds    []int
	}{{table.Feetech, plainBauds}, {table.Dynamixel2, packetBauds}} {
		if only != nil && (*only == table.Dynamixel2) != (family.protocol == table.Dynamixel2) {
			continue
		}
		for _, baud := range family.bauds {
			if ctx.Err() != nil {
				return all, exit.Errorf(exit.Failure, "interrupted")
			}
			if err := s.openBus(baud, family.protocol); err != nil {
				if errors.Is(err, servo.ErrPortAbsent) || errors.Is(err, servo.ErrPortBusy) ||
					errors.Is(err, servo.ErrPortDenied) || errors.Is(err, servo.ErrPort) {
					return all, err
				}
				continue // the adapter cannot run at this baud rate
			}
			if !s.anyReply(last) {
				continue
			}
			var expected []servo.ID
			if only != nil {
				expected = s.Robot.IDs()
			}
			here, err := s.sweep(baud, last, scanWait, expected)
			if err == nil && len(here) == 0 {
				here, err = s.sweep(baud, last, broadcastWait, expected) // a servo has answered the ping to all
			}
			if err != nil {
				return all, err
			}
			if garbled(here) > int(last)*3/4 { // no bus has so many pairs of servos with one id
				here = nil
			}
			all = append(all, here...)
			if len(all) > 0 {
				continue
			}
			if s.strange++; s.strange == strangeSpeeds {
				return all, exit.Errorf(exit.Absent, "bytes come from %s at several speeds, and none are a servo's: "+
					"another device (a modem, a GPS, a console) or another program is there; edge-rt ports --unplug "+
					"finds the arm's port", s.Bus)
			}
		}
	}
	return ordered(all), nil
}

// ordered sorts servos by id and marks servos that share an id: one servo answers at one speed only, so two answers
// come from two servos.
func ordered(all []found) []found {
	slices.SortStableFunc(all, func(a, b found) int { return int(a.id) - int(b.id) })
	for i := range max(len(all)-1, 0) {
		if a, b := &all[i], &all[i+1]; a.id == b.id {
			a.duplicate, b.duplicate = true, true
		}
	}
	return all
}

// garbled returns the number of ids with spoilt answers.
func garbled(here []found) (n int) {
	for _, f := range here {
		if f.duplicate {
			n++
		}
	}
	return n
}

// anyReply reports whether a servo answers at the port's baud rate. It tries twice, since a reply
// may be lost.
func (s *session) anyReply(last uint8) bool {
	s.bus.SetRetry(1, scanWait)
	defer s.bus.ResetRetry()
	for range scanTries {
		if s.bus.AnyReply(broadcastWait + time.Duration(last)*broadcastTurn) {
			return true
		}
	}
	return false
}

// sweep pings every id at the current baud rate. It repeats the pings of silent expected ids and of
// garbled replies with full timeouts and retries.
func (s *session) sweep(baud int, last uint8, wait time.Duration, expected []servo.ID) (all []found, err error) {
	for id := servo.ID(0); id <= last; id++ {
		s.bus.SetRetry(scanTries, wait)
		err := s.bus.Ping(id)
		s.bus.ResetRetry()
		if errors.Is(err, servo.ErrGarbled) || errors.Is(err, servo.ErrNoReply) && slices.Contains(expected, id) {
			err = s.bus.Ping(id)
		}
		if errors.Is(err, servo.ErrPortLost) {
			return nil, exit.Errorf(exit.Absent, "%s has gone: plug the adapter in again", s.Bus)
		}
		garbled := errors.Is(err, servo.ErrGarbled)
		if err != nil && !garbled {
			continue
		}
		f := found{
			id:        id,
			baud:      baud,
			protocol:  s.bus.Protocol(),
			duplicate: garbled,
		}
		for try := 0; !f.duplicate && try < scanTries; try++ {
			if f, err = s.identify(f); err == nil {
				break
			}
			f.duplicate = errors.Is(err, servo.ErrGarbled)
		}
		f.unreadable = err != nil && !f.duplicate
		if f.unreadable {
			f = s.identifyMute(f)
		}
		all = append(all, f)
	}
	return all, nil
}

// identifyMute identifies a Dynamixel that answers only pings. The answer to a ping has the model number. Other
// software may have left the Dynamixel in this state: its status return level is in RAM.
func (s *session) identifyMute(f found) found {
	m := table.ByNumber(s.bus.PingModel(f.id), table.Dynamixel2)
	if m == nil || len(servo.AnswerReads(s.bus, []robot.Motor{{ID: f.id, Name: m.Name, Model: m}})) == 0 {
		return f
	}
	if known, err := s.identify(f); err == nil {
		known.unreadable, known.mute = false, true
		return known
	}
	return f
}

// identify reads a servo's model. Feetech and Dynamixel 1.0 have the same frames, so the model
// number decides.
func (s *session) identify(f found) (found, error) {
	number, _, err := s.bus.ReadRegister(f.id, table.Row{Register: table.ModelNumber, Addr: 0, Size: 2})
	if err != nil {
		return f, err
	}
	if f.protocol == table.Dynamixel2 {
		return s.known(f, number, table.Dynamixel2)
	}
	if table.ByNumber(number, table.Dynamixel1) != nil {
		return s.known(f, number, table.Dynamixel1)
	}
	number, _, err = s.bus.ReadRegister(f.id, table.Row{Register: table.ModelNumber, Addr: 3, Size: 2})
	if err != nil {
		return f, err
	}
	return s.known(f, number, table.Feetech)
}

// known adds to f the model, and the readings for which the model has registers.
func (s *session) known(f found, number int, p table.Protocol) (found, error) {
	f.number = number
	f.protocol = p
	f.model = table.ByNumber(number, p)
	if f.model == nil {
		return f, nil
	}
	v, fault, err := s.bus.ReadRegister(f.id, f.model.Row(table.PresentVoltage))
	if err != nil {
		return f, err
	}
	f.voltage, f.fault = v, fault
	// Two servos with one id differ in this register, so that their answers are garbled.
	_, _, err = s.bus.ReadRegister(f.id, f.model.Row(table.PresentPosition))
	return f, err
}
