// From coefficients to normal forms, and from sums over inputs to gradients: blocks of neurons side by
// side.  The build compiles this file once for each instruction set, and lets no product melt into a sum:
// which subspace a neuron is in must not depend on how the compiler rounds.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "inline.h"
#include "job.h"
#include "kernels.h"
#include "simd.h"

#ifndef DEU_ISA
#define DEU_ISA portable
#endif

namespace deu {
namespace DEU_ISA {

#include "rows.h"

// Up to which numbers of a neuron's normal form float32 is good enough: for f in closed form, for
// f with care, for the frequency of an oscillation, for a root that grows, and from which distance
// of two roots on; up to which derivatives of those numbers for gradients, whose rounding errors
// they multiply; and how far the two ways of float64 reach.
constexpr double CLOSED_NUMBER = 8, TRUSTED_NUMBER = 1000, TRUSTED_FREQUENCY = 64;
constexpr double TRUSTED_GROWTH = 0.15, TRUSTED_GAP = 0.75;
constexpr double TRUSTED_DERIVATIVE = 64, TRUSTED_BY_MEDIUM = 1e5, TRUSTED_BY_DOUBLE = 1e8;

// Neurons of a block whose coefficients are on one row of their solution.
struct Chosen {
  int count;
  int which[NEURONS];
  double a[NEURONS], b[NEURONS], c[NEURONS], c1[NEURONS], c2[NEURONS];
};

// Where their normal forms go: a row of neurons for each number, and NEURONS for each derivative.
struct Filled {
  double* numbers;
  int64_t stride;
  double (*derivatives)[NEURONS];  // null if they are not asked for
  unsigned char* precisions;
  double growth;             // up to which root float32 is good enough
  double steepest[NEURONS];  // the largest derivative: how much gradients amplify rounding errors
};

// A neuron's place in such rows, for the generated code.
struct NumbersOf {
  double* first;
  int64_t stride;
  double& operator[](int k) const { return first[k * stride]; }
};

struct DerivativesOf {
  double* first;
  NumbersOf operator[](int k) const { return {first + k * 5 * NEURONS, NEURONS}; }
};

// The largest in size of each neuron's numbers; NaN if there is one, which no comparison trusts.
static void largest(const double* rows, int64_t stride, int from, int to, int count, double* result) {
  double total[NEURONS];
  for (int l = 0; l < count; ++l) result[l] = total[l] = 0;
  for (int k = from; k < to; ++k) {
    const double* row = rows + k * stride;
    DEU_SIMD
    for (int l = 0; l < count; ++l) {
      const double size = std::fabs(row[l]);
      total[l] += size;
      result[l] = size > result[l] ? size : result[l];
    }
  }
  DEU_SIMD
  for (int l = 0; l < count; ++l) result[l] = total[l] != total[l] ? total[l] : result[l];
}

DEU_INLINE double larger(double x, double y) { return x <= y || y != y ? y : x; }

// How much the derivatives of a real root count: a sum over t·e^(rt) and ∂M/∂r, and so its errors,
// are the smaller the faster the root.
DEU_INLINE double root_weight(double root, double size, double D) {
  const double over = 1 / std::fabs(root);
  const double weight = 16 * over * (16 * std::fabs(size) + D * over);
  return weight < 0.25 ? weight : 0.25;
}

// Two real roots: f = D·(M(q, t) - M(p, t)) with D = 1/√Δ and M(r, t) = (e^(rt) - 1)/r, which
// stays what it is where a root, and with it c, goes to 0.  D takes the place of Af.
static void part_roots(const Chosen& k, const Filled& to) {
  double* D = to.numbers + Af_ * to.stride;
  double* none = to.numbers + Bf_ * to.stride;
  DEU_SIMD
  for (int l = 0; l < k.count; ++l) {
    const double over = 1 / (k.b[l] * k.b[l] - 4 * k.a[l] * k.c[l]);
    D[l] = std::sqrt(over);
    none[l] = 0;
  }
  if (to.derivatives == nullptr) return;
  double(*row)[NEURONS] = to.derivatives + 5 * Af_;
  std::memset(row, 0, 10 * sizeof(*row));
  DEU_SIMD
  for (int l = 0; l < k.count; ++l) {
    const double over = 1 / (k.b[l] * k.b[l] - 4 * k.a[l] * k.c[l]);
    row[0][l] = 2 * k.c[l] * D[l] * over;
    row[1][l] = -k.b[l] * D[l] * over;
    row[2][l] = 2 * k.a[l] * D[l] * over;
  }
}

// In which precision a neuron is worked on; `closed`: the largest number of its homogeneous part and f.
template <int KIND>
DEU_INLINE int needed(double p, double q, double numbers, double growth, double closed, double derivatives) {
  const bool hard = (KIND == OSCILLATING && !(std::fabs(q) <= TRUSTED_FREQUENCY)) ||
                    (KIND == REAL && !(p <= growth && q <= growth && std::fabs(q - p) >= TRUSTED_GAP));
  const bool medium = hard || !(numbers <= TRUSTED_NUMBER) || !(derivatives <= TRUSTED_DERIVATIVE);
  const int single = closed <= CLOSED_NUMBER ? SINGLE_CLOSED : SINGLE;
  return !(derivatives <= TRUSTED_BY_MEDIUM) ? DOUBLE : medium ? MEDIUM : single;
}

// With `steepest` in place, the precisions.
template <int KIND>
static void judge(const Chosen& k, const Filled& to) {
  double numbers[NEURONS], closed[NEURONS];
  largest(to.numbers, to.stride, A_, NUMBERS, k.count, numbers);
  // Two real roots' f is added in a form that keeps its digits, whatever its numbers.
  largest(to.numbers, to.stride, A_, KIND == REAL ? Af_ : NUMBERS, k.count, closed);
  const double *p = to.numbers + p_ * to.stride, *q = to.numbers + q_ * to.stride;
  for (int l = 0; l < k.count; ++l)
    to.precisions[l] =
        static_cast<unsigned char>(needed<KIND>(p[l], q[l], numbers[l], to.growth, closed[l], to.steepest[l]));
}

// The normal forms of neurons on a row of their solution and, where they are asked for, the derivatives.
template <class Solution, int ROW>
static void fill(const Chosen& k, Filled* to) {
  constexpr int KIND = Solution::KINDS[ROW];
  for (int n = 0; n < NUMBERS; ++n) std::memset(to->numbers + n * to->stride, 0, k.count * sizeof(double));
  DEU_SIMD
  for (int l = 0; l < k.count; ++l) {
    double a = k.a[l], b = k.b[l], c = k.c[l];
    Solution::force(ROW, a, b, c);
    Solution::solve(ROW, a, b, c, k.c1[l], k.c2[l], NumbersOf{to->numbers + l, to->stride});
  }
  for (int l = 0; l < k.count; ++l) to->steepest[l] = 0;
  if (to->derivatives != nullptr) {
    for (int n = 0; n < 5 * NUMBERS; ++n) std::memset(to->derivatives[n], 0, k.count * sizeof(double));
    DEU_SIMD
    for (int l = 0; l < k.count; ++l) {
      double a = k.a[l], b = k.b[l], c = k.c[l];
      Solution::force(ROW, a, b, c);
      Solution::jacobian(ROW, a, b, c, k.c1[l], k.c2[l], DerivativesOf{*to->derivatives + l});
    }
  }
  if (KIND == REAL) part_roots(k, *to);
  if (to->derivatives != nullptr) {
    double first[NEURONS], second[NEURONS];
    const double* rows = *to->derivatives;
    largest(rows, NEURONS, 5 * p_, 5 * p_ + 5, k.count, first);
    largest(rows, NEURONS, 5 * q_, 5 * q_ + 5, k.count, second);
    largest(rows, NEURONS, 5 * A_, 5 * NUMBERS, k.count, to->steepest);
    const NumbersOf n{to->numbers, to->stride};
    DEU_SIMD
    for (int l = 0; l < k.count; ++l) {
      // Errors of the exponents' own sums do not meet others that cancel them: a quarter counts.
      double by_p = first[l] / 4, by_q = second[l] / 4, steepest = to->steepest[l];
      if (KIND == REAL) {
        const double D = (&n[Af_])[l];
        by_p = root_weight((&n[p_])[l], (&n[A_])[l], D) * first[l];
        by_q = root_weight((&n[q_])[l], (&n[B_])[l], D) * second[l];
        // Those of two real roots' sums do, at t = 0.
        steepest *= 4;
      }
      to->steepest[l] = larger(larger(by_p, by_q), steepest);
    }
  }
  judge<KIND>(k, *to);
}

template <class Solution, int ROW = 0>
static void fill_row(int row, const Chosen& k, Filled* to) {
  if constexpr (ROW < Solution::ROWS) {
    if (row == ROW) fill<Solution, ROW>(k, to);
    else fill_row<Solution, ROW + 1>(row, k, to);
  }
}

// The neurons of a block on rows of their solution; which of them are next to each other is not known.
template <class Solution>
struct Block {
  const Forming& job;
  int64_t from;
  int count;
  int row[NEURONS] = {};
  Chosen own;  // all of them, snapped

