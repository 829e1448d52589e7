// Adds the constants that TVM's loader gave to the arguments of a partition function.
#include <tvm/ffi/c_api.h>

extern "C" {

int __tvm_ffi_@symbol@_bound(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result);

static TVMFFIAny collage_bound_@symbol@[@constants@];

static int collage_call_@symbol@(const char* name, size_t size, const TVMFFIAny* args, int32_t count,
                                 TVMFFIAny* result) {
  TVMFFIByteArray text = {name, size};
  TVMFFIObjectHandle function = 0;
  if (TVMFFIFunctionGetGlobal(&text, &function) != 0) return -1;
  const int code = TVMFFIFunctionCall(function, const_cast<TVMFFIAny*>(args), count, result);
  TVMFFIObjectDecRef(function);
  return code;
}

// Called once, with an array of the constants; what it keeps lives as long as the process.
__attribute__((visibility("default"))) int __tvm_ffi___init_@symbol@(
    void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  for (int i = 0; i < @constants@; ++i) {
    TVMFFIAny place[4] = {};
    place[0] = args[0];
    place[1].type_index = kTVMFFIInt;
    place[1].v_int64 = i;
    TVMFFIAny* kept = &collage_bound_@symbol@[i];
    if (kept->type_index != kTVMFFINone) continue;  // The library was loaded before.
    if (collage_call_@symbol@("ffi.ArrayGetItem", 16, place, 2, kept) != 0) return -1;
    if (@device@ == kDLCPU) continue;
    place[0] = *kept;
    kept->type_index = kTVMFFINone;
    place[1].v_int64 = @device@;
    place[2].type_index = place[3].type_index = kTVMFFIInt;
    place[2].v_int64 = 0;
    // The same that moves a virtual machine's own constants.
    if (collage_call_@symbol@("vm.builtin.to_device", 20, place, 3, kept) != 0) return -1;
  }
  result->type_index = kTVMFFIInt;
  result->v_int64 = 0;
  return 0;
}

__attribute__((visibility("default"))) int __tvm_ffi_@symbol@(void* self, const TVMFFIAny* args,
                                                              int32_t count, TVMFFIAny* result) {
  TVMFFIAny all[@inputs@ + @constants@ + @outputs@];
  if (count != @inputs@ + @outputs@) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "@symbol@ takes @inputs@ inputs and @outputs@ outputs");
    return -1;
  }
  for (int i = 0; i < @inputs@; ++i) all[i] = args[i];
  for (int i = 0; i < @constants@; ++i) all[@inputs@ + i] = collage_bound_@symbol@[i];
  for (int i = @inputs@; i < count; ++i) all[@constants@ + i] = args[i];
  return __tvm_ffi_@symbol@_bound(self, all, count + @constants@, result);
}
}
