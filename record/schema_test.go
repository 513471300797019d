package record

import (
	"strings"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// messageOf returns a schema's message as the protobuf library reads it; the library validates the
// descriptor set.
func messageOf(t *testing.T, channel uint16) protoreflect.MessageDescriptor {
	t.Helper()
	var set descriptorpb.FileDescriptorSet
	rttest.Do(t, proto.Unmarshal(descriptorSet(channel), &set))
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatalf("%s: %v", channels[channel-1].schema, err)
	}
	found := rttest.Must(files.FindDescriptorByName(protoreflect.FullName(channels[channel-1].schema)))(t)
	return found.(protoreflect.MessageDescriptor)
}

// The schema in a file describes the bytes: the protobuf library decodes them with it.
func TestSchemasDescribeTheBytes(t *testing.T) {
	var tick Tick
	fillTick(&tick, 5, 41)
	image := Image{At: 1_500_000_000, Data: Bytes{[]byte{1}, "\x02", []byte{3}}, Format: "jpeg", Camera: "top"}
	line := logLine{at: 2_000_000_001, level: LevelWarning, name: "bus"}
	line.text.Set("motors")
	event := Event{At: 7, Kind: "bus", Level: LevelError, Code: 5, A: -1, B: 2}
	event.Text.Set("motors")
	encode := func(m interface{ visit(*coder) }) []byte {
		c := coder{wall: 1}
		m.visit(&c)
		return c.out
	}
	for _, tt := range []struct {
		channel uint16
		data    []byte
		want    string // a part of the message's JSON, without blanks
	}{
		{channelTick, encode(&tick), `"run_state":"STREAMING"`},
		{channelTick, encode(&tick), `"state":[1,-2.5],"goal":[1e-7,1000000000],"action":["Infinity",3],"step":"41"`},
		{channelRequest, encode(&Request{Seq: 9, Start: true, Session: testSession}),
			`"episode_start":true,"session":"s-1","server_id":"box"`},
		{channelSent, encode(&Sent{Bytes: 12, Outcome: "sent"}), `"bytes":"12","outcome":"sent"`},
		{channelChunk, encode(&Chunk{Jump: 9, Outcome: "joined"}), `"outcome":"joined","jump_micro":"9"`},
		{channelSession, encode(testSession), `"epoch":3,"service":"@lerobot/a/b/c"`},
		{channelEvent, encode(&event), `"kind":"bus","level":"ERROR","code":5,"a":"-1","b":"2","text":"motors"`},
		{channelLog, encode(&line),
			`"timestamp":"1970-01-01T00:00:02.000000002Z","level":"WARNING","message":"motors","name":"bus"`},
		{channelCamera, encode(&image),
			`"timestamp":"1970-01-01T00:00:01.500000001Z","data":"AQID","format":"jpeg","frame_id":"top"`},
	} {
		m := dynamicpb.NewMessage(messageOf(t, tt.channel))
		rttest.Do(t, proto.Unmarshal(tt.data, m))
		if len(m.GetUnknown()) > 0 {
			t.Errorf("%s: %d bytes that its schema does not know", channels[tt.channel-1].schema, len(m.GetUnknown()))
		}
		text := rttest.Must(protojson.MarshalOptions{UseProtoNames: true}.Marshal(m))(t)
		rttest.Contains(t, strings.ReplaceAll(string(text), " ", ""), tt.want)
	}
}

// Foxglove's and Rerun's viewers find these messages by name and read their fields by these numbers
// (foxglove-sdk, schemas/proto/foxglove).
func TestFoxglovesNumbers(t *testing.T) {
	for _, tt := range []struct {
		channel uint16
		want    map[protoreflect.Name]protoreflect.FieldNumber
	}{
		{channelCamera, map[protoreflect.Name]protoreflect.FieldNumber{"timestamp": 1, "data": 2, "format": 3,
			"frame_id": 4}},
		{channelLog, map[protoreflect.Name]protoreflect.FieldNumber{"timestamp": 1, "level": 2, "message": 3, "name": 4,
			"file": 5, "line": 6}},
	} {
		fields := messageOf(t, tt.channel).Fields()
		rttest.Want(t, fields.Len(), len(tt.want), "%s has fields", channels[tt.channel-1].schema)
		for name, number := range tt.want {
			if f := fields.ByName(name); f == nil || f.Number() != number {
				t.Errorf("%s: %s is %v, want number %d", channels[tt.channel-1].schema, name, f, number)
			}
		}
	}
}

// FuzzParse parses arbitrary bytes: the result is an error or a message that can be encoded again.
func FuzzParse(f *testing.F) {
	var c coder
	tick := &Tick{}
	fillTick(tick, 5, 41)
	tick.visit(&c)
	f.Add(c.out)
	f.Add([]byte{0x22, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, channel := range channels {
			if parse(channel.message, data, 1) != nil {
				continue
			}
			var c coder
			c.wall = 1
			channel.message.visit(&c) // a decoded message can be encoded again
		}
	})
}
