/* Descriptors of cuDNN's backend API, which everything of a graph and its plan is made of. */
#ifndef COLLAGE_CUDNN_DESCRIPTOR_H_
#define COLLAGE_CUDNN_DESCRIPTOR_H_

#include <cudnn_backend.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cudnn_program.h"

namespace collage_cudnn {

inline void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char details[512] = {};
  cudnnGetLastErrorString(details, sizeof(details));
  throw Failure(std::string(what) + ": " + cudnnGetErrorString(status) + " " + details);
}

/* A void* is a descriptor, as cudnnBackendDescriptor_t is no type of its own; memory is a Pointer. */
struct Pointer {
  void* data;

  bool operator==(const Pointer& other) const { return data == other.data; }
};
static_assert(sizeof(Pointer) == sizeof(void*), "cuDNN reads arrays of them");

template <typename T>
inline constexpr auto kTypeOf = nullptr;  // which is no attribute's type
template <>
inline constexpr auto kTypeOf<Pointer> = CUDNN_TYPE_VOID_PTR;
template <>
inline constexpr auto kTypeOf<cudnnBackendDescriptor_t> = CUDNN_TYPE_BACKEND_DESCRIPTOR;
template <>
inline constexpr auto kTypeOf<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <>
inline constexpr auto kTypeOf<bool> = CUDNN_TYPE_BOOLEAN;
template <>
inline constexpr auto kTypeOf<char> = CUDNN_TYPE_CHAR;
template <>
inline constexpr auto kTypeOf<float> = CUDNN_TYPE_FLOAT;
template <>
inline constexpr auto kTypeOf<double> = CUDNN_TYPE_DOUBLE;
template <>
inline constexpr auto kTypeOf<int64_t> = CUDNN_TYPE_INT64;
template <>
inline constexpr auto kTypeOf<cudnnFraction_t> = CUDNN_TYPE_FRACTION;
template <>
inline constexpr auto kTypeOf<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
inline constexpr auto kTypeOf<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <>
inline constexpr auto kTypeOf<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <>
inline constexpr auto kTypeOf<cudnnNanPropagation_t> = CUDNN_TYPE_NAN_PROPOGATION;
template <>
inline constexpr auto kTypeOf<cudnnReduceTensorOp_t> = CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
template <>
inline constexpr auto kTypeOf<cudnnResampleMode_t> = CUDNN_TYPE_RESAMPLE_MODE;
template <>
inline constexpr auto kTypeOf<cudnnPaddingMode_t> = CUDNN_TYPE_PADDING_MODE;
template <>
inline constexpr auto kTypeOf<cudnnBackendNormMode_t> = CUDNN_TYPE_NORM_MODE;
template <>
inline constexpr auto kTypeOf<cudnnBackendNormFwdPhase_t> = CUDNN_TYPE_NORM_FWD_PHASE;
template <>
inline constexpr auto kTypeOf<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <>
inline constexpr auto kTypeOf<cudnnBackendKnobType_t> = CUDNN_TYPE_KNOB_TYPE;
template <>
inline constexpr auto kTypeOf<cudnnBackendNumericalNote_t> = CUDNN_TYPE_NUMERICAL_NOTE;

/* One descriptor: attributes are set, then it is finished. */
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    check(cudnnBackendCreateDescriptor(type, &raw_), "creating a descriptor");
  }
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Descriptor() {
    if (raw_ != nullptr) cudnnBackendDestroyDescriptor(raw_);
  }

  cudnnBackendDescriptor_t raw() const { return raw_; }

  template <typename T>
  Descriptor& set(cudnnBackendAttributeName_t name, const T* values, size_t count) {
    check(cudnnBackendSetAttribute(raw_, name, kTypeOf<T>, static_cast<int64_t>(count), values),
          "setting an attribute");
    return *this;
  }
  template <typename T>
  Descriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    return set(name, &value, 1);
  }
  template <typename T>
  Descriptor& set(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
    return set(name, values.data(), values.size());
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    return set(name, other.raw_);
  }

  Descriptor& finish(const char* what) {
    check(cudnnBackendFinalize(raw_), what);
    return *this;
  }

  /* How many values an attribute has. */
  template <typename T>
  size_t count(cudnnBackendAttributeName_t name) const {
    int64_t found = 0;
    check(cudnnBackendGetAttribute(raw_, name, kTypeOf<T>, 0, &found, nullptr),
          "asking for an attribute");
    return static_cast<size_t>(found);
  }
  /* Descriptors are filled in: the given ones must have been created. */
  template <typename T>
  std::vector<T> get(cudnnBackendAttributeName_t name, std::vector<T> values) const {
    int64_t found = 0;
    check(cudnnBackendGetAttribute(raw_, name, kTypeOf<T>, static_cast<int64_t>(values.size()),
                                   &found, values.data()),
          "asking for an attribute");
    values.resize(static_cast<size_t>(found));
    return values;
  }
  template <typename T>
  T get(cudnnBackendAttributeName_t name) const {
    return get(name, std::vector<T>(1)).at(0);
  }

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

}  // namespace collage_cudnn

#endif  // COLLAGE_CUDNN_DESCRIPTOR_H_
