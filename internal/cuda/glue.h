// The part of CUDA's runtime that copies between the host and a device. Its C ABI is
// the same in all of CUDA 12, so the build needs neither headers nor the library: the
// functions declared here are looked up when the library is opened.
#pragma once
#include <stddef.h>

enum { cuda_to_device = 1, cuda_to_host = 2 };

// cuda_functions are CUDA's functions under their names without the prefix cuda; each
// returns 0 or an error code.
struct cuda_functions {
	const char *(*GetErrorString)(int code);
	int (*GetDeviceCount)(int *n);
	int (*DriverGetVersion)(int *version);
	int (*DeviceGetAttribute)(int *value, int attribute, int device);
	int (*SetDevice)(int device);
	int (*HostAlloc)(void **p, size_t bytes, unsigned flags);
	int (*FreeHost)(void *p);
	int (*Malloc)(void **p, size_t bytes);
	int (*Free)(void *p);
	int (*MemcpyAsync)(void *dst, const void *src, size_t bytes, int direction, void *stream);
	int (*StreamCreateWithFlags)(void **stream, unsigned flags);
	int (*StreamDestroy)(void *stream);
	int (*StreamSynchronize)(void *stream);
	int (*StreamWaitEvent)(void *stream, void *event, unsigned flags);
	int (*EventCreateWithFlags)(void **event, unsigned flags);
	int (*EventDestroy)(void *event);
	int (*EventRecord)(void *event, void *stream);
};

extern struct cuda_functions cuda;

// cuda_open looks the functions up. It returns NULL or an error text.
const char *cuda_open(const char *path);

// cuda_load loads a library for other libraries that link it by name. It returns NULL
// or an error text.
const char *cuda_load(const char *path);

static inline const char *cuda_error(int code) { return cuda.GetErrorString(code); }
static inline int cuda_devices(int *n) { return cuda.GetDeviceCount(n); }
static inline int cuda_driver(int *version) { return cuda.DriverGetVersion(version); }
static inline int cuda_attribute(int *value, int attribute, int device) { return cuda.DeviceGetAttribute(value, attribute, device); }
static inline int cuda_set_device(int device) { return cuda.SetDevice(device); }
static inline int cuda_host_alloc(void **p, size_t bytes) { return cuda.HostAlloc(p, bytes, 0); }
static inline int cuda_free_host(void *p) { return cuda.FreeHost(p); }
static inline int cuda_malloc(void **p, size_t bytes) { return cuda.Malloc(p, bytes); }
static inline int cuda_free(void *p) { return cuda.Free(p); }
static inline int cuda_copy(void *dst, const void *src, size_t bytes, int direction, void *stream) {
	return cuda.MemcpyAsync(dst, src, bytes, direction, stream);
}
// A stream that does not wait for the default stream (cudaStreamNonBlocking).
static inline int cuda_new_stream(void **stream) { return cuda.StreamCreateWithFlags(stream, 1); }
static inline int cuda_free_stream(void *stream) { return cuda.StreamDestroy(stream); }
static inline int cuda_synchronize(void *stream) { return cuda.StreamSynchronize(stream); }
static inline int cuda_wait(void *stream, void *event) { return cuda.StreamWaitEvent(stream, event, 0); }
// An event without a time stamp (cudaEventDisableTiming).
static inline int cuda_new_event(void **event) { return cuda.EventCreateWithFlags(event, 2); }
static inline int cuda_free_event(void *event) { return cuda.EventDestroy(event); }
static inline int cuda_record(void *event, void *stream) { return cuda.EventRecord(event, stream); }
