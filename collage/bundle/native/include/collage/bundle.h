/* Load a bundle and run it, in C99, with TVM's runtime and no Python:
 *
 *   collage_bundle *bundle;
 *   collage_context *context;
 *   if (collage_bundle_open("resnet50.bundle", &bundle)) puts(collage_last_error());
 *   if (collage_context_new(bundle, &context)) puts(collage_last_error());   // one per thread
 *   const void *inputs[] = {image};
 *   void *outputs[] = {scores};
 *   if (collage_context_run(context, inputs, outputs)) puts(collage_last_error());
 *
 * What is declared here is one C++ file, which `collage native --source` names: compile it with
 * `collage native --cflags` and link with `--ldflags`. examples/cpp has a program and a CMake file.
 */
#ifndef COLLAGE_BUNDLE_H_
#define COLLAGE_BUNDLE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct collage_bundle collage_bundle;
typedef struct collage_context collage_context;

/* Memory of the bundle, as long as it is open. `shape` has `rank` extents. */
typedef struct {
  const char *name;
  const char *dtype; /* as numpy calls it: float32, int64, ... */
  const int64_t *shape;
  size_t rank;
  size_t bytes;
} collage_tensor;

/* Functions that return int: 0, or -1 where collage_last_error() says in one line what is wrong. */

/* Checks all that collage.load checks, hashes of files included, before anything runs. */
int collage_bundle_open(const char *folder, collage_bundle **bundle);
/* As above; `verify` 0 looks at the sizes of files alone, `device_id` is a GPU's. */
int collage_bundle_open_with(const char *folder, int verify, int device_id,
                             collage_bundle **bundle);
/* NULL is nothing to close. Contexts have to be freed before. */
void collage_bundle_close(collage_bundle *bundle);

size_t collage_bundle_num_inputs(const collage_bundle *bundle);
size_t collage_bundle_num_outputs(const collage_bundle *bundle);
/* In the manifest's order; NULL behind the last one. Where data choose an output's rows, its shape has
 * the most that there may be. */
const collage_tensor *collage_bundle_input(const collage_bundle *bundle, size_t index);
const collage_tensor *collage_bundle_output(const collage_bundle *bundle, size_t index);

/* The registers of a call: each thread has its own; code and weights are shared. */
int collage_context_new(const collage_bundle *bundle, collage_context **context);
/* NULL is nothing to free. */
void collage_context_free(collage_context *context);

/* One pointer for each input and output, to the host's memory, of as many bytes as the manifest
 * says, elements in C's order. Inputs that are aligned to 64 bytes are not copied on a CPU, and never
 * written to; results are copied to `outputs`, which must not overlap the inputs. */
int collage_context_run(collage_context *context, const void *const *inputs, void *const *outputs);

/* What the context's last call gave for an output: shape and bytes with the rows that there are. They
 * stay until its next call; NULL before the first one, and behind the last output. */
const collage_tensor *collage_context_result(const collage_context *context, size_t index);

/* On a GPU: pointers to the device's memory, aligned to 64 bytes, and a cudaStream_t. The call comes
 * after what the stream holds and before what it is given next, and returns at once: inputs and
 * outputs have to stay until the stream is done with it. NULL is CUDA's default stream. */
int collage_context_run_on(collage_context *context, const void *const *inputs,
                           void *const *outputs, void *stream);

/* What the last call that failed in this thread says. */
const char *collage_last_error(void);

#ifdef __cplusplus
}
#endif

#endif /* COLLAGE_BUNDLE_H_ */
