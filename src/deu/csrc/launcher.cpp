// Calls the GPU kernels without Python: the unit's place in autograd, and its launches.
//
// Triton compiles the kernels and _triton.py plans each kind of call; this remembers both, so that a
// further call of the same kind costs as little as one of PyTorch's own activations.  Whatever it
// does not know, it leaves to Python.  _launcher.py builds it, against the PyTorch that is there.

#include <Python.h>

#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/Exceptions.h>
#include <torch/library.h>

namespace {

using at::Tensor;
using Tensors = std::array<Tensor, 5>;  // a, b, c, c1, c2

// ---- launches -------------------------------------------------------------------------------

// CUDA's own structures, spelt out: its headers are not everywhere that its driver is.
struct LaunchAttribute {
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

template <size_t N>
void launch(const Kernel& kernel, void* stream, const std::array<void*, N>& tensors) {
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
  TORCH_CHECK(error == 0, "deu: a kernel could not be launched; CUDA's driver says error ", error);
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
};
struct Backward {
  Kernel backward, finish;
  int64_t sums;
};

// All that a plan depends on: the tensors' types, sizes and strides, the settings.
struct Key {
  std::vector<int64_t> numbers;
  bool operator==(const Key& other) const { return numbers == other.numbers; }
};
struct Hash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 1469598103934665603u;
    for (int64_t n : key.numbers) hash = (hash ^ static_cast<uint64_t>(n)) * 1099511628211u;
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

void describe(Key& key, const Tensor& t) {
  for (int64_t n : t.sizes()) key.numbers.push_back(n);
  for (int64_t n : t.strides()) key.numbers.push_back(n);
}

Key key_of(const Tensor& t, const Tensor& a, int64_t settings, bool keep) {
  Key key;
  key.numbers.reserve(24);
  key.numbers = {settings, keep, static_cast<int64_t>(t.scalar_type()),
                 static_cast<int64_t>(a.scalar_type()), t.device().index(), a.numel()};
  describe(key, t);
  return key;
}

Key key_of(const Tensor& grad, const Tensor& t, const Tensor& a, int64_t settings) {
  Key key = key_of(t, a, settings, true);
  for (int64_t n : grad.strides()) key.numbers.push_back(n);
  return key;
}

// ---- the unit -------------------------------------------------------------------------------

constexpr int64_t kForm = 7;  // numbers of a normal form, as in _triton.py

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
  result.y = at::empty_like(t);
  void* forms = units[0].data_ptr();
  if (keep) {
    result.forms = at::empty({kForm * units[0].numel()}, t.options().dtype(at::kDouble));
    forms = result.forms.data_ptr();
  }
  launch<8>(plan->kernel, stream_of(t),
            {t.data_ptr(), result.y.data_ptr(), units[0].data_ptr(), units[1].data_ptr(),
             units[2].data_ptr(), units[3].data_ptr(), units[4].data_ptr(), forms});
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

// Room for the gradients of the five coefficients and for the sums that they are made of, whose
// address is returned.  If they may lie side by side, that is one allocation instead of six.
std::pair<Tensor, void*> make_room(Gradients& grads, const Tensor& like, int64_t sums,
                                   bool side_by_side) {
  const auto bytes = like.options().dtype(at::kByte);
  const int64_t room = sums * sizeof(double);
  if (!side_by_side) {
    for (size_t i = 0; i < 5; ++i) grads[i + 1] = at::empty_like(like);
    Tensor memory = at::empty({room}, bytes);
    return {memory, memory.data_ptr()};
  }
  const int64_t step = (like.numel() * like.element_size() + 15) / 16 * 16;
  Tensor memory = at::empty({5 * step + room}, bytes);
  for (size_t i = 0; i < 5; ++i) grads[i + 1] = piece_of(memory, i * step, like);
  return {memory, static_cast<char*>(memory.data_ptr()) + 5 * step};
}

std::optional<Gradients> backward(const Tensor& grad, const Tensor& t, const Tensors& units,
                                  const Tensor& forms, int64_t settings, bool side_by_side) {
  if (!plain(t, units) || grad.scalar_type() != t.scalar_type() || !aligned(grad) ||
      grad.device() != t.device())
    return std::nullopt;
  auto plan = backward_plans.find(key_of(grad, t, units[0], settings));
  if (!plan) return std::nullopt;
  Gradients grads;
  grads[0] = at::empty_like(t);
  auto [memory, sums] = make_room(grads, units[0], plan->sums, side_by_side);
  void* stream = stream_of(t);
  std::array<void*, 5> p;
  for (size_t i = 0; i < 5; ++i) p[i] = units[i].data_ptr();
  launch<8>(plan->backward, stream,
            {t.data_ptr(), grad.data_ptr(), grads[0].data_ptr(), p[0], p[1], p[2],
             forms.data_ptr(), sums});
  launch<11>(plan->finish, stream,
             {p[0], p[1], p[2], p[3], p[4], sums, grads[1].data_ptr(),
              grads[2].data_ptr(), grads[3].data_ptr(), grads[4].data_ptr(), grads[5].data_ptr()});
  return grads;
}

// ---- autograd -------------------------------------------------------------------------------

PyObject* numbers_of_settings = nullptr;  // a dict: each Settings that came by, and its number
PyObject* settings_by_number = nullptr;   // a list
PyObject* python_backward = nullptr;      // (grad, t, a, b, c, c1, c2, forms, settings)
PyObject* python_twice = nullptr;         // the same, differentiable

struct Gil {
  PyGILState_STATE state = PyGILState_Ensure();
  ~Gil() { PyGILState_Release(state); }
};

struct Owned {
  PyObject* object;
  ~Owned() { Py_XDECREF(object); }
};

torch::autograd::variable_list by_python(PyObject* function, const Tensor& grad, const Tensor& t,
                                         const Tensors& units, const Tensor& forms,
                                         int64_t settings) {
  Gil gil;
  Owned arguments{PyTuple_New(9)};
  if (!arguments.object) throw python_error();
  size_t i = 0;
  for (auto* x : {&grad, &t, &units[0], &units[1], &units[2], &units[3], &units[4], &forms})
    PyTuple_SET_ITEM(arguments.object, i++, THPVariable_Wrap(*x));
  PyObject* given = PyList_GET_ITEM(settings_by_number, settings);
  Py_INCREF(given);
  PyTuple_SET_ITEM(arguments.object, i, given);
  Owned found{PyObject_CallObject(function, arguments.object)};
  if (!found.object) {
    python_error error;
    error.persist();
    throw std::move(error);
  }
  torch::autograd::variable_list grads;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(found.object); ++k) {
    PyObject* item = PyTuple_GET_ITEM(found.object, k);
    grads.push_back(item == Py_None ? Tensor() : THPVariable_Unpack(item));
  }
  return grads;
}

struct Unit : public torch::autograd::Function<Unit> {
  static constexpr bool is_traceable = false;

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
    torch::autograd::variable_list grads;
    if (at::GradMode::is_enabled()) {
      grads = by_python(python_twice, grad[0], saved[0], units, forms, settings);
    } else if (auto found = ::backward(grad[0], saved[0], units, forms, settings, true)) {
      grads.assign(found->begin(), found->end());
    } else {
      grads = by_python(python_backward, grad[0], saved[0], units, forms, settings);
    }
    grads.resize(8);  // none of what is no tensor
    return grads;
  }
};

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

