// Calls the GPU kernels without Python: the unit's place in autograd, and its operators.
//
// Triton compiles the kernels and _triton.py plans each kind of call; this remembers both, so that
// a further call of the same kind costs as little as one of PyTorch's own activations.  Whatever it
// does not know, it leaves to Python.  _launcher.py builds it, against the PyTorch that is there.

#include <Python.h>

#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

#include "launch_norm.h"

namespace {

// ---- autograd -------------------------------------------------------------------------------

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

// Whether no mode, transform or tracer is at work in this thread.
bool nobody_listens() {
  static const auto known =
      kAutocast | c10::DispatchKeySet({Dispatch::BackendSelect, Dispatch::ADInplaceOrView});
  return within(c10::impl::tls_local_dispatch_key_set().included_, known);
}

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
  PyObject* number = PyDict_GetItemWithError(numbers_of_settings, arguments[2]);
  if (!number) {
    if (PyErr_Occurred()) return nullptr;
    Py_RETURN_NONE;
  }
  const int64_t settings = PyLong_AsLongLong(number);
  const bool keep = at::GradMode::is_enabled();
  grads &= keep;
  Tensor y;
  {
    pybind11::gil_scoped_release without;
    std::optional<Result> made;
    {
      at::AutoDispatchBelowAutograd below;
      made = forward(t, units, settings, keep);
    }
    if (made && grads)
      y = DEU::apply(t, units[0], units[1], units[2], units[3], units[4], *made, settings);
    else if (made)
      y = made->y;
  }
  if (!y.defined()) Py_RETURN_NONE;
  return THPVariable_Wrap(std::move(y));
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
  PyObject* number = PyDict_GetItemWithError(numbers_of_settings, arguments[4]);
  if (PyErr_Occurred()) return nullptr;
  if (!number) Py_RETURN_NONE;
  const int64_t settings = PyLong_AsLongLong(number);
  const bool frozen = arguments[5] == Py_True;
  grads &= at::GradMode::is_enabled();
  Tensor y;
  {
    pybind11::gil_scoped_release without;
    std::optional<NormResult> made;
    {
      at::AutoDispatchBelowAutograd below;
      made = norm_forward(x, residual, norm, units, settings, frozen);
    }
    if (made && grads && !frozen)
      y = NormDEU::apply(x, residual.defined() ? std::optional<Tensor>(residual) : std::nullopt,
                         norm.weight, norm.bias, units[0], units[1], units[2], units[3], units[4],
                         *made, norm.eps, settings);
    else if (made)
      y = made->y;
  }
  if (!y.defined()) Py_RETURN_NONE;
  return THPVariable_Wrap(std::move(y));
  END_HANDLE_TH_ERRORS
}

// ---- operators ------------------------------------------------------------------------------

std::mutex settings_mutex;
std::unordered_map<std::string, int64_t> numbers_of_packed;

constexpr size_t kSettings = 1;  // in one text, which comes last

std::optional<int64_t> number_of(const std::string& packed) {
  std::lock_guard<std::mutex> lock(settings_mutex);
  auto found = numbers_of_packed.find(packed);
  if (found == numbers_of_packed.end()) return std::nullopt;
  return found->second;
}

std::optional<int64_t> number_of(const torch::jit::Stack& stack) {
  return number_of(stack.back().toStringRef());
}

// The last of an operator's tensors: t, a, b, c, c1, c2.
std::pair<Tensor, Tensors> units_of(const torch::jit::Stack& stack) {
  auto given = [&](size_t i) { return stack[stack.size() - kSettings - 6 + i].toTensor(); };
  return {given(0), Tensors{given(1), given(2), given(3), given(4), given(5)}};
}

template <bool keep>
void forward_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (auto settings = number_of(*stack)) {
    auto [t, units] = units_of(*stack);
    if (auto made = forward(t, units, *settings, keep)) {
      torch::jit::drop(*stack, kSettings + 6);
      stack->emplace_back(std::move(made->y));
      if (keep) stack->emplace_back(std::move(made->forms));
      return;
    }
  }
  op.callBoxedForDispatchKey(Dispatch::CompositeExplicitAutograd, *stack);
}

void backward_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (auto settings = number_of(*stack)) {
    auto [t, units] = units_of(*stack);
    Tensor grad = (*stack)[stack->size() - kSettings - 8].toTensor();
    Tensor forms = (*stack)[stack->size() - kSettings - 7].toTensor();
    // An operator's results must not share memory.
    if (auto grads = backward(grad, t, units, forms, *settings, false)) {
      torch::jit::drop(*stack, kSettings + 8);
      for (auto& g : *grads) stack->emplace_back(std::move(g));
      return;
    }
  }
  op.callBoxedForDispatchKey(Dispatch::CompositeExplicitAutograd, *stack);
}

