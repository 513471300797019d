// Calls of the entries of ONNX Runtime's function table, which cgo cannot make itself.
#pragma once
#include "onnxruntime_c_api.h"
#include <malloc.h>

extern const OrtApi *ort_api; // NULL before ort_open
extern OrtEnv *ort_env;

// ort_version loads the library and returns its version, or NULL with an error text in
// *why.
const char *ort_version(const char *path, const char **why);

// ort_open makes the environment, once. A failure is the returned status, or the error
// text in *why.
OrtStatus *ort_open(const char *path, const char **why);

// ort_zeros returns zeroed memory, aligned to a cache line, with every page present, or
// NULL.
void *ort_zeros(size_t bytes);

// ort_append_cuda and ort_append_tensorrt add a provider. The keys of a call replace
// those of all earlier calls, so one call passes all keys; stream may be NULL.
OrtStatus *ort_append_cuda(OrtSessionOptions *options, const char *const *keys, const char *const *values, size_t n, void *stream);
OrtStatus *ort_append_tensorrt(OrtSessionOptions *options, const char *const *keys, const char *const *values, size_t n, void *stream);

// ort_port describes input or output i: its name (ort_free), type, and dimensions,
// -1 for a symbolic one. *rank is -1 if it is not a tensor, and may exceed most.
OrtStatus *ort_port(const OrtSession *session, int output, size_t i, char **name, int *type, int64_t *dims, int most, int *rank);

static inline const char *ort_message(const OrtStatus *s) { return ort_api->GetErrorMessage(s); }
static inline int ort_code(const OrtStatus *s) { return (int)ort_api->GetErrorCode(s); }
static inline void ort_release_status(OrtStatus *s) { ort_api->ReleaseStatus(s); }
static inline OrtStatus *ort_providers(char ***names, int *n) { return ort_api->GetAvailableProviders(names, n); }
static inline OrtStatus *ort_release_providers(char **names, int n) { return ort_api->ReleaseAvailableProviders(names, n); }

static inline OrtStatus *ort_new_options(OrtSessionOptions **out) { return ort_api->CreateSessionOptions(out); }
static inline OrtStatus *ort_threads(OrtSessionOptions *o, int intra, int inter) {
	OrtStatus *s = ort_api->SetIntraOpNumThreads(o, intra);
	return s != NULL ? s : ort_api->SetInterOpNumThreads(o, inter);
}
static inline OrtStatus *ort_no_plan(OrtSessionOptions *o) { return ort_api->DisableMemPattern(o); }
static inline OrtStatus *ort_set_option(OrtSessionOptions *o, const char *key, const char *value) { return ort_api->AddSessionConfigEntry(o, key, value); }
static inline void ort_release_options(OrtSessionOptions *o) { ort_api->ReleaseSessionOptions(o); }

static inline OrtStatus *ort_new_session(const char *path, const OrtSessionOptions *o, OrtSession **out) {
	return ort_api->CreateSession(ort_env, path, o, out);
}
static inline OrtStatus *ort_new_session_of(const void *model, size_t n, const OrtSessionOptions *o, OrtSession **out) {
	return ort_api->CreateSessionFromArray(ort_env, model, n, o, out);
}
static inline void ort_release_session(OrtSession *s) { ort_api->ReleaseSession(s); }
static inline OrtStatus *ort_inputs(const OrtSession *s, size_t *n) { return ort_api->SessionGetInputCount(s, n); }
static inline OrtStatus *ort_outputs(const OrtSession *s, size_t *n) { return ort_api->SessionGetOutputCount(s, n); }
void ort_free(char *name);

static inline OrtStatus *ort_new_memory(const char *name, int id, OrtMemoryInfo **out) {
	return ort_api->CreateMemoryInfo(name, OrtDeviceAllocator, id, OrtMemTypeDefault, out);
}
static inline void ort_release_memory(OrtMemoryInfo *m) { ort_api->ReleaseMemoryInfo(m); }
static inline OrtStatus *ort_new_tensor(const OrtMemoryInfo *m, void *p, size_t bytes, const int64_t *shape, size_t rank, int type, OrtValue **out) {
	return ort_api->CreateTensorWithDataAsOrtValue(m, p, bytes, shape, rank, (ONNXTensorElementDataType)type, out);
}
static inline void ort_release_tensor(OrtValue *v) { ort_api->ReleaseValue(v); }

static inline OrtStatus *ort_new_binding(OrtSession *s, OrtIoBinding **out) { return ort_api->CreateIoBinding(s, out); }
static inline OrtStatus *ort_bind_input(OrtIoBinding *b, const char *name, const OrtValue *v) { return ort_api->BindInput(b, name, v); }
static inline OrtStatus *ort_bind_output(OrtIoBinding *b, const char *name, const OrtValue *v) { return ort_api->BindOutput(b, name, v); }
static inline void ort_release_binding(OrtIoBinding *b) { ort_api->ReleaseIoBinding(b); }

// By default glibc raises the size from which a block gets its own mapping to the size of the
// largest freed block, up to 32 MiB. Smaller blocks are in heaps, which return only their end.
static inline int ort_map_large_blocks(int bytes) { return mallopt(M_MMAP_THRESHOLD, bytes); }

static inline OrtStatus *ort_new_run(OrtRunOptions **out) { return ort_api->CreateRunOptions(out); }
static inline OrtStatus *ort_set_run(OrtRunOptions *r, const char *key, const char *value) { return ort_api->AddRunConfigEntry(r, key, value); }
static inline OrtStatus *ort_terminate(OrtRunOptions *r) { return ort_api->RunOptionsSetTerminate(r); }
static inline void ort_release_run(OrtRunOptions *r) { ort_api->ReleaseRunOptions(r); }
static inline OrtStatus *ort_run(OrtSession *s, const OrtRunOptions *r, const OrtIoBinding *b) { return ort_api->RunWithBinding(s, r, b); }
