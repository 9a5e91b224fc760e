// The launch of values by packed numbers, as launch.h has that of a unit.

#pragma once

#include "launch_norm.h"

namespace {

Memory<Kernel> packed_plans;

Key packed_key_of(const Tensor& x, const Tensor& residual, const Tensor& packed, bool normed,
                  int64_t settings) {
  Key key = norm_key_of(x, residual, settings);
  key.insert(key.end(), {packed.size(0), packed.size(1), normed});
  return key;
}

std::optional<Tensor> packed_value(const Tensor& x, const Tensor& residual, const Tensor& packed,
                                   bool normed, int64_t settings) {
  if (x.device().type() != device_type || x.numel() == 0 || !aligned(x) || !beside(residual, x) ||
      packed.device() != x.device() || packed.dim() != 2 || !packed.is_contiguous() ||
      packed.scalar_type() != at::kLong ||
      c10::impl::VirtualGuardImpl(device_type).getDevice().index() != x.device().index())
    return std::nullopt;
  auto plan = packed_plans.find(packed_key_of(x, residual, packed, normed, settings));
  if (!plan) return std::nullopt;
  Tensor y = room_like(x);
  void* other = residual.defined() ? residual.data_ptr() : x.data_ptr();
  if (!launch<4>(*plan, stream_of(x), {x.data_ptr(), other, y.data_ptr(), packed.data_ptr()}))
    return std::nullopt;
  return y;
}

}  // namespace
