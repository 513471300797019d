package wire

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// KeyRoot begins every key of a service. Because of the @, no wildcard matches the key's first chunk, so that a
// subscriber of ** does not get the robots' traffic by accident.
const KeyRoot = "@lerobot"

// ServerAliveAny matches the liveliness token of every server of every service.
const ServerAliveAny = KeyRoot + "/*/*/*/server/alive"

// TelemetryAny matches the telemetry of every robot of every service.
const TelemetryAny = KeyRoot + "/*/*/*/*/telemetry"

// Defaults for the parts of a service's key that the manifest leaves empty.
const (
	defaultRevision = "main"
	defaultService  = "default"
)

// MaxUUIDBytes bounds a robot's name.
const MaxUUIDBytes = 128

// Reasons why a text cannot be a key segment.
var (
	ErrSlugEmpty    = errors.New("wire: key segment has no usable character")
	ErrSlugReserved = errors.New("wire: key segment is reserved")
	ErrKey          = errors.New("wire: not a key of this schema")
)

// Key chunks with a fixed meaning, which no name may equal.
var reserved = []string{"status", "session", "server", "obs", "action", "reset", "alive"}

// Slug turns any text into one key segment. Each run of characters outside [A-Za-z0-9_.-] becomes one dash; then dashes
// and dots at both ends are removed. Different texts may have the same slug, such as `a/b` and `a-b`.
//
// Source: LeRobot's remote-inference draft; the draft strips white space first, which gives the same slug, because
// white space at an end becomes a dash that is removed.
func Slug(segment string) (string, error) {
	var b strings.Builder
	run := false
	for i := range len(segment) {
		c := segment[i]
		if slugByte(c) {
			b.WriteByte(c)
		} else if !run {
			b.WriteByte('-')
		}
		run = !slugByte(c)
	}
	slug := strings.Trim(b.String(), "-.")
	switch {
	case slug == "":
		return "", fmt.Errorf("wire: got %q, want at least one of A-Za-z0-9_: %w", segment, ErrSlugEmpty)
	case slices.Contains(reserved, slug):
		return "", fmt.Errorf("wire: got %q, want a name other than %s: %w", segment, strings.Join(reserved, ", "),
			ErrSlugReserved)
	}
	return slug, nil
}

func slugByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-'
}

// CheckUUID accepts a robot's name only if its slug is the name itself. A server that registered `a b` would wait for
// ever for its observations, because they arrive under `a-b`.
func CheckUUID(uuid string) error {
	if len(uuid) > MaxUUIDBytes {
		return fmt.Errorf("wire: client_uuid: got %d bytes, want at most %d: %w", len(uuid), MaxUUIDBytes, ErrTooLarge)
	}
	slug, err := Slug(uuid)
	if err != nil {
		return fmt.Errorf("wire: client_uuid: %w", err)
	}
	if slug != uuid {
		return fmt.Errorf("wire: client_uuid: got %q, want only A-Za-z0-9_.- as in %q: %w", uuid, slug, ErrKey)
	}
	return nil
}

// TaskFault returns the reason why a text cannot be a task, because a log, a line of edge-rt ctl or a message could not
// carry it unchanged. It returns "" for a possible task, and for the empty text.
func TaskFault(text string) string {
	switch {
	case !utf8.ValidString(text):
		return fmt.Sprintf("is not UTF-8: %q", text)
	case strings.ContainsAny(text, "\r\n"):
		return fmt.Sprintf("has a line break, want one line: %q", text)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Sprintf("has a control character, which a terminal obeys and no policy was taught: %q", text)
	case len(text) > MaxTextBytes:
		return fmt.Sprintf("has %d bytes, want at most %d", len(text), MaxTextBytes)
	}
	return ""
}

// ServicePrefix returns the common prefix of a service's keys. The parameter service is the service's name, or its
// default task. An empty revision or service is replaced by its default.
func ServicePrefix(model, revision, service string) (string, error) {
	prefix := KeyRoot
	for _, segment := range []string{model, cmp.Or(revision, defaultRevision), cmp.Or(service, defaultService)} {
		slug, err := Slug(segment)
		if err != nil {
			return "", err
		}
		prefix += "/" + slug
	}
	return prefix, nil
}

// Keys of one robot below a service prefix, made with the slug of uuid.
func ObsKey(prefix, uuid string) (string, error)         { return robotKey(prefix, uuid, "/obs") }
func ActionKey(prefix, uuid string) (string, error)      { return robotKey(prefix, uuid, "/action") }
func ResetKey(prefix, uuid string) (string, error)       { return robotKey(prefix, uuid, "/reset") }
func ClientAliveKey(prefix, uuid string) (string, error) { return robotKey(prefix, uuid, "/alive") }

// TelemetryKey is the key of a robot's measurements for an operator: a JSON object with the names of
// its metrics, sent with TelemetryQoS. No server reads it.
func TelemetryKey(prefix, uuid string) (string, error) { return robotKey(prefix, uuid, "/telemetry") }

// With TelemetryQoS, the transport drops a sample on a congested link, so that the publisher does not wait.
var TelemetryQoS = QoS{Priority: Data}

// EpochAliveKey is the robot's second liveliness token. Each session epoch has its own token, so that a server does not
// believe that a robot is gone when the token of an earlier epoch ends.
func EpochAliveKey(prefix, uuid string, epoch uint32) (string, error) {
	return robotKey(prefix, uuid, "/"+strconv.FormatUint(uint64(epoch), 10)+"/alive")
}

// RobotSessionKey is the key on which only this robot opens and closes its session, so that access rules can
// distinguish robots by their keys alone.
func RobotSessionKey(prefix, uuid string) (string, error) { return robotKey(prefix, uuid, "/session") }