// Of norm_value and norm_forward: x, residual, batch norm's five tensors and two numbers, units,
// settings; of norm_backward: grad, saved, x, residual, settings.
constexpr size_t kNorm = 14, kNormBackward = 4;

template <bool frozen>
void norm_forward_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (auto settings = number_of(*stack)) {
    auto given = [&](size_t i) -> const c10::IValue& {
      return (*stack)[stack->size() - kSettings - kNorm + i];
    };
    auto tensor = [&](size_t i) { return given(i).isNone() ? Tensor() : given(i).toTensor(); };
    BatchNorm norm{tensor(2), tensor(3), tensor(4), tensor(5), tensor(6), given(7).toDouble(),
                   given(8).toDouble()};
    Tensors units{tensor(9), tensor(10), tensor(11), tensor(12), tensor(13)};
    if (auto made = norm_forward(tensor(0), tensor(1), norm, units, *settings, frozen)) {
      torch::jit::drop(*stack, kSettings + kNorm);
      stack->emplace_back(std::move(made->y));
      if (!frozen) stack->emplace_back(std::move(made->saved));
      return;
    }
  }
  op.callBoxedForDispatchKey(Dispatch::CompositeExplicitAutograd, *stack);
}

void norm_backward_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (auto settings = number_of(*stack)) {
    auto tensor = [&](size_t i) {
      const c10::IValue& given = (*stack)[stack->size() - kSettings - kNormBackward + i];
      return given.isNone() ? Tensor() : given.toTensor();
    };
    Tensor x = tensor(2);
    if (auto found = norm_backward(tensor(0), tensor(1), x, tensor(3), *settings)) {
      torch::jit::drop(*stack, kSettings + kNormBackward);
      stack->emplace_back(std::move(found->x));
      if (!found->residual.defined()) found->residual = at::empty({0}, x.options());
      stack->emplace_back(std::move(found->residual));
      stack->emplace_back(std::move(found->parameters));
      return;
    }
  }
  op.callBoxedForDispatchKey(Dispatch::CompositeExplicitAutograd, *stack);
}

std::vector<torch::Library> libraries;

void register_operators() {
  const bool cuda = device_type == c10::DeviceType::CUDA;
  auto& kernels = libraries.emplace_back(torch::Library::IMPL, "deu",
                                         cuda ? Dispatch::CUDA : Dispatch::CPU, __FILE__, __LINE__);
  using torch::CppFunction;
  kernels.impl("value", CppFunction::makeFromBoxedFunction<&forward_operator<false>>());
  kernels.impl("forward", CppFunction::makeFromBoxedFunction<&forward_operator<true>>());
  kernels.impl("backward", CppFunction::makeFromBoxedFunction<&backward_operator>());
  kernels.impl("norm_value", CppFunction::makeFromBoxedFunction<&norm_forward_operator<true>>());
  kernels.impl("norm_forward", CppFunction::makeFromBoxedFunction<&norm_forward_operator<false>>());
  kernels.impl("norm_backward", CppFunction::makeFromBoxedFunction<&norm_backward_operator>());
  auto& autograd = libraries.emplace_back(
      torch::Library::IMPL, "deu", cuda ? Dispatch::AutogradCUDA : Dispatch::AutogradCPU, __FILE__,
      __LINE__);  // they have no gradients
  for (auto* name : {"value", "forward", "backward", "norm_value", "norm_forward", "norm_backward"})
    autograd.impl(name, CppFunction::makeFallthrough());
}

// ---- operators as compiled graphs call them -------------------------------------------------

// PyTorch takes longer to match an operator's arguments than all the rest of a launch.  So what
// calls it from Python asks one of these first, which hands on whatever is not plain.

using Arguments = PyObject* const*;
using Shortcut = PyObject* (*)(Arguments);  // null without an error: not by it

std::optional<int64_t> number_of(PyObject* packed) {
  Py_ssize_t size;
  const char* text = PyUnicode_Check(packed) ? PyUnicode_AsUTF8AndSize(packed, &size) : nullptr;
  if (!text) return std::nullopt;
  return number_of(std::string(text, size));
}

// What a launch makes, while Python goes on elsewhere.
template <class Make>
auto meanwhile(Make make) {
  pybind11::gil_scoped_release without;
  at::AutoDispatchBelowAutograd below;
  return make();
}

