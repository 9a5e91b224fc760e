// The operators below autograd: as PyTorch's dispatcher calls them, and as compiled graphs do.

#pragma once

#include <cstring>
#include <iterator>
#include <utility>

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include "with_python.h"

namespace {

// ---- where arguments come from --------------------------------------------------------------

// From PyTorch, which has matched them.
struct FromStack {
  const c10::IValue* given;
  static constexpr bool fine = true;

  Tensor tensor(size_t i, bool = false) {
    return given[i].isNone() ? Tensor() : given[i].toTensor();
  }
  double number(size_t i) { return given[i].toDouble(); }
  bool truth(size_t i) { return given[i].toBool(); }
  std::optional<int64_t> settings(size_t i) { return number_of(given[i].toStringRef()); }
  template <class Make>
  auto launch(Make make) {
    return make();
  }
};

// From Python: what is not as it should be is left to PyTorch.
struct FromPython {
  PyObject* const* given;
  bool fine = true;

  Tensor tensor(size_t i, bool optional = false) {
    Tensor found;
    fine = fine && taken(given[i], found, optional);
    return found;
  }
  double number(size_t i) {
    fine = fine && PyFloat_Check(given[i]);
    return fine ? PyFloat_AS_DOUBLE(given[i]) : 0.0;
  }
  bool truth(size_t i) {
    fine = fine && PyBool_Check(given[i]);
    return given[i] == Py_True;
  }
  std::optional<int64_t> settings(size_t i) {
    Py_ssize_t size;
    if (!PyUnicode_Check(given[i])) return std::nullopt;
    const char* text = PyUnicode_AsUTF8AndSize(given[i], &size);
    if (!text) return std::nullopt;
    return number_of(std::string(text, size));
  }
  // What a launch makes, while Python goes on elsewhere.
  template <class Make>
  auto launch(Make make) {
    pybind11::gil_scoped_release without;
    at::AutoDispatchBelowAutograd below;
    return make();
  }
};

template <class From>
Tensors units_of(From& from, size_t first) {
  return {from.tensor(first), from.tensor(first + 1), from.tensor(first + 2),
          from.tensor(first + 3), from.tensor(first + 4)};
}

// ---- the operators --------------------------------------------------------------------------

namespace operators {

using Results = std::optional<std::vector<Tensor>>;  // none: Python has to do it

template <class... Made>
Results results(Made&... made) {
  std::vector<Tensor> found;
  found.reserve(sizeof...(made));
  (found.push_back(std::move(made)), ...);
  return found;
}

// t, units, settings
template <bool keep>
struct ForwardOp {
  static constexpr size_t count = 7;

  template <class From>
  static Results run(From from) {
    Tensor t = from.tensor(0);
    Tensors units = units_of(from, 1);
    auto settings = from.settings(6);
    if (!from.fine || !settings) return std::nullopt;
    auto made = from.launch([&] { return forward(t, units, *settings, keep); });
    if (!made) return std::nullopt;
    return keep ? results(made->y, made->forms) : results(made->y);
  }
};

// grad, forms, t, units, settings
struct BackwardOp {
  static constexpr size_t count = 9;

  template <class From>
  static Results run(From from) {
    Tensor grad = from.tensor(0), forms = from.tensor(1), t = from.tensor(2);
    Tensors units = units_of(from, 3);
    auto settings = from.settings(8);
    if (!from.fine || !settings) return std::nullopt;
    // An operator's results must not share memory.
    auto made = from.launch([&] { return backward(grad, t, units, forms, *settings, false); });
    if (!made) return std::nullopt;
    return std::vector<Tensor>(std::make_move_iterator(made->begin()),
                               std::make_move_iterator(made->end()));
  }
};

// x, residual, batch norm's five tensors and two numbers, units, settings
template <bool frozen>
struct NormForwardOp {
  static constexpr size_t count = 15;

  template <class From>
  static Results run(From from) {
    Tensor x = from.tensor(0), residual = from.tensor(1, true);
    BatchNorm norm{from.tensor(2),       from.tensor(3),       from.tensor(4, true),
                   from.tensor(5, true), from.tensor(6, true), from.number(7),
                   from.number(8)};
    Tensors units = units_of(from, 9);
    auto settings = from.settings(14);
    if (!from.fine || !settings) return std::nullopt;
    auto made =
        from.launch([&] { return norm_forward(x, residual, norm, units, *settings, frozen); });
    if (!made) return std::nullopt;
    return frozen ? results(made->y) : results(made->y, made->saved);
  }
};

// x, residual, packed numbers, whether batch norm is among them, settings
struct PackedOp {
  static constexpr size_t count = 5;

  template <class From>
  static Results run(From from) {
    Tensor x = from.tensor(0), residual = from.tensor(1, true), packed = from.tensor(2);
    const bool normed = from.truth(3);
    auto settings = from.settings(4);
    if (!from.fine || !settings) return std::nullopt;
    auto y = from.launch([&] { return packed_value(x, residual, packed, normed, *settings); });
    if (!y) return std::nullopt;
    return results(*y);
  }
};

// grad, saved, x, residual, settings
struct NormBackwardOp {
  static constexpr size_t count = 5;

