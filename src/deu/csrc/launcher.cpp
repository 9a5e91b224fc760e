// Calls the GPU kernels without Python.
//
// Triton compiles the kernels and _triton.py plans each kind of call; this remembers both, so that
// a further call of the same kind costs as little as one of PyTorch's own activations.  Whatever it
// does not know, it leaves to Python.  _launcher.py builds it, against the PyTorch that is there.

#include "autograd.h"
#include "operators.h"

namespace {

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
  operators::offer_all();
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
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

// keep_packed(x, residual or None, packed numbers, whether batch norm is among them, settings,
//             kernels)
PyObject* keep_packed(PyObject*, PyObject* arguments) {
  HANDLE_TH_ERRORS
  PyObject *x, *residual, *packed, *settings, *kernels;
  int normed;
  if (!PyArg_ParseTuple(arguments, "OOOpOO", &x, &residual, &packed, &normed, &settings, &kernels))
    return nullptr;
  packed_plans.keep(packed_key_of(THPVariable_Unpack(x), tensor_or_none(residual),
                                  THPVariable_Unpack(packed), normed, remember(settings)),
                    kernel_of(kernels, 0));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* clear(PyObject*, PyObject*) {
  packed_plans.clear();
  forward_plans.clear();
  backward_plans.clear();
  norm_forward_plans.clear();
  norm_backward_plans.clear();
  Py_RETURN_NONE;
}

PyObject* release(PyObject* self, PyObject* none) {
  operators::libraries.clear();
  return clear(self, none);
}

PyMethodDef methods[] = {
    {"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)), METH_FASTCALL, ""},
    {"call_norm", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_norm)),
     METH_FASTCALL, ""},
    {"call_packed",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_packed)), METH_FASTCALL, ""},
    {"use", use, METH_VARARGS, ""},
    {"names", operators::names, METH_NOARGS, ""},
    {"shortened", operators::shortened, METH_VARARGS, ""},
    {"keep_forward", keep_forward, METH_VARARGS, ""},
    {"keep_backward", keep_backward, METH_VARARGS, ""},
    {"keep_norm_forward", keep_norm_forward, METH_VARARGS, ""},
    {"keep_norm_backward", keep_norm_backward, METH_VARARGS, ""},
    {"keep_packed", keep_packed, METH_VARARGS, ""},
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
  if (PyType_Ready(&operators::shortened_type)) return nullptr;
  return PyModule_Create(&module);
}