template <class... Results>
PyObject* wrapped_all(Results&&... results) {
  Owned tuple{PyTuple_New(sizeof...(results))};
  if (!tuple.object) return nullptr;
  Py_ssize_t i = 0;
  (PyTuple_SET_ITEM(tuple.object, i++, wrapped(results)), ...);
  return std::exchange(tuple.object, nullptr);
}

template <bool keep>
PyObject* forward_shortcut(Arguments given) {
  Tensor t;
  Tensors units;
  auto settings = number_of(given[6]);
  if (!settings || !taken(given[0], t)) return nullptr;
  for (size_t i = 0; i < 5; ++i)
    if (!taken(given[1 + i], units[i])) return nullptr;
  auto made = meanwhile([&] { return forward(t, units, *settings, keep); });
  if (!made) return nullptr;
  return keep ? wrapped_all(made->y, made->forms) : wrapped(made->y);
}

PyObject* backward_shortcut(Arguments given) {
  Tensor grad, forms, t;
  Tensors units;
  auto settings = number_of(given[8]);
  if (!settings || !taken(given[0], grad) || !taken(given[1], forms) || !taken(given[2], t))
    return nullptr;
  for (size_t i = 0; i < 5; ++i)
    if (!taken(given[3 + i], units[i])) return nullptr;
  auto grads = meanwhile([&] { return backward(grad, t, units, forms, *settings, false); });
  if (!grads) return nullptr;
  auto& g = *grads;
  return wrapped_all(g[0], g[1], g[2], g[3], g[4], g[5]);
}

template <bool frozen>
PyObject* norm_forward_shortcut(Arguments given) {
  Tensor x, residual;
  BatchNorm norm;
  Tensors units;
  auto settings = number_of(given[14]);
  if (!settings || !taken(given[0], x) || !taken(given[1], residual, true)) return nullptr;
  Tensor* parts[] = {&norm.weight, &norm.bias, &norm.mean, &norm.var, &norm.batches};
  for (size_t i = 0; i < 5; ++i)
    if (!taken(given[2 + i], *parts[i], i >= 2) || !taken(given[9 + i], units[i])) return nullptr;
  if (!PyFloat_Check(given[7]) || !PyFloat_Check(given[8])) return nullptr;
  norm.momentum = PyFloat_AS_DOUBLE(given[7]);
  norm.eps = PyFloat_AS_DOUBLE(given[8]);
  auto made =
      meanwhile([&] { return norm_forward(x, residual, norm, units, *settings, frozen); });
  if (!made) return nullptr;
  return frozen ? wrapped(made->y) : wrapped_all(made->y, made->saved);
}

PyObject* norm_backward_shortcut(Arguments given) {
  Tensor grad, saved, x, residual;
  auto settings = number_of(given[4]);
  if (!settings || !taken(given[0], grad) || !taken(given[1], saved) || !taken(given[2], x) ||
      !taken(given[3], residual, true))
    return nullptr;
  auto found = meanwhile([&] { return norm_backward(grad, saved, x, residual, *settings); });
  if (!found) return nullptr;
  if (!found->residual.defined()) found->residual = at::empty({0}, x.options());
  return wrapped_all(found->x, found->residual, found->parameters);
}

struct Operator {
  PyObject_HEAD
  vectorcallfunc call;
  PyObject* whole;  // the operator by PyTorch
  Shortcut shortcut;
  Py_ssize_t count;
};

PyObject* call_operator(PyObject* self, PyObject* const* arguments, size_t count,
                        PyObject* keywords) {
  HANDLE_TH_ERRORS
  auto* op = reinterpret_cast<Operator*>(self);
  const bool plain = PyVectorcall_NARGS(count) == op->count && !keywords && nobody_listens() &&
                     !at::hasCallbacks() && !at::impl::torch_function_mode_enabled();
  if (plain) {
    if (PyObject* found = op->shortcut(arguments)) return found;
    if (PyErr_Occurred()) return nullptr;
  }
  return PyObject_Vectorcall(op->whole, arguments, count, keywords);
  END_HANDLE_TH_ERRORS
}

// PyTorch looks operators up by this.
Py_hash_t hash_of_operator(PyObject* self) {
  return PyObject_Hash(reinterpret_cast<Operator*>(self)->whole);
}

void free_operator(PyObject* self) {
  Py_XDECREF(reinterpret_cast<Operator*>(self)->whole);
  PyObject_Free(self);
}

