// A unit's place in autograd, and batch norm and a unit's in one; how Python calls them.

#pragma once

#include "with_python.h"

namespace {

struct DEU : public torch::autograd::Function<DEU> {
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& t, const Tensor& a,
                        const Tensor& b, const Tensor& c, const Tensor& c1, const Tensor& c2,
                        const Result& made, int64_t settings) {
    ctx->save_for_backward({t, a, b, c, c1, c2});
    ctx->saved_data["forms"] = made.forms;
    ctx->saved_data["settings"] = settings;
    return made.y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    auto saved = ctx->get_saved_variables();
    Tensors units{saved[1], saved[2], saved[3], saved[4], saved[5]};
    Tensor forms = ctx->saved_data["forms"].toTensor();
    int64_t settings = ctx->saved_data["settings"].toInt();
    std::optional<Gradients> found;
    if (!at::GradMode::is_enabled() && ordinary(grad[0]))
      found = ::backward(grad[0], saved[0], units, forms, settings, true);
    torch::autograd::variable_list grads;
    if (found)
      grads.assign(found->begin(), found->end());
    else
      grads = by_python(python_backward,
                        {grad[0], saved[0], units[0], units[1], units[2], units[3], units[4], forms},
                        std::nullopt, settings);
    grads.resize(8);  // none of what is no tensor
    return grads;
  }
};

// The same of batch norm and a unit in one.
struct NormDEU : public torch::autograd::Function<NormDEU> {
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x,
                        const std::optional<Tensor>& residual, const Tensor& weight,
                        const Tensor& bias, const Tensor& a, const Tensor& b, const Tensor& c,
                        const Tensor& c1, const Tensor& c2, const NormResult& made, double eps,
                        int64_t settings) {
    ctx->save_for_backward({x, residual.value_or(Tensor())});
    ctx->saved_data["saved"] = made.saved;
    ctx->saved_data["parameters"] = std::vector<Tensor>{weight, bias, a, b, c, c1, c2};
    ctx->saved_data["eps"] = eps;
    ctx->saved_data["settings"] = settings;
    return made.y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    auto kept = ctx->get_saved_variables();
    auto& data = ctx->saved_data;
    Tensor saved = data["saved"].toTensor();
    int64_t settings = data["settings"].toInt();
    std::optional<NormGradients> found;
    if (!at::GradMode::is_enabled() && ordinary(grad[0]))
      found = norm_backward(grad[0], saved, kept[0], kept[1], settings);
    torch::autograd::variable_list grads;
    if (found) {
      grads = {found->x, found->residual};
      for (size_t i = 0; i < 7; ++i)
        grads.push_back(row_of(found->parameters, i));
    } else {
      std::vector<Tensor> given{grad[0], saved, kept[0], kept[1]};
      for (const Tensor& p : data["parameters"].toTensorVector()) given.push_back(p);
      grads = by_python(python_norm_backward, given, data["eps"].toDouble(), settings);
    }
    grads.resize(12);  // none of what is no tensor
    return grads;
  }
};

// call(t, (a, b, c, c1, c2), settings): y, or None if Python has to do it.
PyObject* call(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  Tensor t;
  Tensors units;
  if (count != 3 || !PyTuple_Check(arguments[1]) || PyTuple_GET_SIZE(arguments[1]) != 5 ||
      !taken(arguments[0], t) || !nobody_listens())
    Py_RETURN_NONE;
  bool grads = t.requires_grad();
  for (size_t i = 0; i < 5; ++i) {
    if (!taken(PyTuple_GET_ITEM(arguments[1], i), units[i])) Py_RETURN_NONE;
    grads |= units[i].requires_grad();
  }
  const auto settings = number_of(arguments[2]);
  if (!settings) Py_RETURN_NONE;
  const bool keep = at::GradMode::is_enabled();
  grads &= keep;
  Tensor y;
  {
    pybind11::gil_scoped_release without;
    std::optional<Result> made;
    {
      at::AutoDispatchBelowAutograd below;
      made = forward(t, units, *settings, keep);
    }
    if (made && grads)
      y = DEU::apply(t, units[0], units[1], units[2], units[3], units[4], *made, *settings);
    else if (made)
      y = made->y;
  }
  if (!y.defined()) Py_RETURN_NONE;
  return THPVariable_Wrap(std::move(y));
  END_HANDLE_TH_ERRORS
}

// call_packed(x, residual or None, packed numbers, whether batch norm is among them, settings):
// likewise.
PyObject* call_packed(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  Tensor x, residual, packed;
  if (count != 5 || !nobody_listens() || !taken(arguments[0], x) ||
      !taken(arguments[1], residual, true) || !taken(arguments[2], packed))
    Py_RETURN_NONE;
  const auto settings = number_of(arguments[4]);
  if (!settings) Py_RETURN_NONE;
  std::optional<Tensor> y;
  {
    pybind11::gil_scoped_release without;
    at::AutoDispatchBelowAutograd below;
    y = packed_value(x, residual, packed, arguments[3] == Py_True, *settings);
  }
  if (!y) Py_RETURN_NONE;
  return THPVariable_Wrap(std::move(*y));
  END_HANDLE_TH_ERRORS
}

// call_norm(x, residual or None, (weight, bias, mean, var, batches, momentum, eps),
//           (a, b, c, c1, c2), settings, whether it is frozen): likewise.
PyObject* call_norm(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  if (count != 6 || !PyTuple_Check(arguments[2]) || PyTuple_GET_SIZE(arguments[2]) != 7 ||
      !PyTuple_Check(arguments[3]) || PyTuple_GET_SIZE(arguments[3]) != 5 || !nobody_listens())
    Py_RETURN_NONE;
  Tensor x, residual;
  BatchNorm norm;
  Tensors units;
  if (!taken(arguments[0], x) || !taken(arguments[1], residual, true)) Py_RETURN_NONE;
  bool grads = x.requires_grad() || (residual.defined() && residual.requires_grad());
  Tensor* parts[] = {&norm.weight, &norm.bias, &norm.mean, &norm.var, &norm.batches};
  for (size_t i = 0; i < 5; ++i) {
    if (!taken(PyTuple_GET_ITEM(arguments[2], i), *parts[i], i >= 2) ||
        !taken(PyTuple_GET_ITEM(arguments[3], i), units[i]))
      Py_RETURN_NONE;
    grads |= units[i].requires_grad() || (parts[i]->defined() && parts[i]->requires_grad());
  }
  norm.momentum = PyFloat_AsDouble(PyTuple_GET_ITEM(arguments[2], 5));
  norm.eps = PyFloat_AsDouble(PyTuple_GET_ITEM(arguments[2], 6));
  const auto settings = number_of(arguments[4]);
  if (!settings) Py_RETURN_NONE;
  const bool frozen = arguments[5] == Py_True;
  grads &= at::GradMode::is_enabled();
  Tensor y;
  {
    pybind11::gil_scoped_release without;
    std::optional<NormResult> made;
    {
      at::AutoDispatchBelowAutograd below;
      made = norm_forward(x, residual, norm, units, *settings, frozen);
    }
    if (made && grads && !frozen)
      y = NormDEU::apply(x, residual.defined() ? std::optional<Tensor>(residual) : std::nullopt,
                         norm.weight, norm.bias, units[0], units[1], units[2], units[3], units[4],
                         *made, norm.eps, *settings);
    else if (made)
      y = made->y;
  }
  if (!y.defined()) Py_RETURN_NONE;
  return THPVariable_Wrap(std::move(y));
  END_HANDLE_TH_ERRORS
}

}  // namespace
