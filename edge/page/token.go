package page

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/edge-rt/edge-rt/internal/userfile"
	"github.com/edge-rt/edge-rt/rt"
)

const (
	// tokenAuto is the value of --http-token that makes a new token at each start.
	tokenAuto = "auto"

	tokenBytes    = 32 // random bytes of a new token
	tokenMin      = 22 // characters of a token that a person wrote
	tokenMax      = 256
	tokenFileMode = 0600 // only for the owner, because the token's holder may move the arm

	wrongBurst    = 5                // wrong tokens from an address before it must wait
	wrongInterval = 10 * time.Second // time after which one more wrong token is permitted
	wrongKept     = 64               // addresses that are kept; a new address replaces the address that is due first
)

// newToken returns a random token.
func newToken() string {
	b := make([]byte, tokenBytes)
	rand.Read(b) // crypto/rand documents that Read never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// loadToken returns the token of --http-token: a new one, or the content of a file, which it creates if it is missing.
// made reports whether the token is new.
func loadToken(name string) (token string, made bool, err error) {
	if name == tokenAuto {
		return newToken(), true, nil
	}
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		token = newToken()
		return token, true, os.WriteFile(name, []byte(token+"\n"), tokenFileMode)
	case err != nil:
		return "", false, err
	case !info.Mode().IsRegular():
		return "", false, fmt.Errorf("%s is no file", name)
	case info.Mode().Perm()&0o077 != 0:
		return "", false, fmt.Errorf("%s has the mode %04o: others may read it, and move the arm; chmod 600 %s", name,
			info.Mode().Perm(), name)
	}
	text, err := userfile.Read(name, tokenMax+2)
	if err != nil {
		return "", false, err
	}
	token = strings.TrimSpace(string(text))
	if len(token) < tokenMin || len(token) > tokenMax || strings.Trim(token, tokenCharacters) != "" {
		return "", false, fmt.Errorf("%s holds no token: want %d to %d letters, digits, - and _ in one line, as "+
			"openssl rand -hex 32 prints; or delete it, and one is made", name, tokenMin, tokenMax)
	}
	return token, false, nil
}

const tokenCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// verdict is the result of a token check.
type verdict int

const (
	tokenWrong verdict = iota
	tokenRight
	tokenNotLookedAt // the address has sent too many wrong tokens, so the token was not compared
)

// gate compares tokens. After many wrong tokens from an address it ignores that address for a
// while; other addresses are not affected.
type gate struct {
	sum   [sha256.Size]byte // digest of the token; constant
	clock rt.Clock

	mu    sync.Mutex
	wrong []stranger // guarded by mu; at most wrongKept
}

// stranger is an address that has sent wrong tokens.
type stranger struct {
	address netip.Addr
	due     rt.Instant // instant until which the wrong tokens so far use up the permitted rate
}

func newGate(token string, clock rt.Clock) *gate {
	return &gate{sum: sha256.Sum256([]byte(token)), clock: clock}
}

// check compares a token from an address. The time of the comparison does not depend on the token.
func (g *gate) check(token string, from netip.Addr) verdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, from := g.clock.Now(), networkOf(from)
	at := slices.IndexFunc(g.wrong, func(s stranger) bool { return s.address == from })
	if at >= 0 && g.wrong[at].due.Sub(now) > (wrongBurst-1)*wrongInterval {
		return tokenNotLookedAt
	}
	sum := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(sum[:], g.sum[:]) == 1 {
		return tokenRight
	}
	if at < 0 {
		if at = len(g.wrong); at < wrongKept {
			g.wrong = append(g.wrong, stranger{})
		} else {
			first := slices.MinFunc(g.wrong, func(a, b stranger) int { return cmp.Compare(a.due, b.due) })
			at = slices.Index(g.wrong, first)
		}
		g.wrong[at] = stranger{address: from}
	}
	g.wrong[at].due = max(g.wrong[at].due, now).Add(wrongInterval)
	return tokenWrong
}

// networkOf returns the range of addresses of one attacker: an IPv4 address, or an IPv6 network of
// 64 bits.
func networkOf(a netip.Addr) netip.Addr {
	if a = a.Unmap(); a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}
