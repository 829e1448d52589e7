/* Run a bundle from C, without Python, from several threads, and print what comes out.
 *
 *   run_bundle_c BUNDLE [INPUT_FILE...]
 *
 * Files hold an input's elements as they lie in memory (numpy's array.tofile), in the manifest's order.
 * Inputs without a file are filled with zeros. Outputs are written to NAME.bin, in this folder.
 */
#define _POSIX_C_SOURCE 200112L

#include <collage/bundle.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, ALIGNMENT = 64 };

typedef struct {
  const collage_bundle *bundle;
  collage_context *context;
  const void *const *inputs;
  void **outputs;
  int failed;
  char error[512];
} work;

static void die(const char *message) {
  fprintf(stderr, "error: %s\n", message);
  exit(1);
}

/* Aligned so that it is used without a copy. */
static void *memory(size_t bytes) {
  void *made = NULL;
  if (posix_memalign(&made, ALIGNMENT, bytes ? bytes : 1)) die("out of memory");
  memset(made, 0, bytes);
  return made;
}

static void *run(void *argument) {
  work *mine = argument;
  mine->failed = collage_context_new(mine->bundle, &mine->context) ||
                 collage_context_run(mine->context, mine->inputs, mine->outputs);
  if (mine->failed) snprintf(mine->error, sizeof mine->error, "%s", collage_last_error());
  return NULL;
}

static void read_file(const char *path, void *into, size_t bytes) {
  FILE *file = fopen(path, "rb");
  if (!file || fread(into, 1, bytes, file) != bytes) die("an input's file is missing or too short");
  fclose(file);
}

static void write_file(const char *name, const void *from, size_t bytes) {
  char path[512];
  snprintf(path, sizeof path, "%s.bin", name);
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(from, 1, bytes, file) != bytes || fclose(file)) die("cannot write a result");
}

int main(int count, char **words) {
  collage_bundle *bundle = NULL;
  work works[THREADS];
  pthread_t threads[THREADS];
  if (count < 2) die("which bundle?");
  if (collage_bundle_open(words[1], &bundle)) die(collage_last_error());

  size_t num_inputs = collage_bundle_num_inputs(bundle);
  size_t num_outputs = collage_bundle_num_outputs(bundle);
  void **inputs = memory(num_inputs * sizeof *inputs);
  for (size_t i = 0; i < num_inputs; ++i) {
    const collage_tensor *info = collage_bundle_input(bundle, i);
    inputs[i] = memory(info->bytes);
    if (2 + i < (size_t)count) read_file(words[2 + i], inputs[i], info->bytes);
  }
  for (int t = 0; t < THREADS; ++t) {
    works[t] = (work){bundle, NULL, (const void *const *)inputs, memory(num_outputs * sizeof(void *)),
                      0, ""};
    for (size_t o = 0; o < num_outputs; ++o)
      works[t].outputs[o] = memory(collage_bundle_output(bundle, o)->bytes);
    if (pthread_create(&threads[t], NULL, run, &works[t])) die("cannot start a thread");
  }
  for (int t = 0; t < THREADS; ++t) pthread_join(threads[t], NULL);

  for (int t = 0; t < THREADS; ++t) {
    if (works[t].failed) die(works[t].error);
    for (size_t o = 0; o < num_outputs; ++o) {
      size_t bytes = collage_context_result(works[0].context, o)->bytes;
      if (collage_context_result(works[t].context, o)->bytes != bytes ||
          memcmp(works[t].outputs[o], works[0].outputs[o], bytes))
        die("threads disagree");
    }
  }
  for (size_t o = 0; o < num_outputs; ++o) {
    /* Of what came out: data may choose its rows. */
    const collage_tensor *info = collage_context_result(works[0].context, o);
    printf("%s %s[", info->name, info->dtype);
    for (size_t axis = 0; axis < info->rank; ++axis)
      printf(axis ? ", %lld" : "%lld", (long long)info->shape[axis]);
    printf("] %zu bytes\n", info->bytes);
    write_file(info->name, works[0].outputs[o], info->bytes);
  }
  printf("%d threads agree\n", THREADS);
  for (int t = 0; t < THREADS; ++t) {
    for (size_t o = 0; o < num_outputs; ++o) free(works[t].outputs[o]);
    free(works[t].outputs);
    collage_context_free(works[t].context);
  }
  for (size_t i = 0; i < num_inputs; ++i) free(inputs[i]);
  free(inputs);
  collage_bundle_close(bundle);
  return 0;
}
