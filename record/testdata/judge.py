"""What the official MCAP reader finds in a file: python judge.py FILE [stream]

Prints JSON: per topic how many messages there are, with the schema's name and the first
and last message as protobuf's own decoder reads them. With "stream" it reads without the index, up to the break of a
torn file.
"""

import json
import sys

from google.protobuf.json_format import MessageToDict
from mcap.exceptions import McapError
from mcap.reader import NonSeekingReader, make_reader
from mcap_protobuf.decoder import DecoderFactory


def main(name: str, stream: bool) -> None:
    topics, metadata, torn = {}, {}, ""
    with open(name, "rb") as file:
        options = {"decoder_factories": [DecoderFactory()], "validate_crcs": True}
        reader = NonSeekingReader(file, **options) if stream else make_reader(file, **options)
        if not stream:
            summary = reader.get_summary()
            metadata = {m.name: m.metadata for m in reader.iter_metadata()}
            chunks = [c.compression for c in summary.chunk_indexes]
            statistics = {summary.channels[k].topic: n for k, n in summary.statistics.channel_message_counts.items()}
        try:
            for schema, channel, message, decoded in reader.iter_decoded_messages(log_time_order=not stream):
                topic = topics.setdefault(channel.topic, {"schema": schema.name, "encoding": channel.message_encoding, "messages": 0, "sequences": []})
                topic["messages"] += 1
                topic["sequences"].append(message.sequence)
                value = MessageToDict(decoded, preserving_proto_field_name=True) if channel.topic[:8] != "/camera/" else {
                    "timestamp": decoded.timestamp.ToNanoseconds(), "format": decoded.format, "frame_id": decoded.frame_id,
                    "begins": decoded.data[:3].hex(), "ends": decoded.data[-2:].hex(), "bytes": len(decoded.data)}
                topic.setdefault("first", value)
                topic["last"] = value
                topic["log_time"] = message.log_time
        except (McapError, EOFError, ValueError) as error:
            if not stream:
                raise
            torn = f"{type(error).__name__}: {error}"
    for topic in topics.values():
        sequences = sorted(topic.pop("sequences"))
        topic["gaps"] = sequences[-1] - sequences[0] + 1 - len(sequences)
    out = {"topics": topics, "metadata": metadata, "torn": torn}
    if not stream:
        out |= {"chunks": chunks, "statistics": statistics}
    json.dump(out, sys.stdout)


main(sys.argv[1], "stream" in sys.argv[2:])
