package wire

import (
	"crypto/sha256"
	"encoding/hex"
)

// NoServer is a server_id that no server has: who names it opens at a server that
// does not know the key, and the others stay silent.
const NoServer = "-"

// Rendezvous is how much the server called id is wanted by the robot called uuid.
// The one of most weight among those that are there takes a robot that names
// nobody, so all servers of a service must compute the same: FNV-1a of "id/uuid" in
// 64 bits, mixed by the finaliser of splitmix64.
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

// HeldMark names the process that opened a session without giving its instance
// away: two processes under one uuid have two.
func HeldMark(uuid, instance string) string {
	if instance == "" {
		return "0" // it did not say
	}
	sum := sha256.Sum256([]byte(uuid + "/" + instance))
	return hex.EncodeToString(sum[:8])
}
