// What each instruction set's kernels offer.
#pragma once

#include "job.h"

namespace deu {

struct Kernels {
  void (*forward)(const Job&, int64_t unit);
  void (*backward)(const Job&, int64_t unit);
  // y(t) and dy/dt of one unit, in float64
  void (*point)(const Neuron&, const Limits&, double t, double* value, double* slope);
};

}  // namespace deu
