// A unit's launches on a GPU: which kernels, with which parameters, for tensors of which kind.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace {

using at::Tensor;
using Tensors = std::array<Tensor, 5>;  // a, b, c, c1, c2

// ---- launches -------------------------------------------------------------------------------

// CUDA's own structures, spelt out: its headers are not everywhere that its driver is.
struct alignas(8) LaunchAttribute {
  int id;
  char padding[4];
  union {
    int flag;
    char size[64];
  } value;
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared;
  void* stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
constexpr int kProgrammaticStreamSerialization = 6;
constexpr int kInvalidContext = 201;

using LaunchFunction = int (*)(const LaunchConfig*, void* function, void** parameters, void**);
using StreamFunction = int (*)(int32_t device, void** stream);

LaunchFunction launch_kernel = nullptr;
StreamFunction current_stream = nullptr;
c10::DeviceType device_type = c10::DeviceType::CUDA;

struct Kernel {
  void* function = nullptr;
  unsigned programs = 0, threads = 0, shared = 0;
  bool overlap = false;
  std::vector<uint64_t> fixed;  // the parameters after the tensors
};

// False if this thread has no context on the GPU yet: Triton makes one for it.
template <size_t N>
bool launch(const Kernel& kernel, void* stream, const std::array<void*, N>& tensors) {
  std::array<void*, 64> parameters;
  size_t count = 0;
  for (auto& pointer : tensors) parameters[count++] = const_cast<void**>(&pointer);
  for (auto& value : kernel.fixed) parameters[count++] = const_cast<uint64_t*>(&value);
  LaunchAttribute overlap{};
  overlap.id = kProgrammaticStreamSerialization;
  overlap.value.flag = 1;
  LaunchConfig config{{kernel.programs, 1, 1}, {kernel.threads, 1, 1}, kernel.shared,
                      stream,                  &overlap,               kernel.overlap ? 1u : 0u};
  int error = launch_kernel(&config, kernel.function, parameters.data(), nullptr);
  if (error == kInvalidContext) return false;
  TORCH_CHECK(error == 0, "deu: a kernel could not be launched; CUDA's driver says error ", error);
  return true;
}

void* stream_of(const Tensor& t) {
  void* stream = nullptr;
  int error = current_stream(t.device().index(), &stream);
  TORCH_CHECK(error == 0, "deu: PyTorch does not say which stream is current");
  return stream;
}

// ---- plans ----------------------------------------------------------------------------------

struct Forward {
  Kernel kernel;
  int64_t forms;  // how many numbers it leaves backward
};
struct Backward {
  Kernel backward, finish;
  int64_t sums;  // how many numbers the first leaves the second
};

// All that a plan depends on: settings, types, device, how many units, sizes and strides.
using Key = std::vector<int64_t>;
struct Hash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 1469598103934665603u;
    for (int64_t n : key) hash = (hash ^ static_cast<uint64_t>(n)) * 1099511628211u;
    return hash ^ (hash >> 32);
  }
};

template <class Plan>
class Memory {
 public:
  std::shared_ptr<const Plan> find(const Key& key) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = plans_.find(key);
    return found == plans_.end() ? nullptr : found->second;
  }
  void keep(const Key& key, Plan plan) {
    std::lock_guard<std::mutex> lock(mutex_);
    plans_[key] = std::make_shared<const Plan>(std::move(plan));
  }
  void clear() {
    std::lock_guard<std::mutex> lock(mutex_);
    plans_.clear();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<const Plan>, Hash> plans_;
};

Memory<Forward> forward_plans;
Memory<Backward> backward_plans;

void append(Key& key, at::IntArrayRef numbers) {
  key.insert(key.end(), numbers.begin(), numbers.end());
}

Key key_of(const Tensor& t, const Tensor& a, int64_t settings, bool keep) {
  Key key{settings, keep, static_cast<int64_t>(t.scalar_type()),
          static_cast<int64_t>(a.scalar_type()), t.device().index(), a.numel()};
  key.reserve(24);
  append(key, t.sizes());
  append(key, t.strides());
  return key;
}

Key key_of(const Tensor& grad, const Tensor& t, const Tensor& a, int64_t settings) {
  Key key = key_of(t, a, settings, true);
  append(key, grad.strides());
  return key;
}

// ---- memory for results ---------------------------------------------------------------------

