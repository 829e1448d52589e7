// Products of tensors in bfloat16, summed in float32: where the processor has AVX-512 BF16 but no AMX,
// the library multiplies float32 tensors in float32 whatever it is allowed. What products alone read
// is rounded once, by the kernel that computes it or in a pass; all else stays float32.
#pragma once

#include "../processor.h"
#include "post_ops.h"

namespace collage_onednn {

inline bool multiplies_bfloat16(const std::string& implementation) {
  return implementation.find("amx") != std::string::npos ||
         implementation.find("bf16") != std::string::npos;
}

inline int64_t elements_of(const dims& extents) {
  int64_t count = 1;
  for (auto d : extents) count *= d;
  return count;
}

// To round a number takes as long as seven products are faster by.
constexpr int64_t kWorthRounding = 16;

inline bool Region::is_rounded(int tensor) const {
  return md_of(tensor).get_data_type() == memory::data_type::bf16;
}

inline bool Region::multiplies_rounded() const {
  return plan_.precision == Precision::bfloat16 && has_isa(dnnl_cpu_isa_avx512_core_bf16) &&
         !has_isa(dnnl_cpu_isa_avx512_core_amx);
}

// Whether a convolution reads rounded numbers. Kernels for depthwise ones are as fast in float32.
inline bool Region::rounds_pictures(const Op& op) const {
  if (!multiplies_rounded() || scaling_of(op.inputs[1])) return false;
  const dims &x = tensor_dims(op.inputs[0]), &w = tensor_dims(op.inputs[1]);
  const dims& out = tensor_dims(op.outputs[0]);
  const int64_t of_result = elements_of(w) / out[1];
  return is_rounded(op.inputs[0]) ||
         elements_of(out) * of_result >= kWorthRounding * elements_of(x);
}

inline bool Region::rounds_matrices(const Op& op) const {
  if (!multiplies_rounded() || op.kind != OpKind::matmul) return false;
  const int a = op.inputs[0], b = op.inputs[1];
  const int64_t left = is_rounded(a) ? 0 : elements_of(tensor_dims(a));
  const int64_t right = is_constant(b) || is_rounded(b) ? 0 : elements_of(tensor_dims(b));
  const int64_t terms = tensor_dims(a).back();
  return elements_of(tensor_dims(op.outputs[0])) * terms >= kWorthRounding * (left + right);
}

// Whether a result is read by nothing but products, which round it.
inline bool Region::only_multiplied(int tensor) const {
  bool read = false;
  for (const Op& op : plan_.ops) {
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] != tensor) continue;
      const bool operand = (op.kind == OpKind::conv && i == 0 && !scaling_of(op.inputs[1])) ||
                           (op.kind == OpKind::matmul && i < 2);
      if (!operand) return false;
      read = true;
    }
    for (const PostOp& p : op.post_ops)
      if (p.is_binary && p.tensor == tensor) return false;
  }
  for (int output : plan_.outputs)
    if (output == tensor) return false;
  return read;
}

// Of a product of rounded numbers whose kernel takes the first `fused` post-operators.
inline Region::Types Region::rounded_types(const Op& op, size_t fused) const {
  const bool whole = fused == op.post_ops.size() && find_sum(op, fused) < 0;
  const auto rounded = memory::data_type::bf16;
  return {rounded, whole && only_multiplied(op.outputs[0]) ? rounded : memory::data_type::f32};
}

}  // namespace collage_onednn
