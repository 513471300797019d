package record

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Channels of a file. A channel for each further camera follows them.
const (
	channelTick uint16 = iota + 1
	channelRequest
	channelSent
	channelChunk
	channelSession
	channelEvent
	channelLog
	channelEpisode
	channelCamera
)

// topicOf returns a channel's topic, which is its path in a viewer's tree.
func topicOf(channel uint16, cameras []string) string {
	if channel >= channelCamera {
		return CameraTopic + cameras[channel-channelCamera]
	}
	return channels[channel-1].topic
}

// Topics of a file. A camera's topic is CameraTopic and its name.
const (
	TickTopic    = "/tick"
	requestTopic = "/request"
	sentTopic    = "/sent"
	chunkTopic   = "/chunk"
	SessionTopic = "/session"
	EventTopic   = "/event"
	logTopic     = "/log"
	EpisodeTopic = "/episode"
	CameraTopic  = "/camera/"
)

// channels has the topic and the message type of each channel. The last element is for all cameras.
var channels = []struct {
	topic, schema string
	message       message
}{
	{TickTopic, "edgert.Tick", &Tick{}},
	{requestTopic, "edgert.Request", &Request{}},
	{sentTopic, "edgert.Sent", &Sent{}},
	{chunkTopic, "edgert.Chunk", &Chunk{}},
	{SessionTopic, "edgert.Session", &Session{}},
	{EventTopic, "edgert.Event", &Event{}},
	{logTopic, "foxglove.Log", &logLine{}},
	{EpisodeTopic, "edgert.Episode", &Episode{}},
	{CameraTopic, "foxglove.CompressedImage", &Image{}},
}

// levels are the names of foxglove.Log's levels.
var levels = []string{"UNKNOWN", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"}

const timestampFile = "google/protobuf/timestamp.proto"

// descriptorSet returns the FileDescriptorSet of a channel's schema, with all files that it
// imports, as readers of protobuf in MCAP require. The code builds the set field by field: the
// library's descriptors would bring the whole protobuf runtime into the robot.
func descriptorSet(channel uint16) []byte {
	entry := channels[min(channel, channelCamera)-1]
	pkg, name, _ := strings.Cut(entry.schema, ".")
	c := coder{mode: describing}
	entry.message.visit(&c)
	body := protowire.AppendString(tag(nil, 1), name)
	body = append(body, c.out...)
	if entry.schema == "foxglove.Log" {
		body = protowire.AppendBytes(tag(body, 4), enumType("Level", levels))
	}
	file := protowire.AppendString(tag(nil, 1), pkg+"/"+name+".proto")
	file = protowire.AppendString(tag(file, 2), pkg)
	stamped := pkg == "foxglove"
	if stamped {
		file = protowire.AppendString(tag(file, 3), timestampFile)
	}
	file = protowire.AppendBytes(tag(file, 4), body)
	switch entry.schema {
	case "edgert.Tick":
		file = protowire.AppendBytes(tag(file, 5), enumType("RunState", RunStates))
	case "edgert.Event":
		file = protowire.AppendBytes(tag(file, 5), enumType("Level", levels))
	}
	file = protowire.AppendString(tag(file, 12), "proto3")
	var set []byte
	if stamped {
		set = protowire.AppendBytes(tag(set, 1), timestampDescriptor())
	}
	return protowire.AppendBytes(tag(set, 1), file)
}

func tag(b []byte, num protowire.Number) []byte {
	return protowire.AppendTag(b, num, protowire.BytesType)
}

// enumType returns an EnumDescriptorProto whose values count from 0.
func enumType(name string, values []string) []byte {
	b := protowire.AppendString(tag(nil, 1), name)
	for i, v := range values {
		value := protowire.AppendString(tag(nil, 1), v)
		value = protowire.AppendVarint(protowire.AppendTag(value, 2, protowire.VarintType), uint64(i))
		b = protowire.AppendBytes(tag(b, 2), value)
	}
	return b
}

// timestampDescriptor returns google/protobuf/timestamp.proto.
func timestampDescriptor() []byte {
	c := coder{mode: describing, num: 1}
	c.describe("seconds", typeInt64, labelOptional, "")
	c.num++
	c.describe("nanos", typeInt32, labelOptional, "")
	body := append(protowire.AppendString(tag(nil, 1), "Timestamp"), c.out...)
	file := protowire.AppendString(tag(nil, 1), timestampFile)
	file = protowire.AppendString(tag(file, 2), "google.protobuf")
	file = protowire.AppendBytes(tag(file, 4), body)
	return protowire.AppendString(tag(file, 12), "proto3")
}
