package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/edge-rt/edge-rt/internal/userfile"
)

// Limits of the file that lists the bundles of an arm.
const (
	maxRan      = 64      // bundles; the oldest are dropped
	maxRanBytes = 1 << 16 // far more than maxRan digests need
)

// ran is the content of the file: the bundles that have run on an arm.
type ran struct {
	Calibration string   `json:"calibration_sha256"` // digest of the calibration of the arm
	Bundles     []string `json:"bundles"`            // digests of the bundles, the newest last
}

func (i *Identity) ranPath() string { return filepath.Join(i.Dir, i.ID+".bundles.json") }

// HasRun reports whether a bundle with this digest has run on the arm with this name and calibration. It takes a
// missing or unreadable file for an empty file.
func (i *Identity) HasRun(calibration, digest string) bool {
	return slices.Contains(i.ran(calibration).Bundles, digest)
}

// ran reads the file. If the file is for another calibration, ran returns no bundles.
func (i *Identity) ran(calibration string) ran {
	sum := sha256.Sum256([]byte(calibration))
	none := ran{Calibration: hex.EncodeToString(sum[:])}
	data, err := userfile.Read(i.ranPath(), maxRanBytes)
	if err != nil {
		return none
	}
	var r ran
	if json.Unmarshal(data, &r) != nil || r.Calibration != none.Calibration {
		return none
	}
	return r
}

// NoteRun notes that a bundle has run. It writes a file, which may take long.
func (i *Identity) NoteRun(calibration, digest string) error {
	r := i.ran(calibration)
	r.Bundles = append(slices.DeleteFunc(r.Bundles, func(d string) bool { return d == digest }), digest)
	r.Bundles = r.Bundles[max(0, len(r.Bundles)-maxRan):]
	data, err := json.Marshal(r)
	if err == nil {
		err = userfile.Replace(i.ranPath(), append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("which bundles have run: %w", err)
	}
	return nil
}
