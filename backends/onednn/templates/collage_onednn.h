/* What a region's stub hands to the runtime: plain C, so that stubs compile in milliseconds. */
#ifndef COLLAGE_ONEDNN_H
#define COLLAGE_ONEDNN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The words are the plan in the encoding of plan.py, read by plan.h. */
typedef struct {
  const char* name;
  const int64_t* words;
  int64_t num_words;
  const void* const* constants;
  void* state; /* owned by the runtime; NULL until the first call */
} collage_onednn_region;

/* args: num_args values as TVM FFI passes them (TVMFFIAny), inputs first, then outputs. */
int collage_onednn_run(collage_onednn_region* region, const void* args, int32_t num_args);
void collage_onednn_release(collage_onednn_region* region);

#ifdef __cplusplus
}
#endif
#endif
