#include <dlfcn.h>
#include <stdio.h>

#include "glue.h"

struct cuda_functions cuda;

const char *cuda_load(const char *path) { return dlopen(path, RTLD_NOW | RTLD_GLOBAL) == NULL ? dlerror() : NULL; }

const char *cuda_open(const char *path) {
	static char missing[128];
	void *lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (lib == NULL) return dlerror();
	struct { const char *name; void **to; } all[] = {
		{"cudaGetErrorString", (void **)&cuda.GetErrorString},
		{"cudaGetDeviceCount", (void **)&cuda.GetDeviceCount},
		{"cudaDriverGetVersion", (void **)&cuda.DriverGetVersion},
		{"cudaDeviceGetAttribute", (void **)&cuda.DeviceGetAttribute},
		{"cudaSetDevice", (void **)&cuda.SetDevice},
		{"cudaHostAlloc", (void **)&cuda.HostAlloc},
		{"cudaFreeHost", (void **)&cuda.FreeHost},
		{"cudaMalloc", (void **)&cuda.Malloc},
		{"cudaFree", (void **)&cuda.Free},
		{"cudaMemcpyAsync", (void **)&cuda.MemcpyAsync},
		{"cudaStreamCreateWithFlags", (void **)&cuda.StreamCreateWithFlags},
		{"cudaStreamDestroy", (void **)&cuda.StreamDestroy},
		{"cudaStreamSynchronize", (void **)&cuda.StreamSynchronize},
		{"cudaStreamWaitEvent", (void **)&cuda.StreamWaitEvent},
		{"cudaEventCreateWithFlags", (void **)&cuda.EventCreateWithFlags},
		{"cudaEventDestroy", (void **)&cuda.EventDestroy},
		{"cudaEventRecord", (void **)&cuda.EventRecord},
	};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		*all[i].to = dlsym(lib, all[i].name);
		if (*all[i].to == NULL) {
			snprintf(missing, sizeof missing, "it has no %s, so it is not CUDA's runtime", all[i].name);
			return missing;
		}
	}
	return NULL;
}