// Whether no mode, transform or tracer is at work in this thread.
bool nobody_listens() {
  static const auto known =
      kAutocast | c10::DispatchKeySet({Dispatch::BackendSelect, Dispatch::ADInplaceOrView});
  return within(c10::impl::tls_local_dispatch_key_set().included_, known);
}

// call(t, (a, b, c, c1, c2), settings): y, or None if Python has to do it.
PyObject* call(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  if (count != 3 || !PyTuple_Check(arguments[1]) || PyTuple_GET_SIZE(arguments[1]) != 5)
    Py_RETURN_NONE;
  auto usable = [](PyObject* x) {
    return THPVariable_CheckExact(x) && ordinary(THPVariable_Unpack(x));
  };
  if (!usable(arguments[0]) || !nobody_listens()) Py_RETURN_NONE;
  const Tensor& t = THPVariable_Unpack(arguments[0]);
  Tensors units;
  bool grads = t.requires_grad();
  for (size_t i = 0; i < 5; ++i) {
    PyObject* p = PyTuple_GET_ITEM(arguments[1], i);
    if (!usable(p)) Py_RETURN_NONE;
    units[i] = THPVariable_Unpack(p);
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
      y = Unit::apply(t, units[0], units[1], units[2], units[3], units[4], *made, settings);
    else if (made)
      y = made->y;
  }
  if (!y.defined()) Py_RETURN_NONE;
  return THPVariable_Wrap(std::move(y));
  END_HANDLE_TH_ERRORS
}

// ---- operators ------------------------------------------------------------------------------

struct Fields {
  int64_t dim;
  std::string solution;
  std::array<double, 5> numbers;
  bool training;
  bool operator==(const Fields& other) const {
    return dim == other.dim && solution == other.solution && numbers == other.numbers &&
           training == other.training;
  }
};

std::mutex fields_mutex;
std::vector<Fields> fields_by_number;

constexpr size_t kSettings = 8;

std::optional<int64_t> number_of(const torch::jit::Stack& stack) {
  auto at = [&](size_t i) -> const c10::IValue& { return stack[stack.size() - kSettings + i]; };
  std::lock_guard<std::mutex> lock(fields_mutex);
  for (size_t i = 0; i < fields_by_number.size(); ++i) {
    const Fields& fields = fields_by_number[i];
    if (at(0).toInt() != fields.dim || at(1).toStringRef() != fields.solution ||
        at(7).toBool() != fields.training)
      continue;
    bool same = true;
    for (size_t k = 0; k < 5; ++k) same &= at(k + 2).toDouble() == fields.numbers[k];
    if (same) return i;
  }
  return std::nullopt;
}

