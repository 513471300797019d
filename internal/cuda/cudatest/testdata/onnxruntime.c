// Wraps ONNX Runtime's library for the CPU, FAKE_GPU_LIBRARY, and announces the CUDA
// provider. Sessions on a GPU run on the CPU.
//
// FAKE_GPU_PROVIDERS=cpu: the provider is not built in. FAKE_GPU_PROVIDER_ERROR and
// FAKE_GPU_SESSION_ERROR: the errors of loading the provider and of opening a session.
// FAKE_GPU_RUN_ERROR: the error of runs; "hang": runs end only when they are terminated,
// "stuck": they never end, "slow": they repeat the computation for a minute, "deaf": the
// same, also after termination. FAKE_GPU_SICK: a file; runs fail only while it exists.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "onnxruntime_c_api.h"

static const OrtApi *real;
static OrtApi fake;
static volatile int terminated;
static int on_gpu; // whether the options of the next session contain the provider
static const OrtSession *on_cpu; // the last session without it, whose runs do not fail

static const char *setting(const char *name) {
	const char *text = getenv(name);
	return text == NULL || *text == 0 ? NULL : text;
}

static OrtStatus *fails(const char *name) {
	const char *text = setting(name);
	return text == NULL ? NULL : real->CreateStatus(ORT_EP_FAIL, text);
}

static OrtStatus *providers(char ***names, int *n) {
	static char *all[] = {"TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"};
	int without = setting("FAKE_GPU_PROVIDERS") != NULL ? 2 : 0;
	*names = all + without;
	*n = 3 - without;
	return NULL;
}
static OrtStatus *release_providers(char **names, int n) { return (void)names, (void)n, NULL; }

static int options; // a placeholder for the provider's options, which are opaque
static OrtStatus *create_cuda(OrtCUDAProviderOptionsV2 **out) { return *out = (OrtCUDAProviderOptionsV2 *)&options, NULL; }
static OrtStatus *update_cuda(OrtCUDAProviderOptionsV2 *o, const char *const *keys, const char *const *values, size_t n) {
	for (size_t i = 0; i < n && setting("FAKE_GPU_SAY") != NULL; i++) printf("cuda %s=%s\n", keys[i], values[i]);
	return (void)o, fflush(stdout), fails("FAKE_GPU_PROVIDER_ERROR");
}
static OrtStatus *value_cuda(OrtCUDAProviderOptionsV2 *o, const char *key, void *value) {
	return (void)o, strcmp(key, "user_compute_stream") != 0 || value == NULL ? real->CreateStatus(ORT_FAIL, key) : NULL;
}
static OrtStatus *append_cuda(OrtSessionOptions *s, const OrtCUDAProviderOptionsV2 *o) { return (void)s, (void)o, on_gpu = 1, NULL; }
static void release_cuda(OrtCUDAProviderOptionsV2 *o) { (void)o; }

static OrtStatus *create_trt(OrtTensorRTProviderOptionsV2 **out) { return *out = (OrtTensorRTProviderOptionsV2 *)&options, NULL; }
static OrtStatus *update_trt(OrtTensorRTProviderOptionsV2 *o, const char *const *keys, const char *const *values, size_t n) {
	for (size_t i = 0; i < n && setting("FAKE_GPU_SAY") != NULL; i++) printf("tensorrt %s=%s\n", keys[i], values[i]);
	return (void)o, fflush(stdout), fails("FAKE_GPU_PROVIDER_ERROR");
}
static OrtStatus *value_trt(OrtTensorRTProviderOptionsV2 *o, const char *key, void *value) { return (void)o, value_cuda(NULL, key, value); }
static OrtStatus *append_trt(OrtSessionOptions *s, const OrtTensorRTProviderOptionsV2 *o) { return (void)s, (void)o, NULL; }
static void release_trt(OrtTensorRTProviderOptionsV2 *o) { (void)o; }

static OrtStatus *memory(const char *name, enum OrtAllocatorType type, int id, enum OrtMemType kind, OrtMemoryInfo **out) {
	return strcmp(name, "Cuda") == 0 ? real->CreateMemoryInfo("Cpu", type, 0, kind, out) : real->CreateMemoryInfo(name, type, id, kind, out);
}
static OrtStatus *session(const OrtEnv *env, const char *path, const OrtSessionOptions *o, OrtSession **out) {
	int gpu = on_gpu;
	on_gpu = 0;
	OrtStatus *s = gpu ? fails("FAKE_GPU_SESSION_ERROR") : NULL;
	if (s == NULL) s = real->CreateSession(env, path, o, out);
	if (s == NULL) on_cpu = gpu ? NULL : *out;
	return s;
}
static OrtStatus *terminate(OrtRunOptions *o) { return terminated = 1, real->RunOptionsSetTerminate(o); }
static OrtStatus *run(OrtSession *s, const OrtRunOptions *o, const OrtIoBinding *b) {
	const char *text = setting("FAKE_GPU_RUN_ERROR"), *sick = setting("FAKE_GPU_SICK");
	if (text == NULL || s == on_cpu || (sick != NULL && access(sick, F_OK) != 0)) return real->RunWithBinding(s, o, b);
	if (strcmp(text, "slow") == 0 || strcmp(text, "deaf") == 0) {
		if (text[0] == 'd') o = NULL;
		OrtStatus *status = NULL;
		for (time_t end = time(NULL) + 60; status == NULL && time(NULL) < end;) status = real->RunWithBinding(s, o, b);
		return status;
	}
	int hang = strcmp(text, "hang") == 0;
	while (strcmp(text, "stuck") == 0 || (hang && !terminated)) usleep(1000);
	return real->CreateStatus(ORT_FAIL, hang ? "Exiting due to terminate flag being set to true." : text);
}

static const OrtApi *api(uint32_t version) {
	if (real == NULL || version != ORT_API_VERSION) return NULL;
	fake = *real;
	fake.GetAvailableProviders = providers, fake.ReleaseAvailableProviders = release_providers;
	fake.CreateCUDAProviderOptions = create_cuda, fake.UpdateCUDAProviderOptions = update_cuda;
	fake.UpdateCUDAProviderOptionsWithValue = value_cuda, fake.ReleaseCUDAProviderOptions = release_cuda;
	fake.SessionOptionsAppendExecutionProvider_CUDA_V2 = append_cuda;
	fake.CreateTensorRTProviderOptions = create_trt, fake.UpdateTensorRTProviderOptions = update_trt;
	fake.UpdateTensorRTProviderOptionsWithValue = value_trt, fake.ReleaseTensorRTProviderOptions = release_trt;
	fake.SessionOptionsAppendExecutionProvider_TensorRT_V2 = append_trt;
	fake.CreateMemoryInfo = memory, fake.CreateSession = session;
	fake.RunOptionsSetTerminate = terminate, fake.RunWithBinding = run;
	return &fake;
}

static const char *version(void) {
	const char *text = setting("FAKE_GPU_VERSION");
	return text == NULL ? "1.24.4" : text;
}

const OrtApiBase *OrtGetApiBase(void) {
	static const OrtApiBase base = {api, version};
	const char *path = setting("FAKE_GPU_LIBRARY");
	if (real == NULL && path != NULL) {
		void *lib = dlopen(path, RTLD_LAZY);
		const OrtApiBase *(*get)(void) = lib == NULL ? NULL : (const OrtApiBase *(*)(void))dlsym(lib, "OrtGetApiBase");
		if (get != NULL) real = get()->GetApi(ORT_API_VERSION);
	}
	return &base;
}