PyTypeObject operator_type = [] {
  PyTypeObject type{PyVarObject_HEAD_INIT(nullptr, 0)};
  type.tp_name = "deu_launcher.Operator";
  type.tp_basicsize = sizeof(Operator);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
  type.tp_vectorcall_offset = offsetof(Operator, call);
  type.tp_call = PyVectorcall_Call;
  type.tp_hash = hash_of_operator;
  type.tp_dealloc = free_operator;
  return type;
}();

struct Known {
  const char* name;
  Shortcut shortcut;
  Py_ssize_t count;
};
constexpr Known kOperators[] = {
    {"value", forward_shortcut<false>, 7},
    {"forward", forward_shortcut<true>, 7},
    {"backward", backward_shortcut, 9},
    {"norm_value", norm_forward_shortcut<true>, 15},
    {"norm_forward", norm_forward_shortcut<false>, 15},
    {"norm_backward", norm_backward_shortcut, 5},
};

// shortened(name, operator): the same with a shortcut
PyObject* shortened(PyObject*, PyObject* arguments) {
  const char* name;
  PyObject* whole;
  if (!PyArg_ParseTuple(arguments, "sO", &name, &whole)) return nullptr;
  for (auto& known : kOperators)
    if (!std::strcmp(name, known.name)) {
      auto* made = PyObject_New(Operator, &operator_type);
      if (!made) return nullptr;
      Py_INCREF(whole);
      made->call = call_operator;
      made->whole = whole;
      made->shortcut = known.shortcut;
      made->count = known.count;
      return reinterpret_cast<PyObject*>(made);
    }
  return PyErr_Format(PyExc_ValueError, "deu has no operator %s", name);
}

// ---- what Python calls ----------------------------------------------------------------------

