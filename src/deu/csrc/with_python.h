// What the launcher shares with Python: tensors, settings by their numbers, and what Python does.

#pragma once

#include <Python.h>

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/python_variable.h>

#include "launch_packed.h"

namespace {

PyObject* numbers_of_settings = nullptr;  // a dict: each Settings that came by, and its number
PyObject* settings_by_number = nullptr;   // a list
PyObject* python_backward = nullptr;      // (grad, t, a, b, c, c1, c2, forms, settings)
PyObject* python_norm_backward = nullptr;  // (grad, saved, x, residual, parameters, eps, settings)

struct Gil {
  PyGILState_STATE state = PyGILState_Ensure();
  ~Gil() { PyGILState_Release(state); }
};

struct Owned {
  PyObject* object;
  ~Owned() { Py_XDECREF(object); }
};

PyObject* checked(PyObject* object) {
  if (object) return object;
  python_error error;
  error.persist();  // beyond the end of our hold on the GIL
  throw std::move(error);
}

PyObject* wrapped(const Tensor& x) {
  if (x.defined()) return checked(THPVariable_Wrap(x));
  Py_RETURN_NONE;
}

// What a function of Python makes of tensors, perhaps a number, and settings: gradients.
torch::autograd::variable_list by_python(PyObject* function, const std::vector<Tensor>& tensors,
                                         std::optional<double> number, int64_t settings) {
  Gil gil;
  Owned arguments{checked(PyTuple_New(tensors.size() + (number ? 2 : 1)))};
  size_t i = 0;
  for (auto& x : tensors) PyTuple_SET_ITEM(arguments.object, i++, wrapped(x));
  if (number) PyTuple_SET_ITEM(arguments.object, i++, checked(PyFloat_FromDouble(*number)));
  PyObject* given = PyList_GET_ITEM(settings_by_number, settings);
  Py_INCREF(given);
  PyTuple_SET_ITEM(arguments.object, i, given);
  Owned found{checked(PyObject_CallObject(function, arguments.object))};
  torch::autograd::variable_list grads;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(found.object); ++k) {
    PyObject* item = PyTuple_GET_ITEM(found.object, k);
    grads.push_back(item == Py_None ? Tensor() : THPVariable_Unpack(item));
  }
  return grads;
}

bool within(c10::DispatchKeySet keys, c10::DispatchKeySet known) {
  return (keys.raw_repr() & ~known.raw_repr() & ~c10::full_backend_mask) == 0;
}

using Dispatch = c10::DispatchKey;
const auto kAutocast = c10::DispatchKeySet({Dispatch::AutocastCUDA, Dispatch::AutocastCPU});

// Whether nothing but autograd has a word in what happens to a tensor.
bool ordinary(const Tensor& t) {
  static const auto known =
      kAutocast | c10::DispatchKeySet({Dispatch::Dense, Dispatch::AutogradFunctionality,
                                       Dispatch::ADInplaceOrView});
  return within(t.key_set(), known);
}

// Whether it is an ordinary tensor, or None where there need not be one.
bool taken(PyObject* from, Tensor& to, bool optional = false) {
  if (optional && from == Py_None) return true;
  if (!THPVariable_CheckExact(from) || !ordinary(THPVariable_Unpack(from))) return false;
  to = THPVariable_Unpack(from);
  return true;
}

// Whether no mode, transform or tracer is at work in this thread.
bool nobody_listens() {
  static const auto known =
      kAutocast | c10::DispatchKeySet({Dispatch::BackendSelect, Dispatch::ADInplaceOrView});
  return within(c10::impl::tls_local_dispatch_key_set().included_, known);
}

// ---- settings -------------------------------------------------------------------------------

std::mutex settings_mutex;
std::unordered_map<std::string, int64_t> numbers_of_packed;

std::optional<int64_t> number_of(const std::string& packed) {
  std::lock_guard<std::mutex> lock(settings_mutex);
  auto found = numbers_of_packed.find(packed);
  if (found == numbers_of_packed.end()) return std::nullopt;
  return found->second;
}

// None if the settings have not come by.
std::optional<int64_t> number_of(PyObject* settings) {
  PyObject* number = PyDict_GetItemWithError(numbers_of_settings, settings);
  if (PyErr_Occurred()) throw python_error();
  if (!number) return std::nullopt;
  return PyLong_AsLongLong(number);
}

int64_t remember(PyObject* settings) {
  Owned packed{PyObject_CallMethod(settings, "packed", nullptr)};
  const char* text = packed.object ? PyUnicode_AsUTF8(packed.object) : nullptr;
  if (!text) throw python_error();
  if (auto number = number_of(settings)) return *number;
  Owned number{PyLong_FromSsize_t(PyList_GET_SIZE(settings_by_number))};
  if (!number.object || PyList_Append(settings_by_number, settings) ||
      PyDict_SetItem(numbers_of_settings, settings, number.object))
    throw python_error();
  std::lock_guard<std::mutex> lock(settings_mutex);
  return numbers_of_packed[text] = PyLong_AsLongLong(number.object);
}

}  // namespace