// The last of an operator's tensors: t, a, b, c, c1, c2.
std::pair<Tensor, Tensors> units_of(const torch::jit::Stack& stack) {
  auto at = [&](size_t i) { return stack[stack.size() - kSettings - 6 + i].toTensor(); };
  return {at(0), Tensors{at(1), at(2), at(3), at(4), at(5)}};
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

std::vector<torch::Library> libraries;

void register_operators() {
  const bool cuda = device_type == c10::DeviceType::CUDA;
  auto& kernels = libraries.emplace_back(torch::Library::IMPL, "deu",
                                         cuda ? Dispatch::CUDA : Dispatch::CPU, __FILE__, __LINE__);
  using torch::CppFunction;
  kernels.impl("value", CppFunction::makeFromBoxedFunction<&forward_operator<false>>());
  kernels.impl("forward", CppFunction::makeFromBoxedFunction<&forward_operator<true>>());
  kernels.impl("backward", CppFunction::makeFromBoxedFunction<&backward_operator>());
  auto& autograd = libraries.emplace_back(
      torch::Library::IMPL, "deu", cuda ? Dispatch::AutogradCUDA : Dispatch::AutogradCPU, __FILE__,
      __LINE__);  // they have no gradients
  for (auto* name : {"value", "forward", "backward"})
    autograd.impl(name, CppFunction::makeFallthrough());
}

// ---- what Python calls ----------------------------------------------------------------------

// use(device type, addresses of cuLaunchKernelEx and of PyTorch's look at the current stream,
//     backward by Python, the same differentiable)
PyObject* use(PyObject*, PyObject* arguments) {
  HANDLE_TH_ERRORS
  const char* device;
  unsigned long long launcher, streams;
  if (!PyArg_ParseTuple(arguments, "sKKOO", &device, &launcher, &streams, &python_backward,
                        &python_twice))
    return nullptr;
  Py_INCREF(python_backward);
  Py_INCREF(python_twice);
  device_type = c10::Device(device).type();
  launch_kernel = reinterpret_cast<LaunchFunction>(launcher);
  current_stream = reinterpret_cast<StreamFunction>(streams);
  register_operators();
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

int64_t remember(PyObject* settings) {
  if (PyObject* number = PyDict_GetItemWithError(numbers_of_settings, settings))
    return PyLong_AsLongLong(number);
  Fields fields;
  const char* solution;
  int training;
  if (PyErr_Occurred() ||
      !PyArg_ParseTuple(settings, "Lsdddddp", &fields.dim, &solution, &fields.numbers[0],
                        &fields.numbers[1], &fields.numbers[2], &fields.numbers[3],
                        &fields.numbers[4], &training))
    throw python_error();
  fields.solution = solution;
  fields.training = training;
  std::lock_guard<std::mutex> lock(fields_mutex);
  Owned number{PyLong_FromSize_t(fields_by_number.size())};
  if (!number.object || PyList_Append(settings_by_number, settings) ||
      PyDict_SetItem(numbers_of_settings, settings, number.object))
    throw python_error();
  fields_by_number.push_back(std::move(fields));
  return fields_by_number.size() - 1;
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

// keep_forward(t, a, settings, keep, kernel)
PyObject* keep_forward(PyObject*, PyObject* arguments) {
  HANDLE_TH_ERRORS
  PyObject *t, *a, *settings, *kernel;
  int keep;
  if (!PyArg_ParseTuple(arguments, "OOOpO", &t, &a, &settings, &keep, &kernel)) return nullptr;
  forward_plans.keep(key_of(THPVariable_Unpack(t), THPVariable_Unpack(a), remember(settings), keep),
                     {kernel_of(kernel)});
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// keep_backward(grad, t, a, settings, size of the sums, kernel, last step)
PyObject* keep_backward(PyObject*, PyObject* arguments) {
  HANDLE_TH_ERRORS
  PyObject *grad, *t, *a, *settings, *kernel, *finish;
  long long sums;
  if (!PyArg_ParseTuple(arguments, "OOOOLOO", &grad, &t, &a, &settings, &sums, &kernel, &finish))
    return nullptr;
  backward_plans.keep(key_of(THPVariable_Unpack(grad), THPVariable_Unpack(t),
                             THPVariable_Unpack(a), remember(settings)),
                      {kernel_of(kernel), kernel_of(finish), sums});
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* clear(PyObject*, PyObject*) {
  forward_plans.clear();
  backward_plans.clear();
  Py_RETURN_NONE;
}

PyObject* release(PyObject* self, PyObject* none) {
  libraries.clear();
  return clear(self, none);
}

PyMethodDef methods[] = {
    {"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)), METH_FASTCALL, ""},
    {"use", use, METH_VARARGS, ""},
    {"keep_forward", keep_forward, METH_VARARGS, ""},
    {"keep_backward", keep_backward, METH_VARARGS, ""},
    {"clear", clear, METH_NOARGS, ""},
    {"release", release, METH_NOARGS, ""},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module{PyModuleDef_HEAD_INIT, "deu_launcher", nullptr, -1, methods};

}  // namespace

PyMODINIT_FUNC PyInit_deu_launcher() {
  numbers_of_settings = PyDict_New();
  settings_by_number = PyList_New(0);
  if (!numbers_of_settings || !settings_by_number) return nullptr;
  return PyModule_Create(&module);
}
