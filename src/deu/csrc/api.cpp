// The C interface: coefficients to neurons, work to threads, sums to gradients.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "inline.h"
#include "job.h"
#include "kernels.h"
#include "parallel.h"
#include "rows.h"

#if defined(_MSC_VER) && (defined(_M_X64) || defined(_M_IX86))
#include <immintrin.h>
#include <intrin.h>
#endif

#if defined(_WIN32)
#define DEU_API extern "C" __declspec(dllexport)
#else
#define DEU_API extern "C" __attribute__((visibility("default")))
#endif

namespace deu {

namespace portable {
extern const Kernels kernels;
#include "narrow.h"
}
#if defined(DEU_X86)
namespace avx2 {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}
#endif

// 0 portable, 1 AVX2, 2 AVX-512
static int best_isa() {
#if !defined(DEU_X86)
  return 0;
#elif defined(_MSC_VER) && !defined(__clang__)
  int r[4];
  __cpuid(r, 0);
  if (r[0] < 7) return 0;
  __cpuid(r, 1);
  const bool os = (r[2] & (1 << 27)) != 0, fma = (r[2] & (1 << 12)) != 0;
  if (!os || !fma) return 0;
  const unsigned long long state = _xgetbv(0);
  __cpuidex(r, 7, 0);
  const int wanted = (1 << 16) | (1 << 17) | (1 << 30) | static_cast<int>(1u << 31);
  if ((state & 0xe6) == 0xe6 && (r[1] & wanted) == wanted) return 2;
  return (state & 6) == 6 && (r[1] & (1 << 5)) ? 1 : 0;
#else
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    return 2;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 1 : 0;
#endif
}

static int chosen_isa = best_isa();

static const Kernels& kernels() {
#if defined(DEU_X86)
  if (chosen_isa == 2) return avx512::kernels;
  if (chosen_isa == 1) return avx2::kernels;
#endif
  return portable::kernels;
}

// A unit of work has at least this many elements: fewer are not worth a thread.
constexpr int64_t WORTH_A_THREAD = 16384;

// More units of work than this only make more partial sums; each has a multiple of so many
// positions, that vectors are full.
constexpr int64_t UNITS = 64, VECTORS = 128;

// Up to which numbers of a neuron's normal form float32 is good enough: for f in closed form, for
// f with care, for the frequency of an oscillation, for a root that grows, and from which distance
// of two roots on; up to which derivatives of those numbers for gradients, whose rounding errors
// they multiply; and how far the two ways of float64 reach.
constexpr double CLOSED_NUMBER = 8, TRUSTED_NUMBER = 1000, TRUSTED_FREQUENCY = 64;
constexpr double TRUSTED_GROWTH = 0.15, TRUSTED_GAP = 0.75;
constexpr double TRUSTED_DERIVATIVE = 64, TRUSTED_BY_MEDIUM = 1e5, TRUSTED_BY_DOUBLE = 1e8;

static double read(const void* base, int dtype, int64_t i) {
  switch (dtype) {
    case FLOAT64: return static_cast<const double*>(base)[i];
    case BFLOAT16: return portable::widen(static_cast<const portable::BFloat16*>(base)[i]);
    case FLOAT16: return portable::widen(static_cast<const portable::Half*>(base)[i]);
    default: return static_cast<const float*>(base)[i];
  }
}

static void write(void* base, int dtype, int64_t i, double v) {
  switch (dtype) {
    case FLOAT64: static_cast<double*>(base)[i] = v; break;
    case BFLOAT16: portable::narrow(v, static_cast<portable::BFloat16*>(base) + i); break;
    case FLOAT16: portable::narrow(v, static_cast<portable::Half*>(base) + i); break;
    default: portable::narrow(v, static_cast<float*>(base) + i);
  }
}

struct Coefficients {
  double a, b, c, c1, c2;
};

using Jacobian = double[NUMBERS][5];

// The largest in size; NaN if there is one, which no comparison trusts.
static double largest(const double* numbers, int count) {
  double most = 0, total = 0;
  for (int i = 0; i < count; ++i) {
    const double size = std::fabs(numbers[i]);
    total += size;
    most = size > most ? size : most;
  }
  return std::isnan(total) ? total : most;
}

// The same of the rows of a Jacobian, one coefficient beside the other: a single chain of comparisons
// would take longer than the derivatives themselves.
static double largest(const double (*rows)[5], int count) {
  double most[5] = {}, total[5] = {};
  for (int n = 0; n < count; ++n)
    for (int j = 0; j < 5; ++j) {
      const double size = std::fabs(rows[n][j]);
      total[j] += size;
      most[j] = size > most[j] ? size : most[j];
    }
  for (int j = 0; j < 5; ++j)
    if (std::isnan(total[j])) return total[j];
  return largest(most, 5);
}

static Precision needed(const Neuron& neuron, double growth, double closed, double derivatives) {
  const double p = neuron.n[p_], q = neuron.n[q_];
  const bool hard = (neuron.kind == OSCILLATING && !(std::fabs(q) <= TRUSTED_FREQUENCY)) ||
                    (neuron.kind == REAL && !(p <= growth && q <= growth && std::fabs(q - p) >= TRUSTED_GAP));
  const double numbers = largest(neuron.n + A_, NUMBERS - A_);
  if (!(derivatives <= TRUSTED_BY_MEDIUM)) return DOUBLE;
  if (hard || !(numbers <= TRUSTED_NUMBER) || !(derivatives <= TRUSTED_DERIVATIVE)) return MEDIUM;
  return closed <= CLOSED_NUMBER ? SINGLE_CLOSED : SINGLE;
}

// Two real roots: f = D·(M(q, t) - M(p, t)) with D = 1/√Δ and M(r, t) = (e^(rt) - 1)/r, which
// stays what it is where a root, and with it c, goes to 0.  D takes the place of Af.
static void part_roots(const Coefficients& k, Neuron* neuron, Jacobian* jacobian) {
  const double over = 1 / (k.b * k.b - 4 * k.a * k.c), D = std::sqrt(over);
  neuron->n[Af_] = D;
  neuron->n[Bf_] = 0;
  if (jacobian == nullptr) return;
  std::memset((*jacobian)[Af_], 0, sizeof((*jacobian)[Af_]));
  std::memset((*jacobian)[Bf_], 0, sizeof((*jacobian)[Bf_]));
  (*jacobian)[Af_][0] = 2 * k.c * D * over;
  (*jacobian)[Af_][1] = -k.b * D * over;
  (*jacobian)[Af_][2] = 2 * k.a * D * over;
}

// How much the derivatives of a real root count: a sum over t·e^(rt) and ∂M/∂r, and so its errors,
// are the smaller the faster the root.
static double root_weight(double root, double size, double D) {
  const double over = 1 / std::fabs(root);
  const double weight = 16 * over * (16 * std::fabs(size) + D * over);
  return weight < 0.25 ? weight : 0.25;
}

// The normal form of one unit, for a row of its solution, and its derivatives where they are asked
// for.  Returns the largest derivative, which says how much its gradients amplify rounding errors.
template <class Solution>
static double fill(int row, Coefficients k, Neuron* neuron, Jacobian* jacobian) {
  Solution::force(row, k.a, k.b, k.c);
  std::memset(neuron->n, 0, sizeof(neuron->n));
  Solution::solve(row, k.a, k.b, k.c, k.c1, k.c2, neuron->n);
  neuron->kind = Solution::kind(row);
  // Two real roots' f is added in a form that keeps its digits, whatever its numbers.
  const double closed = largest(neuron->n + A_, (neuron->kind == REAL ? Af_ : NUMBERS) - A_);
  if (jacobian != nullptr) {
    std::memset(*jacobian, 0, sizeof(*jacobian));
    Solution::jacobian(row, k.a, k.b, k.c, k.c1, k.c2, *jacobian);
  }
  if (neuron->kind == REAL) part_roots(k, neuron, jacobian);
  double steepest = 0;
  if (jacobian != nullptr) {
    // Errors of the exponents' own sums do not meet others that cancel them: a quarter counts.
    double exponents = largest(*jacobian, A_) / 4;
    steepest = largest(*jacobian + A_, NUMBERS - A_);
    if (neuron->kind == REAL) {
      const double* n = neuron->n;
      const double both[2] = {root_weight(n[p_], n[A_], n[Af_]) * largest(*jacobian + p_, 1),
                              root_weight(n[q_], n[B_], n[Af_]) * largest(*jacobian + q_, 1)};
      exponents = largest(both, 2);
      // Those of two real roots' sums do, at t = 0.
      steepest *= 4;
    }
    steepest = exponents <= steepest || std::isnan(steepest) ? steepest : exponents;
  }
  // The continuous solution's caps let an exponential grow to the square of what the paper's do.
  const double growth = std::is_same<Solution, Continuous>::value ? TRUSTED_GROWTH : HUGE_VAL;
  neuron->precision = needed(*neuron, growth, closed, steepest);
  return steepest;
}

// `narrow`: the tensor is of less than float64.
static void solve(bool continuous, bool narrow, Coefficients k, double eps, Neuron* neuron, Jacobian* jacobian) {
  if (!continuous) {
    Paper::snap(k.a, k.b, k.c, eps);
    fill<Paper>(Paper::row(k.a, k.b, k.c, eps), k, neuron, jacobian);
    return;
  }
  Continuous::snap(k.a, k.b, k.c, eps);
  const int row = Continuous::row(k.a, k.b, k.c, eps);
  if (Continuous::kind(row) == ENTIRE && narrow) {
    // The closed forms lose no digit that a narrow tensor has, but right at a seam, oscillations not
    // if they are done in float64; and they are ten times as fast.
    Jacobian unused;
    const int closed = Continuous::row(k.a, k.b, k.c, eps, row + 1);
    if (fill<Continuous>(closed, k, neuron, jacobian != nullptr ? jacobian : &unused) <= TRUSTED_BY_DOUBLE) {
      if (neuron->kind != REAL) neuron->precision = DOUBLE;
      // Values alone do not need what derivatives do.
      else if (jacobian == nullptr) fill<Continuous>(closed, k, neuron, nullptr);
      return;
    }
  }
  fill<Continuous>(row, k, neuron, jacobian);
}

// Outward gravitation: the neighbour whose gradients a unit's singular coefficients take.
static Coefficients neighbour(const Coefficients& own, double eps, double centre, const Limits& limits) {
  auto outward = [eps](double p) { return std::fabs(p) < eps ? (p < 0 ? -eps : eps) : p; };
  Coefficients moved{outward(own.a), outward(own.b), outward(own.c), 0, 0};
  auto look = [&](const Coefficients& k, double at[2]) {
    Neuron neuron;
    Limits free = limits;
    free.bound = HUGE_VAL;
    solve(false, false, k, eps, &neuron, nullptr);
    kernels().point(neuron, free, centre, at, at + 1);
  };
  double f[2], f1[2], f2[2], rest[2];
  look(moved, f);
  moved.c1 = 1;
  look(moved, f1);
  moved.c1 = 0, moved.c2 = 1;
  look(moved, f2);
  look(own, rest);
  for (int i = 0; i < 2; ++i) f1[i] -= f[i], f2[i] -= f[i], rest[i] -= f[i];
  // (AᵀA + λI)⁻¹AᵀB for A = [f1 f2], a row for the value and a row for the slope, written with
  // det A so that nothing cancels.
  const double lambda = 1e-9;
  auto dot = [](const double u[2], const double v[2]) { return u[0] * v[0] + u[1] * v[1]; };
  auto cross = [](const double u[2], const double v[2]) { return u[0] * v[1] - u[1] * v[0]; };
  const double det = cross(f1, f2);
  const double whole = det * det + lambda * (dot(f1, f1) + dot(f2, f2)) + lambda * lambda;
  moved.c1 = (det * cross(rest, f2) + lambda * dot(f1, rest)) / whole;
  moved.c2 = (det * cross(f1, rest) + lambda * dot(f2, rest)) / whole;
  return moved;
}

// What Python passes: one of these a shape and setting, kept between calls.
struct Plan {
  int64_t outer, channels, inner;
  int64_t in_outer, in_channel, in_inner;
  int64_t grad_outer, grad_channel, grad_inner;
  int64_t out_outer, out_channel, out_inner;
  int32_t dtype, coefficient_dtype, continuous, training;
  double eps, sharpness, max_exponent, bound, max_grad_norm;
};

static Job make_job(const Plan& plan, const void* t, void* result) {
  Job job{};
  job.layout = {plan.outer, plan.channels, plan.inner};
  job.in = {plan.in_outer, plan.in_channel, plan.in_inner};
  job.grad = {plan.grad_outer, plan.grad_channel, plan.grad_inner};
  job.out = {plan.out_outer, plan.out_channel, plan.out_inner};
  job.dtype = plan.dtype;
  job.limits = {plan.continuous != 0, plan.sharpness, plan.max_exponent, plan.bound};
  job.t = t;
  job.result = result;
  job.channels_together = plan.in_channel == 1 && plan.channels > 1;
  const int64_t positions = plan.outer * plan.inner;
  // How the work is cut does not depend on the number of threads, so that sums do not either.
  const int64_t worth = WORTH_A_THREAD / plan.channels, share = positions / UNITS;
  const int64_t wanted = worth > share ? worth : share;
  job.position_block = (wanted < 1 ? 1 : (wanted + VECTORS - 1) / VECTORS) * VECTORS;
  job.position_blocks = (positions + job.position_block - 1) / job.position_block;
  // Many channels next to each other are cut too, that few positions are no work for a single thread.
  job.channel_block = job.channels_together ? GROUPS * LANES : plan.channels;
  job.channel_blocks = (plan.channels + job.channel_block - 1) / job.channel_block;
  return job;
}

// Neurons' normal forms, and the memory they are in.
struct Population {
  std::vector<double> numbers;
  std::vector<unsigned char> kinds, precisions;
  Neurons view;