  Block(const Forming& forming, int64_t first, int neurons) : job(forming), from(first), count(neurons) {
    const double* given = job.coefficients + from;
    own.count = count;
    DEU_SIMD
    for (int l = 0; l < count; ++l) {
      double a = given[l], b = given[job.stride + l], c = given[2 * job.stride + l];
      Solution::snap(a, b, c, job.eps);
      own.a[l] = a, own.b[l] = b, own.c[l] = c;
      own.c1[l] = given[3 * job.stride + l], own.c2[l] = given[4 * job.stride + l];
      row[l] = Solution::row(a, b, c, job.eps);
    }
  }

  Filled target(double* numbers, int64_t stride, double (*derivatives)[NEURONS], unsigned char* precisions) const {
    // The continuous solution's caps let an exponential grow to the square of what the paper's do.
    return {numbers, stride, derivatives, precisions, job.continuous ? TRUSTED_GROWTH : HUGE_VAL, {}};
  }

  double (*derivatives() const)[NEURONS] {
    return job.derivatives == nullptr ? nullptr : job.derivatives[from / NEURONS];
  }

  // All of the block, which is on one row.
  void fill_whole() {
    Filled to = target(job.numbers + from, job.stride, derivatives(), job.precisions + from);
    fill_row<Solution>(row[0], own, &to);
    std::memset(job.kinds + from, Solution::KINDS[row[0]], count);
  }

