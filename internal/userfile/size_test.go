package userfile

import "testing"

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		text  string
		names []string
		bytes float64
		ok    bool
	}{
		{"512MiB", []string{"KiB", "MiB"}, 512 << 20, true},
		{"1.5 GB", []string{"GB"}, 1.5e9, true},
		{"2TiB", []string{"GiB", "TiB"}, 2 << 40, true},
		{"-3KB", []string{"KB"}, -3000, true},
		{"2TiB", []string{"GiB"}, 0, false},
		{"512", []string{"MiB"}, 0, false},
		{"5_12MiB", []string{"MiB"}, 0, false},
		{"infMiB", []string{"MiB"}, 0, false},
		{"", []string{"MiB"}, 0, false},
	} {
		if bytes, ok := ParseSize(tt.text, tt.names...); ok != tt.ok || ok && bytes != tt.bytes {
			t.Errorf("Parse(%q, %v) = %v, %v, want %v, %v", tt.text, tt.names, bytes, ok, tt.bytes, tt.ok)
		}
	}
}
