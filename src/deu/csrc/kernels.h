// What each instruction set's kernels offer.
#pragma once

#include "job.h"

namespace deu {

struct Kernels {
  void (*forward)(const Job&, int64_t unit);
  void (*backward)(const Job&, int64_t unit);
  // y and dy/dt of at most NEURONS units in float64, of each at a t of its own
  void (*points)(const Neurons&, const Limits&, const double* t, int count, double* value, double* slope);
};

// What they offer for blocks of at most NEURONS neurons.
struct NeuronKernels {
  void (*solve)(const Forming&, int64_t from, int count);
  void (*pull_back)(const double* sums, int64_t position_blocks, int64_t stride,
                    const double (*derivatives)[NEURONS], int count, double (*gradients)[NEURONS]);
  void (*limit_length)(double most, int count, double (*gradients)[NEURONS]);
};

}  // namespace deu
