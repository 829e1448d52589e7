// cublasLt and the CUDA runtime on host memory: a stand-in that lets a compiled library and the tuner
// run where there is no GPU. It computes what the manual says, by columns, and refuses what the
// library would refuse: attributes of the wrong size, leading dimensions that are too small, matrices
// that do not fit each other, workspaces that are too small, allocations while a stream is captured.
//
// Algorithms are numbered; each has a time that a test may set, kept by a clock that only launches
// advance. Algorithm 3 refuses to be launched and algorithm 4 to be captured.
#include "cublas_on_host.h"

#define API extern "C" __attribute__((visibility("default")))

// What a test asks for and sets.
API void on_host_set_time(int algorithm, float us) { times_us.at(algorithm) = us; }
API void on_host_set_version(size_t value) { version = value; }
API int on_host_last_algorithm() { return last_algorithm; }
API void on_host_counts(int64_t* counts) {
  counts[0] = heuristics;
  counts[1] = handles;
  counts[2] = allocations;
  counts[3] = launches;
}
// What was made and is not destroyed: memory, handles, streams, events and graphs.
API int64_t on_host_alive() { return alive; }
API void on_host_watch(int (*function)(const char* call)) { watcher = function; }
API void on_host_capture(int on) { capturing = on != 0; }

API const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "success"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "an unsupported value"
         : status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported"
                                                 : "another status";
}
API size_t cublasLtGetVersion() { return version; }
API cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  ++handles;
  if (!allowed("cublasLtCreate")) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = reinterpret_cast<cublasLtHandle_t>(made(new char));
  return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  unmade(reinterpret_cast<char*>(handle));
  return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size,
                                                     cudaDataType type, uint64_t rows,
                                                     uint64_t cols, int64_t ld) {
  if (size != sizeof(*layout)) return CUBLAS_STATUS_ALLOC_FAILED;
  write(layout, Layout{static_cast<uint64_t>(type), rows, cols, ld, 1, 0});
  return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                    cublasLtMatrixLayoutAttribute_t attribute,
                                                    const void* buffer, size_t size) {
  auto value = read<Layout>(layout);
  int32_t count = 0;
  bool taken = false;
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && (taken = take(buffer, size, &count)))
    value.batch = count;
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    taken = take(buffer, size, &value.stride);
  write(layout, value);
  return taken ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

API cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t operation, size_t size,
                                                   cublasComputeType_t compute,
                                                   cudaDataType_t scale) {
  if (size != sizeof(*operation)) return CUBLAS_STATUS_ALLOC_FAILED;
  write(operation, Operation{static_cast<uint64_t>(compute), static_cast<uint64_t>(scale),
                             CUBLASLT_EPILOGUE_DEFAULT, CUBLAS_OP_N, CUBLAS_OP_N, nullptr});
  return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                                  cublasLtMatmulDescAttributes_t attribute,
                                                  const void* buffer, size_t size) {
  auto value = read<Operation>(operation);
  int32_t transpose = 0;
  uint32_t epilogue = 0;
  bool taken = false;
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA && (taken = take(buffer, size, &transpose)))
    value.transpose_a = transpose;
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB && (taken = take(buffer, size, &transpose)))
    value.transpose_b = transpose;
  if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE && (taken = take(buffer, size, &epilogue)))
    value.epilogue = epilogue;
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER) taken = take(buffer, size, &value.bias);
  write(operation, value);
  return taken ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

API cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                         size_t size) {
  if (size != sizeof(*preference)) return CUBLAS_STATUS_ALLOC_FAILED;
  write(preference, Preference{0, CUBLASLT_REDUCTION_SCHEME_MASK, 0});
  return CUBLAS_STATUS_SUCCESS;
}
API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
    const void* buffer, size_t size) {
  auto value = read<Preference>(preference);
  uint32_t word = 0;
  bool taken = false;
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    taken = take(buffer, size, &value.workspace);
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && (taken = take(buffer, size, &word)))
    value.reduction = word;
  if (attribute >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
      attribute <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES && (taken = take(buffer, size, &word)))
    value.alignments += word;
  write(preference, value);
  return taken ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int requested, cublasLtMatmulHeuristicResult_t results[],
    int* returned) {
  ++heuristics;
  *returned = 0;
  if (!allowed("cublasLtMatmulAlgoGetHeuristic")) return CUBLAS_STATUS_INTERNAL_ERROR;
  const auto op = read<Operation>(operation);
  const auto wanted = read<Preference>(preference);
  if (handle == nullptr || requested <= 0 || wanted.alignments != 4 * 16 ||
      wanted.reduction != (read<Layout>(d).type == CUDA_R_32F
                               ? CUBLASLT_REDUCTION_SCHEME_MASK
                               : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) ||
      ((op.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) != (op.bias != nullptr) ||
      !fits(op, read<Layout>(a), read<Layout>(b), read<Layout>(c), read<Layout>(d)))
    return CUBLAS_STATUS_INVALID_VALUE;
  for (int i = 0; i < kAlgorithms && *returned < requested; ++i) {
    if (workspace_of(i) > wanted.workspace) continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*returned)++];
    result = {};
    result.algo.data[0] = static_cast<uint64_t>(i);
    result.algo.data[7] = 0xffeeddccbbaa9988u;
    result.workspaceSize = workspace_of(i);
    result.state = CUBLAS_STATUS_SUCCESS;
  }
  return *returned > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
API cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                           cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                           cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                           const cublasLtMatmulAlgo_t* algorithm,
                                           cublasLtMatmulHeuristicResult_t* result) {
  if (algorithm->data[7] != 0xffeeddccbbaa9988u) return CUBLAS_STATUS_INVALID_VALUE;
  result->workspaceSize = workspace_of(static_cast<int>(algorithm->data[0]));
  return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                  const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                                  const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                                  const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                                  cublasLtMatrixLayout_t d_layout,
                                  const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                                  size_t workspace_bytes, cudaStream_t) {
  const auto op = read<Operation>(operation);
  const auto la = read<Layout>(a_layout), lb = read<Layout>(b_layout);
  const auto lc = read<Layout>(c_layout), ld = read<Layout>(d_layout);
  const int number = static_cast<int>(algorithm->data[0]);
  if (handle == nullptr || !fits(op, la, lb, lc, ld) || workspace_bytes < workspace_of(number) ||
      (workspace_bytes > 0 && workspace == nullptr))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!capturing && !allowed("cublasLtMatmul")) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (number == kRefuses) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (number == kNotCapturable && capturing) {
    capture_broken = true;
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  last_algorithm = number;
  ++launches;
  (capturing ? captured_us : clock_us) += times_us.at(number);
  const float scale = *static_cast<const float*>(alpha), kept = *static_cast<const float*>(beta);
  const int64_t inner = static_cast<int64_t>(op.transpose_a == CUBLAS_OP_T ? la.rows : la.cols);
  for (int64_t batch = 0; batch < ld.batch; ++batch)
    for (int64_t j = 0; j < static_cast<int64_t>(ld.cols); ++j)
      for (int64_t i = 0; i < static_cast<int64_t>(ld.rows); ++i) {
        double sum = 0;
        for (int64_t l = 0; l < inner; ++l) {
          const int64_t at = op.transpose_a == CUBLAS_OP_T ? l + i * la.ld : i + l * la.ld;
          const int64_t bt = op.transpose_b == CUBLAS_OP_T ? j + l * lb.ld : l + j * lb.ld;
          sum += load(a, batch * la.stride + at, la.type) * load(b, batch * lb.stride + bt, lb.type);
        }
        const int64_t place = batch * ld.stride + i + j * ld.ld;
        double value = scale * sum;
        if (kept != 0.0f) value += kept * load(c, place, lc.type);
        if (op.epilogue & CUBLASLT_EPILOGUE_BIAS) value += load(op.bias, i, ld.type);
        store(d, place, ld.type, activate(value, op.epilogue));
      }
  return CUBLAS_STATUS_SUCCESS;
}

API const char* cudaGetErrorString(cudaError_t) { return "a CUDA error"; }
API cudaError_t cudaGetLastError() { return cudaSuccess; }
API cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
API cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}
API cudaError_t cudaDriverGetVersion(int* value) {
  *value = 13000;
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9
           : attribute == cudaDevAttrMultiProcessorCount  ? 132
           : attribute == cudaDevAttrL2CacheSize          ? 1 << 16
                                                          : 0;
  return cudaSuccess;
}
API cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (capturing) return cudaErrorStreamCaptureUnsupported;
  ++allocations;
  if (!allowed("cudaMalloc")) return cudaErrorMemoryAllocation;
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  ++alive;
  return cudaSuccess;
}
API cudaError_t cudaFree(void* data) {
  allowed("cudaFree");
  if (data != nullptr) --alive;
  std::free(data);
  return cudaSuccess;
}
API cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  std::memset(data, value, bytes);
  return cudaSuccess;
}
API cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(made(new char));
  return cudaSuccess;
}
API cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  unmade(reinterpret_cast<char*>(stream));
  return cudaSuccess;
}
API cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
API cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = reinterpret_cast<cudaEvent_t>(made(new float(0)));
  return cudaSuccess;
}
API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  unmade(reinterpret_cast<float*>(event));
  return cudaSuccess;
}
API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  *reinterpret_cast<float*>(event) = clock_us;
  return cudaSuccess;
}
API cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  *ms = (*reinterpret_cast<float*>(end) - *reinterpret_cast<float*>(begin)) * 1e-3f;
  return cudaSuccess;
}
API cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  capturing = true;
  capture_broken = false;
  captured_us = 0.0f;
  return cudaSuccess;
}
API cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  capturing = false;
  *graph = nullptr;
  if (capture_broken) return cudaErrorStreamCaptureInvalidated;
  *graph = reinterpret_cast<cudaGraph_t>(made(new float(captured_us)));
  return cudaSuccess;
}
API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                     unsigned long long) {
  if (!allowed("cudaGraphInstantiate")) return cudaErrorUnknown;
  *executable = reinterpret_cast<cudaGraphExec_t>(made(new float(*reinterpret_cast<float*>(graph))));
  return cudaSuccess;
}
API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  unmade(reinterpret_cast<float*>(graph));
  return cudaSuccess;
}
API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  unmade(reinterpret_cast<float*>(graph));
  return cudaSuccess;
}
API cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  if (!allowed("cudaGraphLaunch")) return cudaErrorUnknown;
  clock_us += *reinterpret_cast<float*>(graph);
  return cudaSuccess;
}
