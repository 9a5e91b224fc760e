// The kernels for one instruction set.  The build compiles this file once for each, with
// DEU_ISA naming the namespace, so that no inlined code of one is ever called by another.

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>
#include <math.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "inline.h"
#include "job.h"
#include "kernels.h"
#include "simd.h"

#ifndef DEU_ISA
#define DEU_ISA portable
#endif

namespace deu {
namespace DEU_ISA {

#include "narrow.h"

#include "vmath.h"

#include "elementwise.h"

#include "entire.h"

#include "lanes.h"

#include "tile.h"

template <class V, bool SMALL, class W>
static void forward_any(const Neuron& neuron, const Limits& limits, const W* t, W* y, int count) {
  const Unit<V> u(neuron, limits);
  if (limits.continuous) {
    if (neuron.kind == REAL) {
      if (u.way == SETTLING) return forward_row<REAL, SETTLING, SMALL>(u, t, y, count);
      if (u.way == FALLING) return forward_row<REAL, FALLING, SMALL>(u, t, y, count);
      return forward_row<REAL, RISING, SMALL>(u, t, y, count);
    }
    if (u.way == FALLING) return forward_row<OSCILLATING, FALLING, SMALL>(u, t, y, count);
    return forward_row<OSCILLATING, RISING, SMALL>(u, t, y, count);
  }
  switch (neuron.kind) {
    case STEP: return forward_row<STEP, PAPER, SMALL>(u, t, y, count);
    case POLYNOMIAL: return forward_row<POLYNOMIAL, PAPER, SMALL>(u, t, y, count);
    case EXPONENTIAL: return forward_row<EXPONENTIAL, PAPER, SMALL>(u, t, y, count);
    case REAL: return forward_row<REAL, PAPER, SMALL>(u, t, y, count);
    case CRITICAL: return forward_row<CRITICAL, PAPER, SMALL>(u, t, y, count);
    default: return forward_row<OSCILLATING, PAPER, SMALL>(u, t, y, count);
  }
}

template <int WAY, bool SLOPE, class V, class W>
static void backward_real(const Unit<V>& u, const W* t, const W* g, W* grad_t, int count, double* sums) {
  constexpr bool CAN_BE_FAST = sizeof(typename V::T) == 4;
  if (CAN_BE_FAST && Unit<V>::fast(u.closed_errors)) return backward_row<REAL, WAY, SLOPE, CAN_BE_FAST>(u, t, g, grad_t, count, sums);
  backward_row<REAL, WAY, SLOPE, false>(u, t, g, grad_t, count, sums);
}

template <class V, bool SLOPE, class W>
static void backward_any(const Neuron& neuron, const Limits& limits, const W* t, const W* g, W* grad_t, int count,
                         double* sums) {
  const Unit<V> u(neuron, limits);
  // Neighbours, of whom no slope is wanted, are of the paper's solution.
  if (SLOPE && limits.continuous) {
    if (neuron.kind == REAL) {
      if (u.way == SETTLING) return backward_real<SETTLING, SLOPE>(u, t, g, grad_t, count, sums);
      if (u.way == FALLING) return backward_real<FALLING, SLOPE>(u, t, g, grad_t, count, sums);
      return backward_real<RISING, SLOPE>(u, t, g, grad_t, count, sums);
    }
    if (u.way == FALLING) return backward_row<OSCILLATING, FALLING, SLOPE, false>(u, t, g, grad_t, count, sums);
    return backward_row<OSCILLATING, RISING, SLOPE, false>(u, t, g, grad_t, count, sums);
  }
  switch (neuron.kind) {
    case STEP: return backward_row<STEP, PAPER, SLOPE, false>(u, t, g, grad_t, count, sums);
    case POLYNOMIAL: return backward_row<POLYNOMIAL, PAPER, SLOPE, false>(u, t, g, grad_t, count, sums);
    case EXPONENTIAL: return backward_row<EXPONENTIAL, PAPER, SLOPE, false>(u, t, g, grad_t, count, sums);
    case REAL: return backward_real<PAPER, SLOPE>(u, t, g, grad_t, count, sums);
    case CRITICAL: return backward_row<CRITICAL, PAPER, SLOPE, false>(u, t, g, grad_t, count, sums);
    default: return backward_row<OSCILLATING, PAPER, SLOPE, false>(u, t, g, grad_t, count, sums);
  }
}

constexpr int CHANNELS = 16;
constexpr int TILE = 512;  // positions of a piece when CHANNELS channels are worked on together
// Rows of a tile lie this far apart: a power of two would put them all into the same cache sets.
constexpr int ROW = TILE + 16;
static_assert(CHANNELS * ROW >= PIECE, "buffers are shared");

static void forward_piece(const Neuron& neuron, const Limits& limits, const double* t, double* y, int count) {
  if (neuron.kind == ENTIRE) forward_entire(Unit<Double>(neuron, limits), t, y, count);
  else forward_any<Double, false>(neuron, limits, t, y, count);
}

static void forward_piece(const Neuron& neuron, const Limits& limits, const float* t, float* y, int count) {
  if (neuron.kind == ENTIRE) return forward_entire(Unit<Double>(neuron, limits), t, y, count);
  switch (neuron.precision) {
    case SINGLE_CLOSED: return forward_any<Single, true>(neuron, limits, t, y, count);
    case SINGLE: return forward_any<Single, false>(neuron, limits, t, y, count);
    case MEDIUM: return forward_any<Medium, false>(neuron, limits, t, y, count);
    default: return forward_any<Double, false>(neuron, limits, t, y, count);
  }
}

template <bool SLOPE>
static void backward_piece(const Neuron& neuron, const Limits& limits, const double* t, const double* g,
                           double* grad_t, int count, double* sums) {
  if (neuron.kind == ENTIRE) backward_entire(Unit<Double>(neuron, limits), t, g, grad_t, count, sums);
  else backward_any<Double, SLOPE>(neuron, limits, t, g, grad_t, count, sums);
}

template <bool SLOPE>
static void backward_piece(const Neuron& neuron, const Limits& limits, const float* t, const float* g, float* grad_t,
                           int count, double* sums) {
  if (neuron.kind == ENTIRE) return backward_entire(Unit<Double>(neuron, limits), t, g, grad_t, count, sums);
  switch (neuron.precision) {
    case SINGLE_CLOSED:
    case SINGLE: return backward_any<Single, SLOPE>(neuron, limits, t, g, grad_t, count, sums);
    case MEDIUM: return backward_any<Medium, SLOPE>(neuron, limits, t, g, grad_t, count, sums);
    default: return backward_any<Double, SLOPE>(neuron, limits, t, g, grad_t, count, sums);
  }
}

template <class W>
static double total(const W* row, int count) {
  double sum = 0;
  DEU_SIMD_SUM(sum)
  for (int i = 0; i < count; ++i) sum += static_cast<double>(row[i]);
  return sum;
}

// What a unit of work consists of, or the part of it that is worked on in one way.
struct Part {
  int64_t from, to;      // positions
  int64_t channel, end;  // channels
  double *centres, *sums, *neighbour_sums;  // of this block of positions
};

#include "groups.h"

// How long pieces of a line are, if none is much shorter than the others.
static int64_t equal_piece(int64_t line, int64_t most) {
  const int64_t pieces = (line + most - 1) / most, share = (line + pieces - 1) / pieces;
  return (share + LANES - 1) / LANES * LANES;
}

// A neuron at hand, and sums over its inputs.
struct Row {
  Neuron neuron;
  double centre, sums[NUMBERS];
};

// One channel at a time or, where channels lie next to each other, CHANNELS.
template <class S, bool BACKWARD>
static void work_in_rows(const Job& job, const Part& part) {
  using W = typename Work<S>::type;
  static thread_local std::vector<Row> rows, neighbours;
  const bool pull = job.pulled != nullptr;
  rows.assign(part.end - part.channel, {});
  neighbours.assign(BACKWARD && pull ? rows.size() : 0, {});
  for (size_t r = 0; r < rows.size(); ++r) rows[r].neuron = job.neurons[part.channel + r];
  for (size_t r = 0; r < neighbours.size(); ++r) neighbours[r].neuron = job.neighbours[part.channel + r];
  const Layout& layout = job.layout;
  const int most = job.channels_together ? TILE : PIECE, width = ROW;
  const int step = job.channels_together ? CHANNELS : 1;
  const int64_t stride = job.neurons.stride;

  W time[CHANNELS * ROW], grad[CHANNELS * ROW], result[CHANNELS * ROW];
  int count;
  for (int64_t position = part.from; position < part.to; position += count) {
    count = static_cast<int>(part.to - position < most ? part.to - position : most);
    // Long lines are worked on where they lie, which a piece of two lines could not be, in equal pieces.
    if (layout.inner >= LONG_LINE) {
      const int64_t line = layout.inner - position % layout.inner, equal = equal_piece(line, most);
      if (equal < count) count = static_cast<int>(equal);
    }
    for (int64_t channel = part.channel; channel < part.end; channel += step) {
      const int64_t rest = part.end - channel;
      const int channels = static_cast<int>(rest < step ? rest : step);
      const Tile<S, W> tile{layout, channel, position, channels, count, width};
      const W* t = tile.direct(job.t, job.in);
      const W* g = BACKWARD ? tile.direct(job.g, job.grad) : nullptr;
      W* y = const_cast<W*>(tile.direct(job.result, job.out));
      const bool indirect = y == nullptr;
      if (t == nullptr) tile.load(job.t, job.in, time), t = time;
      if (BACKWARD && g == nullptr) tile.load(job.g, job.grad, grad), g = grad;
      if (indirect) y = result;
      for (int c = 0; c < channels; ++c) {
        const int64_t r = channel + c - part.channel;
        const W* row = t + c * width;
        const bool pulled = pull && job.pulled[channel + c];
        if (BACKWARD) {
          const W* g_row = g + c * width;
          backward_piece<true>(rows[r].neuron, job.limits, row, g_row, y + c * width, count, rows[r].sums);
          // A neighbour only lends the gradients of its coefficients.
          if (pulled)
            backward_piece<false>(neighbours[r].neuron, job.limits, row, g_row, y, count, neighbours[r].sums);
        } else {
          if (pulled) rows[r].centre += total(row, count);
          forward_piece(rows[r].neuron, job.limits, row, y + c * width, count);
        }
      }
      if (indirect) tile.store(y, job.out, job.result);
    }
  }

  for (size_t r = 0; r < rows.size(); ++r) {
    if (!BACKWARD && pull) part.centres[part.channel + r] += rows[r].centre;
    for (int k = 0; BACKWARD && k < NUMBERS; ++k) part.sums[k * stride + part.channel + r] += rows[r].sums[k];
  }
  for (size_t r = 0; r < neighbours.size(); ++r)
    for (int k = 0; k < NUMBERS; ++k) part.neighbour_sums[k * stride + part.channel + r] += neighbours[r].sums[k];
}

template <class S, bool BACKWARD>
static void work(const Job& job, int64_t unit) {
  const int64_t row = unit / job.channel_blocks, column = unit % job.channel_blocks;
  const int64_t positions = job.layout.outer * job.layout.inner, channels = job.layout.channels;
  Part part{};
  part.from = row * job.position_block;
  part.to = positions < part.from + job.position_block ? positions : part.from + job.position_block;
  part.channel = column * job.channel_block;
  part.end = column == job.channel_blocks - 1 ? channels : part.channel + job.channel_block;
  if (job.centres != nullptr) part.centres = job.centres + row * job.neurons.stride;
  if (job.sums != nullptr) part.sums = job.sums + row * NUMBERS * job.neurons.stride;
  if (job.neighbour_sums != nullptr) part.neighbour_sums = job.neighbour_sums + row * NUMBERS * job.neurons.stride;
  if (!job.channels_together) return work_in_rows<S, BACKWARD>(job, part);
  static thread_local const auto groups = std::make_unique<Groups<typename Work<S>::type>>();
  work_in_groups<S, BACKWARD>(job, part, groups.get());
  for (int i = 0; i < groups->rows; ++i) {
    part.channel = groups->row[i][0], part.end = groups->row[i][1];
    work_in_rows<S, BACKWARD>(job, part);
  }
}

template <bool BACKWARD>
static void run(const Job& job, int64_t unit) {
  switch (job.dtype) {
    case FLOAT64: return work<double, BACKWARD>(job, unit);
    case BFLOAT16: return work<BFloat16, BACKWARD>(job, unit);
    case FLOAT16: return work<Half, BACKWARD>(job, unit);
    default: return work<float, BACKWARD>(job, unit);
  }
}

static void points(const Neurons& neurons, const Limits& limits, const double* t, int count, double* value,
                   double* slope) {
  double ones[NEURONS], unused[NUMBERS * NEURONS] = {};
  for (double& one : ones) one = 1;
  Job job{};
  job.layout = {1, count, 1};
  job.in = job.grad = job.out = {0, 1, 0};
  job.dtype = FLOAT64;
  job.limits = limits;
  job.neurons = neurons;
  job.channels_together = true;
  job.position_block = job.position_blocks = 1;
  job.channel_block = GROUPS * LANES, job.channel_blocks = blocks_of_groups(count);
  job.t = t, job.result = value;
  for (int64_t unit = 0; unit < job.units(); ++unit) work<double, false>(job, unit);
  job.g = ones, job.result = slope, job.sums = unused;
  for (int64_t unit = 0; unit < job.units(); ++unit) work<double, true>(job, unit);
}

extern const Kernels kernels;
const Kernels kernels = {run<false>, run<true>, points};

}  // namespace DEU_ISA
}  // namespace deu