// As at::empty_strided makes it on the device of a tensor that is there, and by that one's
// allocator: PyTorch's way there is a third of the time of a call.
Tensor room(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type,
            const Tensor& beside) {
  c10::Allocator* allocator = beside.storage().allocator();
  if (!allocator) return at::empty_strided(sizes, strides, beside.options().dtype(type));
  const c10::DispatchKeySet keys(c10::computeDispatchKey(type, beside.layout(), beside.device()));
  return Tensor(at::detail::empty_strided_generic(sizes, strides, allocator, keys, type));
}

Tensor room(int64_t count, at::ScalarType type, const Tensor& beside) {
  return room({count}, {1}, type, beside);
}

Tensor room_like(const Tensor& t) {
  if (!t.is_non_overlapping_and_dense()) return at::empty_like(t);
  return room(t.sizes(), t.strides(), t.scalar_type(), t);
}

// ---- the unit -------------------------------------------------------------------------------

bool aligned(const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data_ptr()) % 16 == 0; }

// Whether the kernels can be launched with these as they are.
bool plain(const Tensor& t, const Tensors& units) {
  const auto device = t.device();
  if (device.type() != device_type || t.numel() == 0 || !aligned(t)) return false;
  const auto type = units[0].scalar_type();
  for (auto& p : units)
    if (p.device() != device || p.scalar_type() != type || !p.is_contiguous()) return false;
  return c10::impl::VirtualGuardImpl(device_type).getDevice().index() == device.index();
}

struct Result {
  Tensor y, forms;
};

std::optional<Result> forward(const Tensor& t, const Tensors& units, int64_t settings, bool keep) {
  if (!plain(t, units)) return std::nullopt;
  auto plan = forward_plans.find(key_of(t, units[0], settings, keep));
  if (!plan) return std::nullopt;
  Result result;
  result.y = room_like(t);
  void* forms = units[0].data_ptr();
  if (keep) {
    result.forms = room(plan->forms, at::kDouble, t);
    forms = result.forms.data_ptr();
  }
  if (!launch<8>(plan->kernel, stream_of(t),
                 {t.data_ptr(), result.y.data_ptr(), units[0].data_ptr(), units[1].data_ptr(),
                  units[2].data_ptr(), units[3].data_ptr(), units[4].data_ptr(), forms}))
    return std::nullopt;
  return result;
}

using Gradients = std::array<Tensor, 6>;

Tensor piece_of(const Tensor& memory, int64_t bytes, const Tensor& like) {
  Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(memory.storage()),
                                                         like.key_set(), like.dtype());
  made.unsafeGetTensorImpl()->set_storage_offset(bytes / like.element_size());
  made.unsafeGetTensorImpl()->set_sizes_contiguous(like.sizes());
  return made;
}

// Room for the gradients of the five coefficients, in one allocation if they may share one: they
// are mostly kept, and let go, together.
void make_room(Gradients& grads, const Tensor& like, bool together) {
  if (!together) {
    for (size_t i = 1; i <= 5; ++i) grads[i] = room_like(like);
    return;
  }
  const int64_t step = (like.numel() * like.element_size() + 15) / 16 * 16;
  Tensor memory = room(5 * step, at::kByte, like);
  for (size_t i = 0; i < 5; ++i) grads[i + 1] = piece_of(memory, i * step, like);
}

std::optional<Gradients> backward(const Tensor& grad, const Tensor& t, const Tensors& units,
                                  const Tensor& forms, int64_t settings, bool together) {
  if (!plain(t, units) || grad.scalar_type() != t.scalar_type() || !aligned(grad) ||
      grad.device() != t.device())
    return std::nullopt;
  auto plan = backward_plans.find(key_of(grad, t, units[0], settings));
  if (!plan) return std::nullopt;
  Gradients grads;
  grads[0] = room_like(t);
  make_room(grads, units[0], together);
  Tensor sums = room(plan->sums, at::kDouble, t);
  void* stream = stream_of(t);
  std::array<void*, 5> p;
  for (size_t i = 0; i < 5; ++i) p[i] = units[i].data_ptr();
  if (!launch<5>(plan->backward, stream,
                 {t.data_ptr(), grad.data_ptr(), grads[0].data_ptr(), forms.data_ptr(),
                  sums.data_ptr()}))
    return std::nullopt;
  launch<11>(plan->finish, stream,
             {p[0], p[1], p[2], p[3], p[4], sums.data_ptr(), grads[1].data_ptr(),
              grads[2].data_ptr(), grads[3].data_ptr(), grads[4].data_ptr(), grads[5].data_ptr()});
  return grads;
}

}  // namespace