  void choose(const bool* wanted, Chosen* chosen) const {
    chosen->count = 0;
    for (int l = 0; l < count; ++l) {
      if (!wanted[l]) continue;
      const int k = chosen->count++;
      chosen->which[k] = l;
      chosen->a[k] = own.a[l], chosen->b[k] = own.b[l], chosen->c[k] = own.c[l];
      chosen->c1[k] = own.c1[l], chosen->c2[k] = own.c2[l];
    }
  }

  // The wanted neurons, on `on` of their solution's rows.  With `closed`, only those are kept for which float64
  // is good enough, and no longer wanted.
  void fill_some(int on, bool closed, bool* wanted) {
    Chosen chosen;
    choose(wanted, &chosen);
    if (chosen.count == 0) return;
    double numbers[NUMBERS][NEURONS], slopes[5 * NUMBERS][NEURONS];
    unsigned char precisions[NEURONS];
    const bool slow = closed && job.derivatives == nullptr;
    Filled to = target(numbers[0], NEURONS, job.derivatives == nullptr && !slow ? nullptr : slopes, precisions);
    fill_row<Solution>(on, chosen, &to);
    bool kept[NEURONS];
    for (int k = 0; k < chosen.count; ++k) kept[k] = !closed || to.steepest[k] <= TRUSTED_BY_DOUBLE;
    const int kind = Solution::KINDS[on];
    if (slow && kind == REAL) {  // values alone do not need what derivatives do
      to.derivatives = nullptr;
      fill_row<Solution>(on, chosen, &to);
    }
    for (int k = 0; k < chosen.count; ++k) {
      if (!kept[k]) continue;
      const int64_t i = from + chosen.which[k];
      for (int n = 0; n < NUMBERS; ++n) job.numbers[n * job.stride + i] = numbers[n][k];
      for (int n = 0; job.derivatives != nullptr && n < 5 * NUMBERS; ++n)
        derivatives()[n][chosen.which[k]] = slopes[n][k];
      job.kinds[i] = static_cast<unsigned char>(kind);
      job.precisions[i] = closed && kind != REAL ? DOUBLE : precisions[k];
      wanted[chosen.which[k]] = false;
    }
  }
};

template <class Solution>
static void solve_block(const Forming& job, int64_t from, int count) {
  Block<Solution> block(job, from, count);
  bool same = true, wanted[NEURONS];
  for (int l = 0; l < count; ++l) same &= block.row[l] == block.row[0];
  const bool at_seam = Solution::KINDS[block.row[0]] == ENTIRE && job.narrow;
  if (same && !at_seam) return block.fill_whole();
  for (int row = 0; row < Solution::ROWS; ++row) {
    for (int l = 0; l < count; ++l) wanted[l] = block.row[l] == row;
    if (Solution::KINDS[row] == ENTIRE && job.narrow) {
      // The closed forms lose no digit that a narrow tensor has, but right at a seam, oscillations not
      // if they are done in float64; and they are ten times as fast.
      bool left[NEURONS] = {};
      for (int closed = row + 1; closed < Solution::ROWS; ++closed) {
        bool here[NEURONS];
        for (int l = 0; l < count; ++l)
          here[l] = wanted[l] &&
                    Solution::row(block.own.a[l], block.own.b[l], block.own.c[l], job.eps, row + 1) == closed;
        block.fill_some(closed, true, here);
        for (int l = 0; l < count; ++l) left[l] |= here[l];
      }
      std::memcpy(wanted, left, sizeof(wanted));
    }
    block.fill_some(row, false, wanted);
  }
}

static void solve(const Forming& job, int64_t from, int count) {
  if (job.continuous) solve_block<Continuous>(job, from, count);
  else solve_block<Paper>(job, from, count);
}

// Sums over inputs, by blocks of positions, times the derivatives of the normal form: the gradients of the
// coefficients, a row of NEURONS for each.
static void pull_back(const double* sums, int64_t blocks, int64_t stride, const double (*derivatives)[NEURONS],
                      int count, double (*result)[NEURONS]) {
  std::memset(result, 0, 5 * sizeof(*result));
  for (int n = 0; n < NUMBERS; ++n) {
    double total[NEURONS] = {};
    for (int64_t block = 0; block < blocks; ++block) {
      const double* row = sums + (block * NUMBERS + n) * stride;
      DEU_SIMD
      for (int l = 0; l < count; ++l) total[l] += row[l];
    }
    for (int j = 0; j < 5; ++j) {
      const double* slope = derivatives[5 * n + j];
      // Where a number does not depend on a coefficient, its sum may be infinite.
      DEU_SIMD
      for (int l = 0; l < count; ++l) result[j][l] += slope[l] != 0 ? total[l] * slope[l] : 0;
    }
  }
}

// No longer than `most`; divided by the largest first, so that no square overflows.
static void limit_length(double most, int count, double (*gradients)[NEURONS]) {
  double size[NEURONS];
  largest(gradients[0], NEURONS, 0, 5, count, size);
  DEU_SIMD
  for (int l = 0; l < count; ++l) {
    double squares = 0;
    for (int j = 0; j < 5; ++j) {
      const double part = gradients[j][l] / size[l];
      squares += size[l] > 0 ? part * part : 0;
    }
    const double length = std::sqrt(squares);
    const bool limited = size[l] * length > most;
    for (int j = 0; j < 5; ++j)
      gradients[j][l] = limited ? gradients[j][l] / size[l] * (most / length) : gradients[j][l];
  }
}

extern const NeuronKernels neuron_kernels;
const NeuronKernels neuron_kernels = {solve, pull_back, limit_length};

}  // namespace DEU_ISA
}  // namespace deu
