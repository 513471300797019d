package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// NoServer is a server_id that no server has. If a robot names NoServer in its open, only an old server answers,
// because an old server ignores the key server_id.
const NoServer = "-"

// rolloutSuffix ends the id of a server that takes only robots that name it.
const rolloutSuffix = "-rollout"

// NamedServer returns the id of a server that accepts only robots that name it. A server with the new model of a
// roll-out has such an id, so that robots without a chosen server keep the old model.
func NamedServer(id string) string { return id + rolloutSuffix }

// TakesUnnamed reports whether the server with this id may accept a robot that names no server.
func TakesUnnamed(id string) bool { return !strings.HasSuffix(id, rolloutSuffix) }

// Rendezvous is the weight of the server id for the robot uuid. Of the live servers the one with
// the highest weight takes a robot that names no server, so all servers of a service must compute
// the same weights: FNV-1a of "id/uuid" in 64 bits, mixed by the finaliser of splitmix64.
func Rendezvous(id, uuid string) uint64 {
	const (
		offset = 14695981039346656037
		prime  = 1099511628211
	)
	h := uint64(offset)
	for _, text := range [...]string{id, "/", uuid} {
		for i := range len(text) {
			h = (h ^ uint64(text[i])) * prime
		}
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// HeldMark identifies the process that opened a session without disclosing its instance: two
// processes under one uuid have different marks.
func HeldMark(uuid, instance string) string {
	if instance == "" {
		return "0" // the robot sent no instance
	}
	sum := sha256.Sum256([]byte(uuid + "/" + instance))
	return hex.EncodeToString(sum[:8])
}
