/* What a cuDNN partition is, as plain data: the generated files define it, the runtime reads it.
 *
 * A graph is a list of tensors and of operations on them, as cuDNN's graph API has them: extents
 * in cuDNN's order (batch, channels, [depth,] height, width), memory layout by strides. The operations that
 * make an operation's inputs come before it. Where cuDNN cannot run all of them as one, they are
 * split after the first: a virtual tensor between the parts then lies in the workspace.
 */
#ifndef COLLAGE_CUDNN_H_
#define COLLAGE_CUDNN_H_

#include <stddef.h>
#include <stdint.h>
#include <tvm/ffi/c_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  COLLAGE_CUDNN_MAX_RANK = 5,
  COLLAGE_CUDNN_MAX_INPUTS = 4,
  COLLAGE_CUDNN_MAX_INTS = 12,
  COLLAGE_CUDNN_MAX_FLOATS = 3,
  COLLAGE_CUDNN_MAX_SLOTS = 8,
  COLLAGE_CUDNN_MAX_DEVICES = 16,
};

typedef enum {
  COLLAGE_CUDNN_FLOAT16,
  COLLAGE_CUDNN_BFLOAT16,
  COLLAGE_CUDNN_FLOAT32,
} collage_cudnn_dtype;

typedef enum {
  /* x, w. ints, each per spatial dimension: padding before, padding after, strides, dilation. */
  COLLAGE_CUDNN_CONV,
  /* The gradient of its data, which is a transposed convolution: y, w, and ints as above. */
  COLLAGE_CUDNN_CONV_DGRAD,
  /* a (batch, m, k), b (batch, k, n). */
  COLLAGE_CUDNN_MATMUL,
  COLLAGE_CUDNN_ADD,
  /* floats: lower and upper bound, the slope below the lower one; the upper may be infinite. */
  COLLAGE_CUDNN_RELU,
  COLLAGE_CUDNN_SIGMOID,
  COLLAGE_CUDNN_TANH,
  COLLAGE_CUDNN_SILU,
  COLLAGE_CUDNN_GELU,
  COLLAGE_CUDNN_GELU_TANH,
  /* x. ints, each per spatial dimension: window, strides, padding before, padding after. */
  COLLAGE_CUDNN_MAX_POOL,
  COLLAGE_CUDNN_AVG_POOL_INCLUDE_PADDING,
  COLLAGE_CUDNN_AVG_POOL_EXCLUDE_PADDING,
  /* x, over its last dimension. */
  COLLAGE_CUDNN_SOFTMAX,
  /* x, scale, bias, over dimension 1. floats: epsilon. */
  COLLAGE_CUDNN_LAYER_NORM,
  /* x, scale, over dimension 1. floats: epsilon. */
  COLLAGE_CUDNN_RMS_NORM,
  /* q, k, v (batch, heads, length, width), optional bias added to the scaled scores.
   * ints: 0 no mask, 1 causal from the top left, 2 causal to the bottom right. floats: scale. */
  COLLAGE_CUDNN_ATTENTION,
} collage_cudnn_kind;

typedef struct {
  int32_t dtype;
  int32_t slot; /* position among the graph's inputs and outputs, or -1: virtual */
  int32_t rank;
  int64_t dims[COLLAGE_CUDNN_MAX_RANK];
  int64_t strides[COLLAGE_CUDNN_MAX_RANK];
} collage_cudnn_tensor;

typedef struct {
  int32_t kind;
  int32_t num_inputs;
  int32_t inputs[COLLAGE_CUDNN_MAX_INPUTS]; /* indices of tensors */
  int32_t output;
  int64_t ints[COLLAGE_CUDNN_MAX_INTS];
  double floats[COLLAGE_CUDNN_MAX_FLOATS];
} collage_cudnn_operation;

typedef struct {
  const char* name; /* for messages */
  int32_t num_tensors;
  int32_t num_operations;
  int32_t num_slots; /* the output is the last one */
  const collage_cudnn_tensor* tensors;
  const collage_cudnn_operation* operations;
  int64_t workspace_limit; /* bytes */
  int32_t allow_tf32;
  int32_t split; /* whether a graph that cuDNN refuses may be split after its first operation */
} collage_cudnn_graph;

/* A graph with its plan, shared by all partitions that do the same. The plan is the program of
 * cudnn_program.h as it was built on a GPU at compile time, or empty. */
typedef struct {
  const collage_cudnn_graph* graph;
  const unsigned char* plan;
  size_t plan_bytes;
  void* programs[COLLAGE_CUDNN_MAX_DEVICES]; /* made by the first call on a device */
} collage_cudnn_shared;

/* One partition: which argument is which slot of its graph, and what its last call bound. */
typedef struct {
  collage_cudnn_shared* shared;
  const char* symbol;
  int32_t num_arguments;
  int32_t arguments[COLLAGE_CUDNN_MAX_SLOTS];
  void* bindings[COLLAGE_CUDNN_MAX_DEVICES];
} collage_cudnn_site;

/* Runs a partition on TVM's current stream. Returns 0, or -1 with an error raised. */
int collage_cudnn_call(collage_cudnn_site* site, const TVMFFIAny* args, int32_t num_args);

/* Makes the shared workspace at least this large when it is first allocated. */
void collage_cudnn_reserve_workspace(size_t bytes);

#ifdef __cplusplus
}
#endif

#endif /* COLLAGE_CUDNN_H_ */