  explicit Population(int64_t channels) {
    const int64_t stride = (channels + LANES - 1) / LANES * LANES;
    numbers.resize(NUMBERS * stride);
    kinds.resize(stride);
    precisions.resize(stride);
    view = {numbers.data(), kinds.data(), precisions.data(), stride};
  }

  void set(int64_t i, const Neuron& neuron) {
    for (int k = 0; k < NUMBERS; ++k) numbers[k * view.stride + i] = neuron.n[k];
    kinds[i] = static_cast<unsigned char>(neuron.kind);
    precisions[i] = static_cast<unsigned char>(neuron.precision);
  }
};

struct Units {
  const Plan& plan;
  const void* pointers[5];

  Coefficients operator[](int64_t i) const {
    const int d = plan.coefficient_dtype;
    return {read(pointers[0], d, i), read(pointers[1], d, i), read(pointers[2], d, i), read(pointers[3], d, i),
            read(pointers[4], d, i)};
  }
};

static bool is_singular(const Coefficients& k, double eps) {
  return std::fabs(k.a) < eps || std::fabs(k.b) < eps || std::fabs(k.c) < eps;
}

static int useful_threads(const Plan& plan, int threads) {
  const int64_t work = plan.outer * plan.inner * plan.channels / WORTH_A_THREAD;
  return work < threads ? static_cast<int>(work) : threads;
}

// Work on single neurons is cut into pieces of this many.
constexpr int64_t NEURONS = 64;

template <class Body>
static void each_neuron(int64_t channels, int threads, const Body& body) {
  parallel_for((channels + NEURONS - 1) / NEURONS, threads, [&](int64_t piece) {
    const int64_t end = channels < (piece + 1) * NEURONS ? channels : (piece + 1) * NEURONS;
    for (int64_t i = piece * NEURONS; i < end; ++i) body(i);
  });
}

// Whether outward gravitation will ask for the centres of any neuron's inputs.
static bool wants_centres(const Plan& plan, const Units& units) {
  for (int64_t i = 0; plan.training && !plan.continuous && i < plan.channels; ++i)
    if (is_singular(units[i], plan.eps)) return true;
  return false;
}

static void forward(const Plan& plan, const void* t, void* y, const Units& units, double* centre, int threads) {
  const int64_t channels = plan.channels;
  const bool pull = centre != nullptr && plan.training && !plan.continuous;
  threads = useful_threads(plan, threads);
  Population neurons(channels);
  std::vector<unsigned char> pulled(pull ? channels : 0);
  each_neuron(channels, threads, [&](int64_t i) {
    const Coefficients k = units[i];
    Neuron neuron;
    solve(plan.continuous != 0, plan.dtype != FLOAT64, k, plan.eps, &neuron, nullptr);
    neurons.set(i, neuron);
    if (pull) pulled[i] = is_singular(k, plan.eps);
  });
  Job job = make_job(plan, t, y);
  job.neurons = neurons.view;
  const int64_t stride = job.neurons.stride;
  std::vector<double> centres(pull ? stride * job.position_blocks : 0);
  if (pull) job.pulled = pulled.data(), job.centres = centres.data();
  const Kernels& k = kernels();
  parallel_for(job.units(), threads, [&](int64_t unit) { k.forward(job, unit); });
  for (int64_t i = 0; pull && i < channels; ++i) {
    double sum = 0;
    for (int64_t block = 0; block < job.position_blocks; ++block) sum += centres[block * stride + i];
    const int64_t positions = plan.outer * plan.inner;
    centre[i] = positions > 0 ? sum / static_cast<double>(positions) : 0;
  }
}

static void backward(const Plan& plan, const void* t, const void* g, void* grad_t, const Units& units,
                     const double* centre, void* const grads[5], int threads) {
  const int64_t channels = plan.channels;
  const bool pull = centre != nullptr && plan.training && !plan.continuous;
  threads = useful_threads(plan, threads);
  Population neurons(channels), neighbours(pull ? channels : 0);
  std::vector<unsigned char> pulled(pull ? channels : 0);
  struct Derivatives {
    Jacobian own, pulled;
  };
  const std::unique_ptr<Derivatives[]> derivatives(new Derivatives[channels]);
  Job job = make_job(plan, t, grad_t);
  each_neuron(channels, threads, [&](int64_t i) {
    const Coefficients k = units[i];
    Neuron neuron;
    solve(plan.continuous != 0, plan.dtype != FLOAT64, k, plan.eps, &neuron, &derivatives[i].own);
    neurons.set(i, neuron);
    if (!pull) return;
    pulled[i] = is_singular(k, plan.eps);
    if (!pulled[i]) return;
    solve(false, false, neighbour(k, plan.eps, centre[i], job.limits), plan.eps, &neuron, &derivatives[i].pulled);
    neighbours.set(i, neuron);
  });
  job.g = g;
  job.neurons = neurons.view;
  const int64_t stride = job.neurons.stride;
  std::vector<double> sums(NUMBERS * stride * job.position_blocks), neighbour_sums(pull ? sums.size() : 0);
  job.sums = sums.data();
  if (pull) job.pulled = pulled.data(), job.neighbours = neighbours.view, job.neighbour_sums = neighbour_sums.data();
  const Kernels& k = kernels();
  parallel_for(job.units(), threads, [&](int64_t unit) { k.backward(job, unit); });

  each_neuron(channels, threads, [&](int64_t i) {
    const Coefficients k = units[i];
    auto gradient = [&](const std::vector<double>& all, const Jacobian& jacobian, double out[5]) {
      double total[NUMBERS] = {};
      for (int64_t block = 0; block < job.position_blocks; ++block)
        for (int n = 0; n < NUMBERS; ++n) total[n] += all[(block * NUMBERS + n) * stride + i];
      // Where a number does not depend on a coefficient, its sum may be infinite.
      for (int n = 0; n < NUMBERS; ++n)
        for (int j = 0; j < 5; ++j) out[j] += jacobian[n][j] != 0 ? total[n] * jacobian[n][j] : 0;
    };
    double own[5] = {}, outward[5] = {};
    gradient(sums, derivatives[i].own, own);
    if (pull && pulled[i]) gradient(neighbour_sums, derivatives[i].pulled, outward);
    const double abc[3] = {k.a, k.b, k.c};
    for (int j = 0; j < 3; ++j)
      if (!plan.continuous && std::fabs(abc[j]) < plan.eps) own[j] = outward[j];
    // Divided by the largest first, so that no square overflows.
    const double size = largest(own, 5);
    double squares = 0;
    for (double v : own) squares += size > 0 ? (v / size) * (v / size) : 0;
    const double length = std::sqrt(squares);
    const bool limited = size * length > plan.max_grad_norm;
    for (int j = 0; j < 5; ++j) {
      const double v = limited ? own[j] / size * (plan.max_grad_norm / length) : own[j];
      write(grads[j], plan.coefficient_dtype, i, v);
    }
  });
}

}  // namespace deu

