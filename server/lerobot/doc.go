// Package lerobot computes a LeRobot policy in a worker process of the user's own Python
// environment: model.runtime lerobot.
//
// worker.py is the worker; lean-server carries it. The worker loads the checkpoint with LeRobot's
// classes, describes the policy, and then answers batches.
//
// # Files
//
// The worker has three files beside its standard ones: 3, a stream socket with frames; 4, shared memory with the
// rows; 5, a pipe whose other end only lean-server has. When the pipe ends, a process that the worker has forked
// kills the worker's process group. Standard output and error are the log.
//
// # Frames
//
// All numbers are little-endian. A frame is a header of 20 bytes and a payload:
//
//	u32 magic "ELWK", u16 kind, u16 count, u32 length of the payload (at most 1 MiB), u64 sequence
//
//	kind        from    payload
//	1 hello     worker  JSON: the description
//	2 map       server  empty; count rows lie in the shared memory
//	3 ready     worker  empty
//	4 run       server  count times: a request
//	5 done      worker  text of the error; count 0 success, 1 error, 2 out of memory; the run's sequence
//	6 progress  worker  text, while the policy loads
//	7 failed    worker  text; the policy does not load; count 1: the manifest is at fault
//
// A request is u32 row, u32 flags (1 the session was reset, 2 the prefix counts, 4 a run of the
// server's own), 32 bytes session id, i64 episode, u64 seed, i32 rows of the prefix, i32 delay, i32
// end of the prefix, i32 bytes of the task, and the task in UTF-8.
//
// # Rows
//
// A row has, each at the next multiple of 64 bytes: the pictures of each camera in the order of the
// description, u8 [steps][height][width][3]; the state, f32 [steps][joints]; the prefix, the chunk
// in the policy's units and the chunk in robot units, each f32 [chunk][joints]. A row ends at the
// next multiple of 4096 bytes.
package lerobot
