// CUDA's runtime on the host: a device's memory is host memory, and a stream
// executes every operation at once. FAKE_GPU_COUNT is the number of devices,
// FAKE_GPU_COUNT_ERROR and FAKE_GPU_MALLOC_ERROR are error codes to return.
#include <stdlib.h>
#include <string.h>

static int number(const char *name, int otherwise) {
	const char *text = getenv(name);
	return text == NULL || *text == 0 ? otherwise : atoi(text);
}

static __thread int device;

const char *cudaGetErrorString(int code) {
	switch (code) {
	case 2: return "out of memory";
	case 35: return "CUDA driver version is insufficient for CUDA runtime version";
	case 100: return "no CUDA-capable device is detected";
	case 101: return "invalid device ordinal";
	}
	return "unknown error";
}

int cudaGetDeviceCount(int *n) {
	*n = number("FAKE_GPU_COUNT", 1);
	return number("FAKE_GPU_COUNT_ERROR", 0);
}
int cudaDriverGetVersion(int *version) { return *version = 12080, 0; }
int cudaDeviceGetAttribute(int *value, int attribute, int d) { return *value = attribute == 75 ? 9 : 0, d < 0; }
int cudaSetDevice(int d) { return d >= number("FAKE_GPU_COUNT", 1) ? 101 : (device = d, 0); }
int cudaMalloc(void **p, size_t bytes) {
	int code = number("FAKE_GPU_MALLOC_ERROR", 0);
	return code != 0 ? code : (*p = malloc(bytes)) == NULL ? 2 : 0;
}
int cudaFree(void *p) { return free(p), 0; }
int cudaHostAlloc(void **p, size_t bytes, unsigned flags) { return (void)flags, (*p = malloc(bytes)) == NULL ? 2 : 0; }
int cudaFreeHost(void *p) { return free(p), 0; }

#ifndef WITHOUT_COPY
int cudaMemcpyAsync(void *dst, const void *src, size_t bytes, int direction, void *stream) {
	if (stream == NULL || direction < 1 || direction > 2) return 1;
	memcpy(dst, src, bytes);
	return number("FAKE_GPU_COPY_ERROR", 0);
}
#endif
int cudaStreamCreateWithFlags(void **stream, unsigned flags) { return (void)flags, *stream = malloc(1), 0; }
int cudaStreamDestroy(void *stream) { return free(stream), 0; }
int cudaStreamSynchronize(void *stream) { return stream == NULL; }
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags) { return (void)flags, stream == NULL || event == NULL; }
int cudaEventCreateWithFlags(void **event, unsigned flags) { return (void)flags, *event = malloc(1), 0; }
int cudaEventDestroy(void *event) { return free(event), 0; }
int cudaEventRecord(void *event, void *stream) { return stream == NULL || event == NULL; }