DEU_API int deu_abi() { return 2; }

DEU_API void deu_use_openmp(void* gomp_parallel) {
  deu::omp_parallel = reinterpret_cast<deu::OmpParallel>(gomp_parallel);
}

DEU_API int deu_best_isa() { return deu::best_isa(); }

DEU_API int deu_isa() { return deu::chosen_isa; }

DEU_API void deu_use_isa(int isa) { deu::chosen_isa = isa < deu::best_isa() ? isa : deu::best_isa(); }

// Returns 1, with nothing done, if it is called without `centre` and must have it.
DEU_API int deu_forward(const deu::Plan* plan, const void* t, void* y, const void* a, const void* b, const void* c,
                        const void* c1, const void* c2, double* centre, int threads) {
  const deu::Units units{*plan, {a, b, c, c1, c2}};
  if (centre == nullptr && deu::wants_centres(*plan, units)) return 1;
  deu::forward(*plan, t, y, units, centre, threads);
  return 0;
}

DEU_API void deu_backward(const deu::Plan* plan, const void* t, const void* g, void* grad_t, const void* a,
                          const void* b, const void* c, const void* c1, const void* c2, const double* centre,
                          void* grad_a, void* grad_b, void* grad_c, void* grad_c1, void* grad_c2, int threads) {
  void* const grads[5] = {grad_a, grad_b, grad_c, grad_c1, grad_c2};
  deu::backward(*plan, t, g, grad_t, {*plan, {a, b, c, c1, c2}}, centre, grads, threads);
}
