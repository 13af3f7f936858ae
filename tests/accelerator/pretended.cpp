// An accelerator for machines that have none: the host's memory under another device's name.
//
// Tensors "there" and on the host do not mix, as on a GPU, and what the host reads is counted. The
// arithmetic is the CPU's, so that numbers can be compared to the last bit.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace {

using at::Tensor;
using Sizes = c10::SymIntArrayRef;

constexpr auto KIND = c10::DeviceType::PrivateUse1;
const c10::Device THERE(KIND, 0);
const c10::Stream STREAM(c10::Stream::DEFAULT, THERE);

// What torch asks of every device: one of them, one stream, nothing to wait for.

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return KIND; }
  c10::Device exchangeDevice(c10::Device) const override { return THERE; }
  c10::Device getDevice() const override { return THERE; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return STREAM; }
  c10::Stream getDefaultStream(c10::Device) const override { return STREAM; }
  c10::Stream getNewStream(c10::Device, int) const override { return STREAM; }
  c10::Stream exchangeStream(c10::Stream) const override { return STREAM; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

void give_back(void* memory) { std::free(memory); }

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = bytes ? std::malloc(bytes) : nullptr;
    return {memory, memory, &give_back, THERE};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};
Memory memory;
REGISTER_ALLOCATOR(KIND, &memory)

struct Hooks final : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isAvailable() const override { return true; }
};
const bool hooked = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  return true;
}();

// Going there and back.

// The same memory, as the CPU sees it.
Tensor seen(const Tensor& tensor) {
  if (tensor.device().type() != KIND) return tensor;
  auto options = at::TensorOptions().dtype(tensor.dtype()).device(at::kCPU);
  auto keep = [tensor](void*) {};
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), keep, options);
}

Tensor sent(const Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  Tensor there = at::empty(tensor.sizes(), tensor.options().device(THERE));
  seen(there).copy_(tensor);
  return there;
}

Tensor copy_from(const Tensor& self, const Tensor& to, bool) {
  seen(to).copy_(seen(self));
  return to;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& to) {
  to.resize_(self.sizes());
  return copy_from(self, to, false);
}

at::Scalar item(const Tensor& self) { return at::_local_scalar_dense(seen(self)); }

// Memory and views of it.

c10::DispatchKeySet key() { return c10::DispatchKeySet(c10::DispatchKey::PrivateUse1); }

Tensor empty(Sizes size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>,
             std::optional<at::MemoryFormat> format) {
  auto type = c10::dtype_or_default(dtype);
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &memory, key(), type, format);
}

Tensor empty_strided(Sizes size, Sizes stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  auto sizes = C10_AS_INTARRAYREF_SLOW(size), strides = C10_AS_INTARRAYREF_SLOW(stride);
  auto type = c10::dtype_or_default(dtype);
  return at::detail::empty_strided_generic(sizes, strides, &memory, key(), type);
}

Tensor as_strided(const Tensor& self, Sizes size, Sizes stride, std::optional<c10::SymInt> begin) {
  std::optional<int64_t> offset;
  if (begin) offset = begin->expect_int();
  auto sizes = C10_AS_INTARRAYREF_SLOW(size), strides = C10_AS_INTARRAYREF_SLOW(stride);
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

Tensor view(const Tensor& self, Sizes size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

Tensor reshape_alias(const Tensor& self, Sizes size, Sizes stride) {
  auto sizes = C10_AS_INTARRAYREF_SLOW(size), strides = C10_AS_INTARRAYREF_SLOW(stride);
  return at::native::_reshape_alias(self, sizes, strides);
}

const Tensor& resize(const Tensor& self, Sizes size, std::optional<at::MemoryFormat>) {
  auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  at::native::resize_impl_cpu_(self.unsafeGetTensorImpl(), sizes, std::nullopt);
  return self;
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  auto* to = self.unsafeGetTensorImpl();
  to->set_storage_keep_dtype(source.storage());
  to->set_sizes_and_strides(source.sizes(), source.strides(), source.storage_offset());
  return self;
}

// Convolutions have no CPU fallback of their own.

Tensor convolution(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                   Sizes stride, Sizes padding, Sizes dilation, bool transposed,
                   Sizes output_padding, c10::SymInt groups) {
  std::optional<Tensor> b;
  if (bias && bias->defined()) b = seen(*bias);
  TORCH_CHECK(x.device() == weight.device() && (!b || bias->device() == x.device()),
              "two devices in a convolution");
  return sent(at::convolution_symint(seen(x), seen(weight), b, stride, padding, dilation,
                                     transposed, output_padding, groups));
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& delta, const Tensor& x, const Tensor& weight, Sizes stride, Sizes padding,
    Sizes dilation, bool transposed, Sizes output_padding, c10::SymInt groups,
    std::array<bool, 3> asked) {
  TORCH_CHECK(x.device() == weight.device() && delta.device() == x.device(),
              "two devices in a convolution's backward");
  std::vector<c10::SymInt> bias{weight.sym_size(transposed ? 1 : 0)};
  auto [to_x, to_weight, to_bias] = at::convolution_backward_symint(
      seen(delta), seen(x), seen(weight), c10::OptionalArrayRef<c10::SymInt>(bias), stride, padding,
      dilation, transposed, output_padding, groups, asked);
  return {sent(to_x), sent(to_weight), sent(to_bias)};
}

// All else: the CPU does it, after a look at who takes part.

const std::set<std::string> PRODUCTS{"aten::mm",      "aten::bmm",      "aten::addmm",
                                     "aten::baddbmm", "aten::baddbmm_", "aten::addmm_",
                                     "aten::mv",      "aten::dot",      "aten::addmv"};

void check(const c10::OperatorHandle& op, const Tensor& tensor) {
  if (!tensor.defined()) return;
  const auto& name = op.schema().name();
  TORCH_CHECK(tensor.device().type() == KIND || tensor.dim() == 0, "two devices in ", name);
  TORCH_CHECK(!PRODUCTS.count(name) || !at::isIntegralType(tensor.scalar_type(), true),
              "CUDA has no ", name, " of integers");
}

void anything(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  for (const auto& value : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (value.isTensor()) check(op, value.toTensor());
    if (value.isTensorList())
      for (const Tensor& tensor : value.toTensorVector()) check(op, tensor);
    if (value.isOptionalTensorList())
      for (const auto& tensor : value.toOptionalTensorVector())
        if (tensor) check(op, *tensor);
  }
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, module) {
  module.fallback(torch::CppFunction::makeFromBoxedFunction<&anything>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, module) {
  module.impl("empty.memory_format", &empty);
  module.impl("empty_strided", &empty_strided);
  module.impl("as_strided", &as_strided);
  module.impl("view", &view);
  module.impl("_reshape_alias", &reshape_alias);
  module.impl("unfold", &at::native::unfold);
  module.impl("resize_", &resize);
  module.impl("set_.source_Tensor", &set_tensor);
  module.impl("_copy_from", &copy_from);
  module.impl("_copy_from_and_resize", &copy_from_and_resize);
  module.impl("_local_scalar_dense", &item);
  module.impl("convolution_overrideable", &convolution);
  module.impl("convolution_backward_overrideable", &convolution_backward);
}

}  // namespace
