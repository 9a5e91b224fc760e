// The kernels for one instruction set.  The build compiles this file once for each, with
// DEU_ISA naming the namespace, so that no inlined code of one is ever called by another.

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <math.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "inline.h"
#include "job.h"
#include "kernels.h"

#ifndef DEU_ISA
#define DEU_ISA portable
#endif

#if defined(_MSC_VER) && !defined(__clang__)
#define DEU_SIMD __pragma(loop(ivdep))
#define DEU_SIMD_SUM(...)
#define DEU_UNROLL
#else
#define DEU_PRAGMA(text) _Pragma(#text)
#define DEU_SIMD DEU_PRAGMA(omp simd)
#if defined(__clang__)
#define DEU_UNROLL DEU_PRAGMA(unroll)
#else
#define DEU_UNROLL DEU_PRAGMA(GCC unroll 16)
#endif
#define DEU_SIMD_SUM(...) DEU_PRAGMA(omp simd reduction(+ : __VA_ARGS__))
#endif

namespace deu {
namespace DEU_ISA {

#include "narrow.h"

#include "vmath.h"

#include "elementwise.h"

#include "entire.h"

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
static void backward_real(const Unit<V>& u, const W* t, const W* g, W* grad_t, int count, Sums* sums) {
  constexpr bool CAN_BE_FAST = sizeof(typename V::T) == 4;
  if (CAN_BE_FAST && u.fast) return backward_row<REAL, WAY, SLOPE, CAN_BE_FAST>(u, t, g, grad_t, count, sums);
  backward_row<REAL, WAY, SLOPE, false>(u, t, g, grad_t, count, sums);
}

template <class V, bool SLOPE, class W>
static void backward_any(const Neuron& neuron, const Limits& limits, const W* t, const W* g, W* grad_t, int count,
                         Sums* sums) {
  const Unit<V> u(neuron, limits);
  if (limits.continuous) {
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

// Rows are worked on in pieces of at most this many elements, which stay in the first cache;
// sums in float32 never run over more than one piece.
constexpr int PIECE = 1024;
constexpr int CHANNELS = 16;
constexpr int LONG_LINE = 256;
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
                           double* grad_t, int count, Sums* sums) {
  if (neuron.kind == ENTIRE) backward_entire(Unit<Double>(neuron, limits), t, g, grad_t, count, sums);
  else backward_any<Double, SLOPE>(neuron, limits, t, g, grad_t, count, sums);
}

template <bool SLOPE>
static void backward_piece(const Neuron& neuron, const Limits& limits, const float* t, const float* g, float* grad_t,
                           int count, Sums* sums) {
  if (neuron.kind == ENTIRE) return backward_entire(Unit<Double>(neuron, limits), t, g, grad_t, count, sums);
  switch (neuron.precision) {
    case SINGLE_CLOSED:
    case SINGLE: return backward_any<Single, SLOPE>(neuron, limits, t, g, grad_t, count, sums);
    case MEDIUM: return backward_any<Medium, SLOPE>(neuron, limits, t, g, grad_t, count, sums);
    default: return backward_any<Double, SLOPE>(neuron, limits, t, g, grad_t, count, sums);
  }
}

// Eight positions of eight neighbouring channels, from a tensor to rows and back.

template <class S, class W>
DEU_INLINE void gather8(const S* source, int64_t stride, W* rows, int width) {
  for (int i = 0; i < 8; ++i)
    for (int c = 0; c < 8; ++c) rows[c * width + i] = widen(source[i * stride + c]);
}

template <class S, class W>
DEU_INLINE void scatter8(const W* rows, int width, S* target, int64_t stride) {
  for (int i = 0; i < 8; ++i)
    for (int c = 0; c < 8; ++c) narrow(rows[c * width + i], target + i * stride + c);
}

#if defined(__AVX2__)

DEU_INLINE void transpose8(const float* source, int64_t source_stride, float* target, int64_t target_stride) {
  __m256 r[8], s[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(source + i * source_stride);
  for (int i = 0; i < 8; i += 2) {
    s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(target + i * target_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(target + (i + 4) * target_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

template <class S>
DEU_INLINE void gather8(const S* source, int64_t stride, float* rows, int width) {
  float wide[64];
  for (int i = 0; i < 8; ++i)
    for (int c = 0; c < 8; ++c) wide[i * 8 + c] = widen(source[i * stride + c]);
  transpose8(wide, 8, rows, width);
}

DEU_INLINE void gather8(const float* source, int64_t stride, float* rows, int width) {
  transpose8(source, stride, rows, width);
}

template <class S>
DEU_INLINE void scatter8(const float* rows, int width, S* target, int64_t stride) {
  float wide[64];
  transpose8(rows, width, wide, 8);
  for (int i = 0; i < 8; ++i)
    for (int c = 0; c < 8; ++c) narrow(wide[i * 8 + c], target + i * stride + c);
}

DEU_INLINE void scatter8(const float* rows, int width, float* target, int64_t stride) {
  transpose8(rows, width, target, stride);
}

#endif

// The type that elements are worked on in.
template <class S>
struct Work {
  using type = float;
};
template <>
struct Work<double> {
  using type = double;
};

template <class S>
static const S* at(const void* base, const Strides& s, int64_t outer, int64_t channel, int64_t inner) {
  return static_cast<const S*>(base) + outer * s.outer + channel * s.channel + inner * s.inner;
}

// Copies between a tensor and rows, `width` elements apart, one a channel.
template <class S, class W>
struct Tile {
  const Layout& layout;
  int64_t channel, position;
  int channels, count, width;

  template <class Move>
  void each_run(Move move) const {
    int done = 0;
    while (done < count) {
      const int64_t outer = (position + done) / layout.inner, inner = (position + done) % layout.inner;
      const int64_t left = layout.inner - inner;
      const int run = static_cast<int>(left < count - done ? left : count - done);
      move(done, run, outer, inner);
      done += run;
    }
  }

  void load(const void* base, const Strides& s, W* rows) const {
    each_run([&](int done, int run, int64_t outer, int64_t inner) {
      const S* source = at<S>(base, s, outer, channel, inner);
      W* target = rows + done;
      if (channels == 1 && s.inner == 1) {
        DEU_SIMD
        for (int i = 0; i < run; ++i) target[i] = widen(source[i]);
        return;
      }
      const int eights = s.channel == 1 ? channels / 8 * 8 : 0, whole = run / 8 * 8;
      for (int i = 0; i < whole; i += 8)
        for (int c = 0; c < eights; c += 8) gather8(source + i * s.inner + c, s.inner, target + c * width + i, width);
      for (int i = 0; i < run; ++i)
        for (int c = i < whole ? eights : 0; c < channels; ++c)
          target[c * width + i] = widen(source[c * s.channel + i * s.inner]);
    });
  }

  void store(const W* rows, const Strides& s, void* base) const {
    each_run([&](int done, int run, int64_t outer, int64_t inner) {
      S* target = const_cast<S*>(at<S>(base, s, outer, channel, inner));
      const W* source = rows + done;
      if (channels == 1 && s.inner == 1) {
        DEU_SIMD
        for (int i = 0; i < run; ++i) narrow(source[i], target + i);
        return;
      }
      const int eights = s.channel == 1 ? channels / 8 * 8 : 0, whole = run / 8 * 8;
      for (int i = 0; i < whole; i += 8)
        for (int c = 0; c < eights; c += 8) scatter8(source + c * width + i, width, target + i * s.inner + c, s.inner);
      for (int i = 0; i < run; ++i)
        for (int c = i < whole ? eights : 0; c < channels; ++c)
          narrow(source[c * width + i], target + c * s.channel + i * s.inner);
    });
  }

  // The tensor's own memory as a row, where it is one.
  const W* direct(const void* base, const Strides& s) const {
    if (sizeof(S) != sizeof(W) || channels > 1 || s.inner != 1) return nullptr;
    const int64_t outer = position / layout.inner, inner = position % layout.inner;
    if (inner + count > layout.inner) return nullptr;
    return reinterpret_cast<const W*>(at<S>(base, s, outer, channel, inner));
  }
};

template <class W>
static double total(const W* row, int count) {
  double sum = 0;
  DEU_SIMD_SUM(sum)
  for (int i = 0; i < count; ++i) sum += static_cast<double>(row[i]);
  return sum;
}

// One unit of work: a range of positions of all channels, one channel at a time or, where channels
// lie next to each other, CHANNELS.
template <class S, bool BACKWARD>
static void work(const Job& job, int64_t unit) {
  using W = typename Work<S>::type;
  const Layout& layout = job.layout;
  const int64_t from = unit * job.position_block, positions = layout.outer * layout.inner;
  const int64_t to = positions < from + job.position_block ? positions : from + job.position_block;
  const int most = job.channels_together ? TILE : PIECE, width = ROW;
  const int step = job.channels_together ? CHANNELS : 1;

  W time[CHANNELS * ROW], grad[CHANNELS * ROW], result[CHANNELS * ROW];
  Sums* sums = job.sums + unit * layout.channels;
  Sums* pulled_sums = job.neighbour_sums + unit * layout.channels;
  double* centres = job.centres + unit * layout.channels;

  int count;
  for (int64_t position = from; position < to; position += count) {
    count = static_cast<int>(to - position < most ? to - position : most);
    // Long lines are worked on where they lie, which a piece of two lines could not be.
    const int64_t line = layout.inner - position % layout.inner;
    if (layout.inner >= LONG_LINE && line < count) count = static_cast<int>(line);
    for (int64_t channel = 0; channel < layout.channels; channel += step) {
      const int64_t rest = layout.channels - channel;
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
        const int64_t i = channel + c;
        const W* row = t + c * width;
        const bool pull = job.pulled != nullptr && job.pulled[i];
        if (BACKWARD) {
          backward_piece<true>(job.neurons[i], job.limits, row, g + c * width, y + c * width, count, sums + i);
          // A neighbour only lends the gradients of its coefficients.
          if (pull)
            backward_piece<false>(job.neighbours[i], job.limits, row, g + c * width, y, count, pulled_sums + i);
        } else {
          if (pull) centres[i] += total(row, count);
          forward_piece(job.neurons[i], job.limits, row, y + c * width, count);
        }
      }
      if (indirect) tile.store(y, job.out, job.result);
    }
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

static void point(const Neuron& neuron, const Limits& limits, double t, double* value, double* slope) {
  const double one = 1;
  Sums unused{};
  forward_piece(neuron, limits, &t, value, 1);
  backward_piece<true>(neuron, limits, &t, &one, slope, 1, &unused);
}

extern const Kernels kernels;
const Kernels kernels = {run<false>, run<true>, point};

}  // namespace DEU_ISA
}  // namespace deu
