// The launches of batch norm and a unit in one, as launch.h has them of a unit.

#pragma once

#include <cstring>

#include "launch.h"

namespace {

struct NormForward {
  std::optional<Kernel> measure, settle;  // not by running statistics
  Kernel forward;
  int64_t sums, saved;  // how many numbers the first leaves the second, and they leave backward
};
struct NormBackward {
  Kernel backward, finish, onward;
  int64_t sums;
};

Memory<NormForward> norm_forward_plans;
Memory<NormBackward> norm_backward_plans;

// What batch norm has; what is not there is undefined.
struct BatchNorm {
  Tensor weight, bias, mean, var, batches;
  double momentum, eps;
};

Key norm_key_of(const Tensor& x, const Tensor& residual, int64_t settings) {
  Key key{settings, static_cast<int64_t>(x.scalar_type()), x.device().index(), residual.defined()};
  key.reserve(32);
  append(key, x.sizes());
  append(key, x.strides());
  if (residual.defined()) append(key, residual.strides());
  return key;
}

Key norm_key_of(const Tensor& x, const Tensor& residual, int64_t settings, const BatchNorm& norm,
                bool frozen) {
  Key key = norm_key_of(x, residual, settings);
  int64_t numbers[2];
  std::memcpy(numbers, &norm.momentum, sizeof(double));
  std::memcpy(numbers + 1, &norm.eps, sizeof(double));
  key.insert(key.end(), {norm.mean.defined(), frozen, numbers[0], numbers[1]});
  return key;
}

Key norm_key_of(const Tensor& grad, const Tensor& x, const Tensor& residual, int64_t settings) {
  Key key = norm_key_of(x, residual, settings);
  append(key, grad.strides());
  return key;
}

bool usable(const Tensor& p, const Tensor& x) {
  return !p.defined() || (p.device() == x.device() && p.is_contiguous());
}

bool beside(const Tensor& residual, const Tensor& x) {
  return !residual.defined() ||
         (residual.device() == x.device() && residual.scalar_type() == x.scalar_type() &&
          residual.sizes() == x.sizes() && aligned(residual));
}

struct NormResult {
  Tensor y, saved;
};

std::optional<NormResult> norm_forward(const Tensor& x, const Tensor& residual,
                                       const BatchNorm& norm, const Tensors& units,
                                       int64_t settings, bool frozen) {
  if (!plain(x, units) || !beside(residual, x)) return std::nullopt;
  for (auto* p : {&norm.weight, &norm.bias, &norm.mean, &norm.var, &norm.batches})
    if (!usable(*p, x)) return std::nullopt;
  const bool counted = norm.batches.defined() && norm.batches.scalar_type() == at::kLong;
  if (!frozen && norm.mean.defined() && !(norm.var.defined() && counted)) return std::nullopt;
  for (auto* p : {&norm.weight, &norm.bias, &norm.mean, &norm.var, &units[0], &units[1], &units[2],
                  &units[3], &units[4]})
    if (p->defined() && (p->scalar_type() != at::kFloat || p->numel() != x.size(1)))
      return std::nullopt;
  auto plan = norm_forward_plans.find(norm_key_of(x, residual, settings, norm, frozen));
  if (!plan) return std::nullopt;
  NormResult result;
  result.y = room_like(x);
  void* stream = stream_of(x);
  std::array<void*, 5> p;
  for (size_t i = 0; i < 5; ++i) p[i] = units[i].data_ptr();
  void *weight = norm.weight.data_ptr(), *bias = norm.bias.data_ptr();
  void* mean = norm.mean.defined() ? norm.mean.data_ptr() : weight;
  void* var = norm.var.defined() ? norm.var.data_ptr() : weight;
  void* batches = norm.batches.defined() ? norm.batches.data_ptr() : weight;
  void* saved = weight;
  if (plan->measure) {
    result.saved = room(plan->saved, at::kDouble, x);
    Tensor sums = room(plan->sums, at::kDouble, x);
    saved = result.saved.data_ptr();
    if (!launch<3>(*plan->measure, stream, {x.data_ptr(), saved, sums.data_ptr()}))
      return std::nullopt;
    launch<12>(*plan->settle, stream,
               {saved, sums.data_ptr(), weight, bias, mean, var, batches, p[0], p[1], p[2], p[3],
                p[4]});
  }
  void* other = residual.defined() ? residual.data_ptr() : x.data_ptr();
  if (!launch<13>(plan->forward, stream,
                  {x.data_ptr(), other, result.y.data_ptr(), p[0], p[1], p[2], p[3], p[4], saved,
                   weight, bias, mean, var}))
    return std::nullopt;
  return result;
}

struct NormGradients {
  Tensor x, residual, parameters;  // the last in seven rows: of weight, bias and five coefficients
};

int64_t norm_rows = 0;  // how many numbers of each neuron backward is left

Tensor row_of(const Tensor& rows, int64_t i) {
  Tensor row = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(rows.storage()),
                                                        rows.key_set(), rows.dtype());
  row.unsafeGetTensorImpl()->set_storage_offset(i * rows.size(1));
  row.unsafeGetTensorImpl()->set_sizes_contiguous({rows.size(1)});
  return row;
}

std::optional<NormGradients> norm_backward(const Tensor& grad, const Tensor& saved, const Tensor& x,
                                           const Tensor& residual, int64_t settings) {
  if (x.device().type() != device_type || !aligned(x) || grad.scalar_type() != x.scalar_type() ||
      !aligned(grad) || grad.device() != x.device() || !beside(residual, x) ||
      c10::impl::VirtualGuardImpl(device_type).getDevice().index() != x.device().index())
    return std::nullopt;
  auto plan = norm_backward_plans.find(norm_key_of(grad, x, residual, settings));
  if (!plan) return std::nullopt;
  const int64_t n = saved.numel() / norm_rows;
  NormGradients found;
  found.x = room_like(x);
  if (residual.defined()) found.residual = room_like(x);
  found.parameters = room({7, n}, {n, 1}, at::kFloat, x);
  Tensor sums = room(plan->sums + 2 * n, at::kDouble, x);
  double* onward = sums.data_ptr<double>() + plan->sums;
  void* other = residual.defined() ? residual.data_ptr() : x.data_ptr();
  void* to_other = residual.defined() ? found.residual.data_ptr() : found.x.data_ptr();
  void* stream = stream_of(x);
  std::array<void*, 8> tensors{x.data_ptr(), other,            grad.data_ptr(), found.x.data_ptr(),
                               to_other,     saved.data_ptr(), sums.data_ptr(), onward};
  if (!launch<8>(plan->backward, stream, tensors)) return std::nullopt;
  launch<4>(plan->finish, stream,
            {saved.data_ptr(), sums.data_ptr(), found.parameters.data_ptr(), onward});
  launch<8>(plan->onward, stream, tensors);
  return found;
}

}  // namespace