  template <class From>
  static Results run(From from) {
    Tensor grad = from.tensor(0), saved = from.tensor(1), x = from.tensor(2);
    Tensor residual = from.tensor(3, true);
    auto settings = from.settings(4);
    if (!from.fine || !settings) return std::nullopt;
    auto made = from.launch([&] { return norm_backward(grad, saved, x, residual, *settings); });
    if (!made) return std::nullopt;
    if (!made->residual.defined()) made->residual = room(0, x.scalar_type(), x);
    return results(made->x, made->residual, made->parameters);
  }
};

// ---- as PyTorch calls them ------------------------------------------------------------------

template <class Op>
void boxed(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (auto found = Op::run(FromStack{stack->data() + stack->size() - Op::count})) {
    torch::jit::drop(*stack, Op::count);
    for (auto& x : *found) stack->emplace_back(std::move(x));
    return;
  }
  op.callBoxedForDispatchKey(Dispatch::CompositeExplicitAutograd, *stack);
}

template <class Op>
void offer(torch::Library& library, const char* name) {
  library.impl(name, torch::CppFunction::makeFromBoxedFunction<&boxed<Op>>());
}

// ---- as compiled graphs call them -----------------------------------------------------------

// PyTorch takes longer to match an operator's arguments than all the rest of a launch.  So what
// calls it from Python comes here first.  Null without an error: not by the launcher.
template <class Op>
PyObject* shortcut(PyObject* const* given) {
  auto found = Op::run(FromPython{given});
  if (!found) return nullptr;
  if (found->size() == 1) return wrapped((*found)[0]);
  Owned tuple{checked(PyTuple_New(found->size()))};
  for (size_t i = 0; i < found->size(); ++i)
    PyTuple_SET_ITEM(tuple.object, i, wrapped((*found)[i]));
  return std::exchange(tuple.object, nullptr);
}

// ---- all of them ----------------------------------------------------------------------------

struct Known {
  const char* name;
  Py_ssize_t count;
  PyObject* (*shortcut)(PyObject* const*);
  void (*offer)(torch::Library&, const char*);
};

template <class Op>
constexpr Known known(const char* name) {
  return {name, Op::count, shortcut<Op>, offer<Op>};
}

constexpr Known kAll[] = {
    known<ForwardOp<false>>("value"),
    known<ForwardOp<true>>("forward"),
    known<BackwardOp>("backward"),
    known<NormForwardOp<true>>("norm_value"),
    known<NormForwardOp<false>>("norm_forward"),
    known<NormBackwardOp>("norm_backward"),
    known<PackedOp>("packed_value"),
};

std::vector<torch::Library> libraries;

void offer_all() {
  const bool cuda = device_type == c10::DeviceType::CUDA;
  auto& kernels = libraries.emplace_back(torch::Library::IMPL, "deu",
                                         cuda ? Dispatch::CUDA : Dispatch::CPU, __FILE__, __LINE__);
  for (auto& op : kAll) op.offer(kernels, op.name);
  auto& autograd = libraries.emplace_back(
      torch::Library::IMPL, "deu", cuda ? Dispatch::AutogradCUDA : Dispatch::AutogradCPU, __FILE__,
      __LINE__);  // they have no gradients
  for (auto& op : kAll) autograd.impl(op.name, torch::CppFunction::makeFallthrough());
}

// An operator with its shortcut.
struct Shortened {
  PyObject_HEAD
  vectorcallfunc call;
  PyObject* whole;  // the operator by PyTorch
  const Known* known;
};

PyObject* call_shortened(PyObject* self, PyObject* const* arguments, size_t count,
                         PyObject* keywords) {
  HANDLE_TH_ERRORS
  auto* op = reinterpret_cast<Shortened*>(self);
  const bool plain = PyVectorcall_NARGS(count) == op->known->count && !keywords &&
                     nobody_listens() && !at::hasCallbacks() &&
                     !at::impl::torch_function_mode_enabled();
  if (plain) {
    if (PyObject* found = op->known->shortcut(arguments)) return found;
    if (PyErr_Occurred()) return nullptr;
  }
  return PyObject_Vectorcall(op->whole, arguments, count, keywords);
  END_HANDLE_TH_ERRORS
}

// PyTorch looks operators up by this.
Py_hash_t hash_of_shortened(PyObject* self) {
  return PyObject_Hash(reinterpret_cast<Shortened*>(self)->whole);
}

void free_shortened(PyObject* self) {
  Py_XDECREF(reinterpret_cast<Shortened*>(self)->whole);
  PyObject_Free(self);
}

PyTypeObject shortened_type = [] {
  PyTypeObject type{PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "deu_launcher.Operator";
  type.tp_basicsize = sizeof(Shortened);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
  type.tp_vectorcall_offset = offsetof(Shortened, call);
  type.tp_call = PyVectorcall_Call;
  type.tp_hash = hash_of_shortened;
  type.tp_dealloc = free_shortened;
  return type;
}();

// names(): of all operators
PyObject* names(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  Owned list{checked(PyList_New(0))};
  for (auto& op : kAll) {
    Owned name{checked(PyUnicode_FromString(op.name))};
    if (PyList_Append(list.object, name.object)) return nullptr;
  }
  return std::exchange(list.object, nullptr);
  END_HANDLE_TH_ERRORS
}

// shortened(name, operator): the same with a shortcut
PyObject* shortened(PyObject*, PyObject* arguments) {
  const char* name;
  PyObject* whole;
  if (!PyArg_ParseTuple(arguments, "sO", &name, &whole)) return nullptr;
  for (auto& op : kAll)
    if (!std::strcmp(name, op.name)) {
      auto* made = PyObject_New(Shortened, &shortened_type);
      if (!made) return nullptr;
      Py_INCREF(whole);
      made->call = call_shortened;
      made->whole = whole;
      made->known = &op;
      return reinterpret_cast<PyObject*>(made);
    }
  return PyErr_Format(PyExc_ValueError, "deu has no operator %s", name);
}

}  // namespace operators

}  // namespace
