package servo

import "testing"

func TestRegisterEncoding(t *testing.T) {
	tests := []struct {
		name  string
		reg   Register
		value int
		word  uint16
	}{
		{"homing offset has its sign in bit 11", HomingOffset, -100, 0x0864},
		{"position has its sign in bit 15", PresentPosition, -5, 0x8005},
		{"velocity of a recorded frame", PresentVelocity, -50, 0x8032},
		{"load has its sign in bit 10", PresentLoad, -123, 0x047B},
		{"largest homing offset", HomingOffset, 2047, 0x07FF},
		{"smallest homing offset", HomingOffset, -2047, 0x0FFF},
		{"unsigned", ModelNumber, 777, 0x0309},
		{"one byte", PCoefficient, 255, 0x00FF},
	}
	for _, tt := range tests {
		got, err := tt.reg.Encode(tt.value)
		if err != nil || got != tt.word {
			t.Errorf("%s: Encode(%d) = %04X, %v, want %04X", tt.name, tt.value, got, err, tt.word)
		}
		if back := tt.reg.Decode(tt.word); back != tt.value {
			t.Errorf("%s: Decode(%04X) = %d, want %d", tt.name, tt.word, back, tt.value)
		}
	}
	if got := PresentPosition.Decode(0x8000); got != 0 {
		t.Errorf("Decode(8000) = %d, want 0: a lone sign is no number", got)
	}
	for _, bad := range []struct {
		reg   Register
		value int
	}{{HomingOffset, 2048}, {HomingOffset, -2048}, {PCoefficient, 256}, {PCoefficient, -1}, {GoalPosition, 32768}} {
		if word, err := bad.reg.Encode(bad.value); err == nil {
			t.Errorf("%s.Encode(%d) = %04X, want an error", bad.reg, bad.value, word)
		}
	}
}

// The table is in the order of addresses and no register overlaps the next; a
// slip of a digit shows here.
func TestTableIsOrdered(t *testing.T) {
	end := 0
	for r := range numRegisters {
		row := table[r]
		if row.name == "" || row.width < 1 || row.width > 2 {
			t.Errorf("register %d: %+v is incomplete", r, row)
		}
		if int(row.addr) < end {
			t.Errorf("%s at %d overlaps the register before it, which ends at %d", row.name, row.addr, end)
		}
		end = int(row.addr) + row.width
		if (row.area == eeprom) != (row.addr >= 5 && row.addr < 40 || row.addr >= 80) && row.area != readOnly {
			t.Errorf("%s at %d: area %d does not fit its address", row.name, row.addr, row.area)
		}
	}
}
