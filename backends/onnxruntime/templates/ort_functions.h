/* The part of onnxruntime's C API that is used here.
 *
 * Its package in Python has the library and no header. The API is a table of functions to which
 * releases only append (onnxruntime_c_api.h, "OrtApi"; docs/Versioning.md), so a function's place is
 * part of the binary interface. All but the releasing ones return NULL or a status to be released.
 */
#ifndef COLLAGE_ORT_FUNCTIONS_H_
#define COLLAGE_ORT_FUNCTIONS_H_

#include <stddef.h>
#include <stdint.h>

typedef struct OrtStatus OrtStatus;
typedef struct OrtEnv OrtEnv;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtValue OrtValue;

enum { ORT_API_VERSION = 18 }; /* which was the first with all of these */
enum { ORT_LOGGING_LEVEL_ERROR = 3 };
enum { ORT_DEVICE_ALLOCATOR = 0, ORT_MEM_TYPE_DEFAULT = 0 };

/* X(place, result, name, arguments) */
#define ORT_FUNCTIONS(X)                                                                           \
  X(2, const char*, GetErrorMessage, (const OrtStatus*))                                           \
  X(3, OrtStatus*, CreateEnv, (int32_t level, const char* name, OrtEnv**))                         \
  X(8, OrtStatus*, CreateSessionFromArray,                                                         \
    (const OrtEnv*, const void* model, size_t size, const OrtSessionOptions*, OrtSession**))       \
  X(9, OrtStatus*, Run,                                                                            \
    (OrtSession*, const OrtRunOptions*, const char* const* input_names,                            \
     const OrtValue* const* inputs, size_t num_inputs, const char* const* output_names,            \
     size_t num_outputs, OrtValue** outputs))                                                      \
  X(10, OrtStatus*, CreateSessionOptions, (OrtSessionOptions**))                                   \
  X(22, OrtStatus*, SetSessionLogSeverityLevel, (OrtSessionOptions*, int level))                   \
  X(23, OrtStatus*, SetSessionGraphOptimizationLevel, (OrtSessionOptions*, int32_t level))         \
  X(24, OrtStatus*, SetIntraOpNumThreads, (OrtSessionOptions*, int count))                         \
  X(25, OrtStatus*, SetInterOpNumThreads, (OrtSessionOptions*, int count))                         \
  X(49, OrtStatus*, CreateTensorWithDataAsOrtValue,                                                \
    (const OrtMemoryInfo*, void* data, size_t size, const int64_t* shape, size_t rank,             \
     int32_t type, OrtValue**))                                                                    \
  X(69, OrtStatus*, CreateCpuMemoryInfo, (int32_t allocator, int32_t type, OrtMemoryInfo**))       \
  X(92, void, ReleaseEnv, (OrtEnv*))                                                               \
  X(93, void, ReleaseStatus, (OrtStatus*))                                                         \
  X(94, void, ReleaseMemoryInfo, (OrtMemoryInfo*))                                                 \
  X(95, void, ReleaseSession, (OrtSession*))                                                       \
  X(96, void, ReleaseValue, (OrtValue*))                                                           \
  X(100, void, ReleaseSessionOptions, (OrtSessionOptions*))                                        \
  X(130, OrtStatus*, AddSessionConfigEntry,                                                        \
    (OrtSessionOptions*, const char* key, const char* value))                                      \
  X(279, OrtStatus*, AddExternalInitializersFromFilesInMemory,                                     \
    (OrtSessionOptions*, const char* const* names, char* const* data, const size_t* sizes,         \
     size_t count))

/* What the library's one symbol, OrtGetApiBase, gives. */
typedef struct {
  const void* const* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)(void);
} OrtApiBase;

#endif /* COLLAGE_ORT_FUNCTIONS_H_ */