// HeldKey is the key of the token by which a server declares that it holds a robot's session. The parameter mark is the
// HeldMark of the process that opened the session in the given epoch.
func HeldKey(prefix, uuid, server, mark string, epoch uint32) (string, error) {
	return robotKey(prefix, uuid, "/held/"+server+"/"+mark+"/"+strconv.FormatUint(uint64(epoch), 10))
}

func robotKey(prefix, uuid, leaf string) (string, error) {
	slug, err := Slug(uuid)
	if err != nil {
		return "", err
	}
	return prefix + "/" + slug + leaf, nil
}

// Keys of a service.
func StatusKey(prefix string) string      { return prefix + "/status" }
func SessionKey(prefix string) string     { return prefix + "/session" }
func ServerAliveKey(prefix string) string { return prefix + "/server/alive" }

// Keys of the tokens of one server of a service, which distinguish it from its replicas. One token states that the
// server is alive, the other that it has room for a robot that names no server. The parameter id, the server's id, is
// one key segment.
func ReplicaAliveKey(prefix, id string) string { return prefix + "/server/" + id + "/alive" }
func ReplicaRoomKey(prefix, id string) string  { return prefix + "/server/" + id + "/room" }

// Key expressions of the tokens of all servers of a service.
func ReplicaAliveWildcard(prefix string) string { return ReplicaAliveKey(prefix, "*") }
func ReplicaRoomWildcard(prefix string) string  { return ReplicaRoomKey(prefix, "*") }

// HeldWildcard matches the HeldKey of all robots and servers of a service.
func HeldWildcard(prefix string) string { return prefix + "/*/held/*/*/*" }

// Key expressions by which a server receives from all robots.
func ObsWildcard(prefix string) string          { return prefix + "/*/obs" }
func ResetWildcard(prefix string) string        { return prefix + "/*/reset" }
func RobotSessionWildcard(prefix string) string { return prefix + "/*/session" }
func ClientAliveWildcard(prefix string) string  { return prefix + "/*/alive" }
func EpochAliveWildcard(prefix string) string   { return prefix + "/*/*/alive" }

// ClientUUID returns the robot's part of an obs, action, reset or alive key: the last chunk but one. The string is part
// of key.
//
//rt:noalloc
func ClientUUID(key string) (string, error) {
	end := strings.LastIndexByte(key, '/')
	if end < 0 {
		return "", errKey(key, "a key with a client chunk")
	}
	return key[strings.LastIndexByte(key[:end], '/')+1 : end], nil
}

// ParseEpochAlive splits a key made by EpochAliveKey.
func ParseEpochAlive(prefix, key string) (uuid string, epoch uint32, err error) {
	rest, ok := strings.CutPrefix(key, prefix+"/")
	parts := strings.Split(rest, "/")
	if ok && len(parts) == 3 && parts[2] == "alive" {
		if n, err := strconv.ParseUint(parts[1], 10, 32); err == nil {
			return parts[0], uint32(n), nil
		}
	}
	return "", 0, errKey(key, prefix+"/UUID/EPOCH/alive")
}

// ParseReplicaKey splits a key made by ReplicaAliveKey or ReplicaRoomKey. The result leaf is "alive" or "room".
func ParseReplicaKey(prefix, key string) (id, leaf string, err error) {
	rest, ok := strings.CutPrefix(key, prefix+"/server/")
	id, leaf, two := strings.Cut(rest, "/")
	if !ok || !two || id == "" || leaf != "alive" && leaf != "room" {
		return "", "", errKey(key, prefix+"/server/SERVER_ID/alive or room")
	}
	return id, leaf, nil
}

// Held is the parsed form of a key made by HeldKey.
type Held struct {
	UUID   string // the robot's uuid
	Server string // id of the robot's server
	Mark   string // mark of the robot's process
	Epoch  uint32
}

// ParseHeldKey splits a key made by HeldKey.
func ParseHeldKey(prefix, key string) (h Held, err error) {
	rest, ok := strings.CutPrefix(key, prefix+"/")
	parts := strings.Split(rest, "/")
	if ok && len(parts) == 5 && parts[1] == "held" && !slices.Contains(parts, "") {
		var epoch uint64
		if epoch, err = strconv.ParseUint(parts[4], 10, 32); err == nil {
			return Held{parts[0], parts[2], parts[3], uint32(epoch)}, nil
		}
	}
	return Held{}, errKey(key, prefix+"/UUID/held/SERVER_ID/MARK/EPOCH")
}

// Service is the parsed prefix of a service's keys: three slugs.
type Service struct{ Model, Revision, Name string }

// Prefix returns the prefix of the service's keys.
func (s Service) Prefix() string {
	return KeyRoot + "/" + s.Model + "/" + s.Revision + "/" + s.Name
}

// ServiceOf returns the service whose server declared the liveliness token
// `@lerobot/MODEL/REVISION/SERVICE/server/alive`.
func ServiceOf(serverAliveKey string) (Service, error) {
	prefix, ok := strings.CutSuffix(serverAliveKey, "/server/alive")
	parts := strings.Split(prefix, "/")
	if !ok || len(parts) != 4 || parts[0] != KeyRoot || slices.Contains(parts, "") {
		return Service{}, errKey(serverAliveKey, ServerAliveAny)
	}
	return Service{Model: parts[1], Revision: parts[2], Name: parts[3]}, nil
}

//go:noinline
func errKey(got, want string) error {
	return fmt.Errorf("wire: got %q, want %s: %w", got, want, ErrKey)
}