// use(device type, addresses of cuLaunchKernelEx and of PyTorch's look at the current stream,
//     backward by Python, of a unit and of batch norm and a unit, rows that the latter is left)
PyObject* use(PyObject*, PyObject* arguments) {
  HANDLE_TH_ERRORS
  const char* device;
  unsigned long long launcher, streams;
  PyObject *backward, *norm_backward;
  long long rows;
  if (!PyArg_ParseTuple(arguments, "sKKOOL", &device, &launcher, &streams, &backward,
                        &norm_backward, &rows))
    return nullptr;
  Py_INCREF(backward);
  Py_XSETREF(python_backward, backward);
  Py_INCREF(norm_backward);
  Py_XSETREF(python_norm_backward, norm_backward);
  norm_rows = rows;
  device_type = c10::Device(device).type();
  launch_kernel = reinterpret_cast<LaunchFunction>(launcher);
  current_stream = reinterpret_cast<StreamFunction>(streams);
  register_operators();
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

int64_t remember(PyObject* settings) {
  Owned packed{PyObject_CallMethod(settings, "packed", nullptr)};
  const char* text = packed.object ? PyUnicode_AsUTF8(packed.object) : nullptr;
  if (!text) throw python_error();
  if (PyObject* number = PyDict_GetItemWithError(numbers_of_settings, settings))
    return PyLong_AsLongLong(number);
  if (PyErr_Occurred()) throw python_error();
  Owned number{PyLong_FromSsize_t(PyList_GET_SIZE(settings_by_number))};
  if (!number.object || PyList_Append(settings_by_number, settings) ||
      PyDict_SetItem(numbers_of_settings, settings, number.object))
    throw python_error();
  std::lock_guard<std::mutex> lock(settings_mutex);
  return numbers_of_packed[text] = PyLong_AsLongLong(number.object);
}

// (function, programs, threads, shared memory, overlap, bytes of the fixed parameters, 8 each)
Kernel kernel_of(PyObject* description) {
  Kernel kernel;
  unsigned long long function;
  int overlap;
  Py_buffer fixed;
  if (!PyArg_ParseTuple(description, "KIIIpy*", &function, &kernel.programs, &kernel.threads,
                        &kernel.shared, &overlap, &fixed))
    throw python_error();
  kernel.function = reinterpret_cast<void*>(function);
  kernel.overlap = overlap;
  kernel.fixed.resize(fixed.len / sizeof(uint64_t));
  std::memcpy(kernel.fixed.data(), fixed.buf, kernel.fixed.size() * sizeof(uint64_t));
  PyBuffer_Release(&fixed);
  TORCH_CHECK(kernel.fixed.size() <= 48, "deu: a kernel has too many parameters");
  return kernel;
}

Kernel kernel_of(PyObject* descriptions, Py_ssize_t i) {
  return kernel_of(PyTuple_GET_ITEM(descriptions, i));
}

// keep_forward(t, a, settings, whether forms are kept, their size, kernels)
PyObject* keep_forward(PyObject*, PyObject* arguments) {
  HANDLE_TH_ERRORS
  PyObject *t, *a, *settings, *kernels;
  int keep;
  long long forms;
  if (!PyArg_ParseTuple(arguments, "OOOpLO", &t, &a, &settings, &keep, &forms, &kernels))
    return nullptr;
  forward_plans.keep(key_of(THPVariable_Unpack(t), THPVariable_Unpack(a), remember(settings), keep),
                     {kernel_of(kernels, 0), forms});
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// keep_backward(grad, t, a, settings, size of the sums, kernels)
PyObject* keep_backward(PyObject*, PyObject* arguments) {
  HANDLE_TH_ERRORS
  PyObject *grad, *t, *a, *settings, *kernels;
  long long sums;
  if (!PyArg_ParseTuple(arguments, "OOOOLO", &grad, &t, &a, &settings, &sums, &kernels))
    return nullptr;
  backward_plans.keep(key_of(THPVariable_Unpack(grad), THPVariable_Unpack(t),
                             THPVariable_Unpack(a), remember(settings)),
                      {kernel_of(kernels, 0), kernel_of(kernels, 1), sums});
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

Tensor tensor_or_none(PyObject* object) {
  return object == Py_None ? Tensor() : THPVariable_Unpack(object);
}

// keep_norm_forward(x, residual or None, whether running statistics are tracked, momentum, eps,
//                   whether they are used, settings, sizes of sums and of what is kept, kernels)
PyObject* keep_norm_forward(PyObject*, PyObject* arguments) {
  HANDLE_TH_ERRORS
  PyObject *x, *residual, *mean, *settings, *kernels;
  BatchNorm norm;
  int frozen;
  long long sums, saved;
  if (!PyArg_ParseTuple(arguments, "OOOddpOLLO", &x, &residual, &mean, &norm.momentum, &norm.eps,
                        &frozen, &settings, &sums, &saved, &kernels))
    return nullptr;
  norm.mean = tensor_or_none(mean);
  NormForward plan;
  plan.sums = sums, plan.saved = saved;
  if (!frozen) {
    plan.measure = kernel_of(kernels, 0);
    plan.settle = kernel_of(kernels, 1);
  }
  plan.forward = kernel_of(kernels, PyTuple_GET_SIZE(kernels) - 1);
  norm_forward_plans.keep(norm_key_of(THPVariable_Unpack(x), tensor_or_none(residual),
                                      remember(settings), norm, frozen),
                          std::move(plan));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// keep_norm_backward(grad, x, residual or None, settings, size of sums, kernels)
PyObject* keep_norm_backward(PyObject*, PyObject* arguments) {
  HANDLE_TH_ERRORS
  PyObject *grad, *x, *residual, *settings, *kernels;
  long long sums;
  if (!PyArg_ParseTuple(arguments, "OOOOLO", &grad, &x, &residual, &settings, &sums, &kernels))
    return nullptr;
  norm_backward_plans.keep(
      norm_key_of(THPVariable_Unpack(grad), THPVariable_Unpack(x), tensor_or_none(residual),
                  remember(settings)),
      {kernel_of(kernels, 0), kernel_of(kernels, 1), kernel_of(kernels, 2), sums});
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* clear(PyObject*, PyObject*) {
  forward_plans.clear();
  backward_plans.clear();
  norm_forward_plans.clear();
  norm_backward_plans.clear();
  Py_RETURN_NONE;
}

PyObject* release(PyObject* self, PyObject* none) {
  libraries.clear();
  return clear(self, none);
}

PyMethodDef methods[] = {
    {"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)), METH_FASTCALL, ""},
    {"call_norm", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_norm)),
     METH_FASTCALL, ""},
    {"use", use, METH_VARARGS, ""},
    {"shortened", shortened, METH_VARARGS, ""},
    {"keep_forward", keep_forward, METH_VARARGS, ""},
    {"keep_backward", keep_backward, METH_VARARGS, ""},
    {"keep_norm_forward", keep_norm_forward, METH_VARARGS, ""},
    {"keep_norm_backward", keep_norm_backward, METH_VARARGS, ""},
    {"clear", clear, METH_NOARGS, ""},
    {"release", release, METH_NOARGS, ""},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module{PyModuleDef_HEAD_INIT, "deu_launcher", nullptr, -1, methods};

}  // namespace

PyMODINIT_FUNC PyInit_deu_launcher() {
  numbers_of_settings = PyDict_New();
  settings_by_number = PyList_New(0);
  if (!numbers_of_settings || !settings_by_number || PyType_Ready(&operator_type)) return nullptr;
  return PyModule_Create(&module);
}
