package table

import (
	"bytes"
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

func TestModelsAreKnown(t *testing.T) {
	want := map[string]int{
		"sts3215": 777, "sts3250": 2825, "sm8512bl": 11272,
		"xl330-m077": 1190, "xl330-m288": 1200, "xl430-w250": 1060, "xm430-w350": 1020, "xm540-w270": 1120,
		"xc430-w150": 1070, "xh540-w150": 1110, "xc330-t288": 1220, "xc330-t181": 1210, "ax-12a": 12,
	}
	for name, number := range want {
		m, err := ByName(name)
		if err != nil || m.Number != number {
			t.Errorf("ByName(%s) = %v, %v, want number %d", name, m, err, number)
			continue
		}
		if ByNumber(number, m.Protocol) != m {
			t.Errorf("ByNumber(%d) is not %s", number, name)
		}
		for _, r := range []Register{ModelNumber, MotorID, BaudRate, ReturnDelayTime, TorqueEnable, GoalPosition,
			PresentPosition, PresentVoltage, PresentTemperature, PresentLoad} {
			if r == PresentLoad && m.CurrentMA != 0 && m.Protocol == Dynamixel2 {
				continue // these models measure their current instead
			}
			if !m.Has(r) {
				t.Errorf("%s has no %s", name, r)
			}
		}
		end := -1
		for r, row := range m.rows {
			if row.Register != r || row.Addr < 0 || row.Sign > 0 && int(row.Sign) >= 8*row.Size {
				t.Errorf("%s: row %+v", name, row)
			}
			end = max(end, row.Addr+row.Size)
		}
		if end < 40 {
			t.Errorf("%s ends at %d", name, end)
		}
	}
	rttest.Fails(t, rttest.Err(ByName("sts9999")))
	for _, m := range models {
		for r := range m.rows {
			if got, ok := RegisterByName(strings.ToLower(string(r))); !ok || got != r {
				t.Errorf("RegisterByName(%s) = %v, %v", r, got, ok)
			}
		}
	}
	if _, ok := RegisterByName("Nothing"); ok {
		t.Error("a register Nothing is known")
	}
}

// No two registers of a model have a byte in common.
func TestRowsDoNotOverlap(t *testing.T) {
	for _, m := range models {
		owner := map[int]Register{}
		for r, row := range m.rows {
			for b := range row.Size {
				if other, taken := owner[row.Addr+b]; taken {
					t.Errorf("%s: %s and %s share byte %d", m.Name, other, r, row.Addr+b)
				}
				owner[row.Addr+b] = r
			}
		}
	}
}

func TestEncodings(t *testing.T) {
	row := func(model string, r Register) Row {
		m := rttest.Must(ByName(model))(t)
		return m.Row(r)
	}
	tests := []struct {
		row   Row
		value int
		bytes []byte
	}{
		{row("sts3215", HomingOffset), -100, []byte{0x64, 0x08}},
		{row("sts3215", PresentPosition), -5, []byte{0x05, 0x80}},
		{row("sts3215", PresentLoad), -123, []byte{0x7B, 0x04}},
		{row("sts3215", GoalVelocity), -50, []byte{0x32, 0x80}},
		{row("xl430-w250", HomingOffset), -131073, []byte{0xFF, 0xFF, 0xFD, 0xFF}},
		{row("xl430-w250", PresentPosition), 2064, []byte{0x10, 0x08, 0, 0}},
		{row("xl430-w250", PresentLoad), -1, []byte{0xFF, 0xFF}},
		{row("xl430-w250", BusWatchdog), -1, []byte{0xFF}},
		{row("ax-12a", GoalVelocity), -100, []byte{0x64, 0x04}},
	}
	for _, tt := range tests {
		if got := tt.row.Append(nil, tt.value); !bytes.Equal(got, tt.bytes) {
			t.Errorf("%s: Append(%d) = % X, want % X", tt.row.Register, tt.value, got, tt.bytes)
		}
		rttest.Want(t, tt.row.Decode(tt.bytes), tt.value, "%s: Decode(% X)", tt.row.Register, tt.bytes)
		low, high := tt.row.limits()
		if tt.row.Check(low) != nil || tt.row.Check(high) != nil || tt.row.Check(low-1) == nil ||
			tt.row.Check(high+1) == nil {
			t.Errorf("%s: Check does not hold %d to %d", tt.row.Register, low, high)
		}
		for _, v := range []int{low, high, 0} {
			rttest.Want(t, tt.row.Decode(tt.row.Append(nil, v)), v, "%s: %d comes back as", tt.row.Register, v)
		}
	}
	rttest.Want(t, row("sts3215", PresentPosition).Decode([]byte{0x00, 0x80}), 0, "a lone sign bit")
	buf := make([]byte, 0, 4)
	rttest.NoAllocs(t, "%v allocations", 100, func() {
		buf = tests[0].row.Append(buf[:0], -100)
		_ = tests[0].row.Decode(buf)
	})
}
