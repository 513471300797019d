#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "glue.h"

const OrtApi *ort_api;
OrtEnv *ort_env;

static const OrtApiBase *base_of(const char *path, const char **why) {
	void *lib = dlopen(path, RTLD_LAZY); // stays loaded for its use
	if (lib == NULL) {
		*why = dlerror();
		return NULL;
	}
	const OrtApiBase *(*base)(void) = (const OrtApiBase *(*)(void))dlsym(lib, "OrtGetApiBase");
	if (base == NULL || base() == NULL) {
		dlclose(lib);
		*why = "it has no OrtGetApiBase, so it is not ONNX Runtime";
		return NULL;
	}
	return base();
}

const char *ort_version(const char *path, const char **why) {
	const OrtApiBase *base = base_of(path, why);
	if (base == NULL) return NULL;
	const char *version = base->GetVersionString();
	if (version == NULL) *why = "it has no version, so it is not ONNX Runtime";
	return version;
}

OrtStatus *ort_open(const char *path, const char **why) {
	const OrtApiBase *base = base_of(path, why);
	if (base == NULL) return NULL;
	ort_api = base->GetApi(ORT_API_VERSION);
	if (ort_api == NULL) {
		*why = "it does not have the C API that this program is built for";
		return NULL;
	}
	// Errors are returned; the library's own log would print them a second time.
	return ort_api->CreateEnv(ORT_LOGGING_LEVEL_FATAL, "edgert", &ort_env);
}

void *ort_zeros(size_t bytes) {
	void *p = NULL;
	if (posix_memalign(&p, 64, bytes) != 0) return NULL;
	return memset(p, 0, bytes); // makes every page present
}

OrtStatus *ort_append_cuda(OrtSessionOptions *options, const char *const *keys, const char *const *values, size_t n, void *stream) {
	OrtCUDAProviderOptionsV2 *cuda = NULL;
	OrtStatus *s = ort_api->CreateCUDAProviderOptions(&cuda);
	if (s != NULL) return s;
	s = ort_api->UpdateCUDAProviderOptions(cuda, keys, values, n);
	if (s == NULL && stream != NULL) s = ort_api->UpdateCUDAProviderOptionsWithValue(cuda, "user_compute_stream", stream);
	if (s == NULL) s = ort_api->SessionOptionsAppendExecutionProvider_CUDA_V2(options, cuda);
	ort_api->ReleaseCUDAProviderOptions(cuda);
	return s;
}

OrtStatus *ort_append_tensorrt(OrtSessionOptions *options, const char *const *keys, const char *const *values, size_t n, void *stream) {
	OrtTensorRTProviderOptionsV2 *trt = NULL;
	OrtStatus *s = ort_api->CreateTensorRTProviderOptions(&trt);
	if (s != NULL) return s;
	s = ort_api->UpdateTensorRTProviderOptions(trt, keys, values, n);
	if (s == NULL && stream != NULL) s = ort_api->UpdateTensorRTProviderOptionsWithValue(trt, "user_compute_stream", stream);
	if (s == NULL) s = ort_api->SessionOptionsAppendExecutionProvider_TensorRT_V2(options, trt);
	ort_api->ReleaseTensorRTProviderOptions(trt);
	return s;
}

static OrtStatus *tensor_type(const OrtTypeInfo *info, int *type, int64_t *dims, int most, int *rank) {
	const OrtTensorTypeAndShapeInfo *tensor = NULL;
	OrtStatus *s = ort_api->CastTypeInfoToTensorInfo(info, &tensor);
	*rank = -1;
	if (s != NULL || tensor == NULL) return s;
	ONNXTensorElementDataType element;
	size_t n = 0;
	if ((s = ort_api->GetTensorElementType(tensor, &element)) != NULL) return s;
	if ((s = ort_api->GetDimensionsCount(tensor, &n)) != NULL) return s;
	*type = (int)element;
	*rank = (int)n;
	return ort_api->GetDimensions(tensor, dims, n < (size_t)most ? n : (size_t)most);
}

OrtStatus *ort_port(const OrtSession *session, int output, size_t i, char **name, int *type, int64_t *dims, int most, int *rank) {
	OrtAllocator *allocator = NULL;
	OrtTypeInfo *info = NULL;
	OrtStatus *s = ort_api->GetAllocatorWithDefaultOptions(&allocator);
	if (s != NULL) return s;
	s = output ? ort_api->SessionGetOutputName(session, i, allocator, name) : ort_api->SessionGetInputName(session, i, allocator, name);
	if (s != NULL) return s;
	s = output ? ort_api->SessionGetOutputTypeInfo(session, i, &info) : ort_api->SessionGetInputTypeInfo(session, i, &info);
	if (s != NULL) return s;
	s = tensor_type(info, type, dims, most, rank);
	ort_api->ReleaseTypeInfo(info);
	return s;
}

void ort_free(char *name) {
	OrtAllocator *allocator = NULL;
	OrtStatus *s = ort_api->GetAllocatorWithDefaultOptions(&allocator);
	if (s == NULL) s = ort_api->AllocatorFree(allocator, name);
	if (s != NULL) ort_api->ReleaseStatus(s);
}
