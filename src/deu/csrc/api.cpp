// The C interface: coefficients to neurons, work to threads, sums to gradients.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "inline.h"
#include "job.h"
#include "kernels.h"
#include "parallel.h"

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
extern const NeuronKernels neuron_kernels;
#include "narrow.h"
}
#if defined(DEU_X86)
namespace avx2 {
extern const Kernels kernels;
extern const NeuronKernels neuron_kernels;
}
namespace avx512 {
extern const Kernels kernels;
extern const NeuronKernels neuron_kernels;
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

struct AllKernels {
  const Kernels& elements;
  const NeuronKernels& neurons;
};

static AllKernels chosen_kernels() {
#if defined(DEU_X86)
  if (chosen_isa == 2) return {avx512::kernels, avx512::neuron_kernels};
  if (chosen_isa == 1) return {avx2::kernels, avx2::neuron_kernels};
#endif
  return {portable::kernels, portable::neuron_kernels};
}

static const Kernels& kernels() { return chosen_kernels().elements; }
static const NeuronKernels& neuron_kernels() { return chosen_kernels().neurons; }

// A unit of work has about this many elements at least: fewer are not worth a thread.
constexpr int64_t WORTH_A_THREAD = 16384;

// More units of work than this only make more partial sums; where channels lie next to each other each has
// a multiple of so many positions.
constexpr int64_t UNITS = 64, POSITIONS = 128;

template <class S>
static void widen_row(const S* row, int count, double* to) {
  for (int l = 0; l < count; ++l) to[l] = static_cast<double>(portable::widen(row[l]));
}

static void read_row(const void* base, int dtype, int64_t from, int count, double* to) {
  switch (dtype) {
    case FLOAT64: return widen_row(static_cast<const double*>(base) + from, count, to);
    case BFLOAT16: return widen_row(static_cast<const portable::BFloat16*>(base) + from, count, to);
    case FLOAT16: return widen_row(static_cast<const portable::Half*>(base) + from, count, to);
    default: return widen_row(static_cast<const float*>(base) + from, count, to);
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

// The values and slopes of a block of neurons of the paper's solution, each at a point of its own.
struct Points {
  double value[NEURONS], slope[NEURONS];

  Points(const double (*coefficients)[NEURONS], double eps, const Limits& limits, const double* at, int count) {
    double numbers[NUMBERS][NEURONS];
    unsigned char kinds[NEURONS], precisions[NEURONS];
    neuron_kernels().solve({false, false, eps, *coefficients, NEURONS, *numbers, kinds, precisions, nullptr}, 0, count);
    kernels().points({*numbers, kinds, precisions, NEURONS}, limits, at, count, value, slope);
  }
};

// Outward gravitation: the neighbours whose gradients units' singular coefficients take.  A row of
// coefficients for each of the five.
static void neighbours_of(const double (*own)[NEURONS], double eps, const double* centre, const Limits& limits,
                          int count, double (*moved)[NEURONS]) {
  for (int j = 0; j < 3; ++j)
    for (int l = 0; l < count; ++l) {
      const double p = own[j][l];
      moved[j][l] = std::fabs(p) < eps ? (p < 0 ? -eps : eps) : p;
    }
  Limits free = limits;
  free.bound = HUGE_VAL;
  auto look = [&](double c1, double c2) {
    for (int l = 0; l < count; ++l) moved[3][l] = c1, moved[4][l] = c2;
    return Points(moved, eps, free, centre, count);
  };
  const Points f = look(0, 0), by_c1 = look(1, 0), by_c2 = look(0, 1);
  const Points at_own(own, eps, free, centre, count);
  for (int l = 0; l < count; ++l) {
    const double f1[2] = {by_c1.value[l] - f.value[l], by_c1.slope[l] - f.slope[l]};
    const double f2[2] = {by_c2.value[l] - f.value[l], by_c2.slope[l] - f.slope[l]};
    const double rest[2] = {at_own.value[l] - f.value[l], at_own.slope[l] - f.slope[l]};
    // (AᵀA + λI)⁻¹AᵀB for A = [f1 f2], a row for the value and a row for the slope, written with
    // det A so that nothing cancels.
    const double lambda = 1e-9;
    auto dot = [](const double u[2], const double v[2]) { return u[0] * v[0] + u[1] * v[1]; };
    auto cross = [](const double u[2], const double v[2]) { return u[0] * v[1] - u[1] * v[0]; };
    const double det = cross(f1, f2);
    const double whole = det * det + lambda * (dot(f1, f1) + dot(f2, f2)) + lambda * lambda;
    moved[3][l] = (det * cross(rest, f2) + lambda * dot(f1, rest)) / whole;
    moved[4][l] = (det * cross(f1, rest) + lambda * dot(f2, rest)) / whole;
  }
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

static int64_t at_least_one(int64_t n) { return n < 1 ? 1 : n; }

// Into blocks of positions and of channels, which do not depend on the number of threads, so that sums do
// not either.
static void cut(Job* job) {
  const int64_t channels = job->layout.channels, line = job->layout.inner;
  const int64_t positions = job->layout.outer * line, elements = positions * channels;
  const int64_t share = elements / UNITS > WORTH_A_THREAD ? elements / UNITS : WORTH_A_THREAD;
  int64_t block;
  if (job->channels_together) {
    job->channel_block = GROUPS * LANES;
    job->channel_blocks = blocks_of_groups(channels);
    block = (at_least_one(share * job->channel_blocks / channels) + POSITIONS - 1) / POSITIONS * POSITIONS;
  } else {
    // Whole lines, so that pieces of them are as long as they can be.
    const bool whole = line >= LONG_LINE && line <= 4 * PIECE;
    const int64_t span = whole ? line * at_least_one(PIECE / line) : line < LONG_LINE ? PIECE : 4 * PIECE;
    const int64_t wanted = at_least_one(share / span);
    job->channel_block = channels < wanted ? channels : wanted;
    job->channel_blocks = (channels + job->channel_block - 1) / job->channel_block;
    block = span * at_least_one(wanted / job->channel_block);
  }
  job->position_block = block;
  job->position_blocks = (positions + block - 1) / block;
}

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
  cut(&job);
  return job;
}

struct Units {
  const Plan& plan;
  const void* pointers[5];

  // Rows of the first so many of a, b, c, c1 and c2, `stride` apart.
  void read(int rows, int64_t from, int count, double* to, int64_t stride) const {
    for (int j = 0; j < rows; ++j) read_row(pointers[j], plan.coefficient_dtype, from, count, to + j * stride);
  }
};

// Whether gravitation pulls a unit, of rows of its coefficients.
static bool is_singular(const double* unit, int64_t stride, double eps) {
  return std::fabs(unit[0]) < eps || std::fabs(unit[stride]) < eps || std::fabs(unit[2 * stride]) < eps;
}

static int useful_threads(const Plan& plan, int threads) {
  const int64_t work = plan.outer * plan.inner * plan.channels / WORTH_A_THREAD;
  return work < threads ? static_cast<int>(work) : threads;
}

static int64_t blocks_of(int64_t channels) { return (channels + NEURONS - 1) / NEURONS; }

// From body(first neuron, how many) to the work on a block of neurons.
template <class Body>
static auto by_block(int64_t channels, const Body& body) {
  return [channels, &body](int64_t block) {
    const int64_t from = block * NEURONS, rest = channels - from;
    body(from, static_cast<int>(rest < NEURONS ? rest : NEURONS));
  };
}

// The neurons of a layer, or their neighbours: coefficients, normal forms and derivatives.
class Population {
 public:
  Population(bool continuous, bool narrow, double eps, int64_t channels, bool with_derivatives) {
    // Rows an odd number of groups apart: a power of two would put them all into the same cache sets.
    const int64_t groups = (channels + LANES - 1) / LANES, stride = LANES * (groups + 1 - groups % 2);
    coefficients_.resize(5 * stride);
    numbers_.resize(NUMBERS * stride);
    kinds_.resize(stride);
    precisions_.resize(stride);
    if (with_derivatives) derivatives_.reset(new double[blocks_of(channels) * 5 * NUMBERS * NEURONS]);
    forming_ = {continuous,      narrow,        eps,
                coefficients_.data(), stride,   numbers_.data(), kinds_.data(), precisions_.data(),
                reinterpret_cast<double (*)[5 * NUMBERS][NEURONS]>(derivatives_.get())};
  }

  // A row for each of a, b, c, c1 and c2.
  double* coefficients(int64_t from) { return coefficients_.data() + from; }
  int64_t stride() const { return forming_.stride; }

  void take(const Units& units, int64_t from, int count) {
    units.read(5, from, count, coefficients(from), forming_.stride);
  }

  void mark_singular(int64_t from, int count, unsigned char* marks) {
    for (int l = 0; l < count; ++l) marks[l] = is_singular(coefficients(from + l), forming_.stride, forming_.eps);
  }

  void solve(int64_t from, int count) const { neuron_kernels().solve(forming_, from, count); }

  Neurons neurons() const { return {numbers_.data(), kinds_.data(), precisions_.data(), forming_.stride}; }

  // From sums over inputs to the gradients of the coefficients.
  void pull_back(const Job& job, const std::vector<double>& sums, int64_t from, int count,
                 double (*gradients)[NEURONS]) const {
    neuron_kernels().pull_back(sums.data() + from, job.position_blocks, forming_.stride,
                               forming_.derivatives[from / NEURONS], count, gradients);
  }

 private:
  std::vector<double> coefficients_, numbers_;
  std::vector<unsigned char> kinds_, precisions_;
  std::unique_ptr<double[]> derivatives_;
  Forming forming_;
};

// Whether outward gravitation will ask for the centres of any neuron's inputs.
static bool wants_centres(const Plan& plan, const Units& units) {
  double rows[3 * NEURONS];
  for (int64_t from = 0; plan.training && !plan.continuous && from < plan.channels; from += NEURONS) {
    const int count = static_cast<int>(plan.channels - from < NEURONS ? plan.channels - from : NEURONS);
    units.read(3, from, count, rows, NEURONS);
    for (int l = 0; l < count; ++l)
      if (is_singular(rows + l, NEURONS, plan.eps)) return true;
  }
  return false;
}

static void forward(const Plan& plan, const void* t, void* y, const Units& units, double* centre, int threads) {
  const int64_t channels = plan.channels;
  const bool pull = centre != nullptr && plan.training && !plan.continuous;
  Population own(plan.continuous != 0, plan.dtype != FLOAT64, plan.eps, channels, false);
  std::vector<unsigned char> pulled(pull ? channels : 0);
  Job job = make_job(plan, t, y);
  job.neurons = own.neurons();
  const int64_t stride = job.neurons.stride;
  std::vector<double> centres(pull ? stride * job.position_blocks : 0);
  if (pull) job.pulled = pulled.data(), job.centres = centres.data();

  auto form = [&](int64_t from, int count) {
    own.take(units, from, count);
    if (pull) own.mark_singular(from, count, pulled.data() + from);
    own.solve(from, count);
  };
  const Kernels& k = kernels();
  auto work = [&](int64_t unit) { k.forward(job, unit); };
  in_parallel(useful_threads(plan, threads),
              {phase(blocks_of(channels), by_block(channels, form)), phase(job.units(), work)});

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
  Population own(plan.continuous != 0, plan.dtype != FLOAT64, plan.eps, channels, true);
  Population neighbours(false, false, plan.eps, pull ? channels : 0, pull);
  std::vector<unsigned char> pulled(pull ? channels : 0);
  Job job = make_job(plan, t, grad_t);
  job.g = g;
  job.neurons = own.neurons();
  std::vector<double> sums(NUMBERS * job.neurons.stride * job.position_blocks), neighbour_sums(pull ? sums.size() : 0);
  job.sums = sums.data();
  if (pull) {
    job.pulled = pulled.data();
    job.neighbours = neighbours.neurons();
    job.neighbour_sums = neighbour_sums.data();
  }

  auto form = [&](int64_t from, int count) {
    own.take(units, from, count);
    own.solve(from, count);
    if (!pull) return;
    own.mark_singular(from, count, pulled.data() + from);
    neighbours.take(units, from, count);
    double singular[5][NEURONS], moved[5][NEURONS], at[NEURONS];
    int whose[NEURONS], found = 0;
    for (int l = 0; l < count; ++l)
      if (pulled[from + l]) whose[found++] = l;
    if (found == 0) return;
    double* rows = neighbours.coefficients(from);
    const int64_t stride = neighbours.stride();
    for (int k = 0; k < found; ++k) {
      at[k] = centre[from + whose[k]];
      for (int j = 0; j < 5; ++j) singular[j][k] = rows[j * stride + whose[k]];
    }
    neighbours_of(singular, plan.eps, at, job.limits, found, moved);
    for (int k = 0; k < found; ++k)
      for (int j = 0; j < 5; ++j) rows[j * stride + whose[k]] = moved[j][k];
    neighbours.solve(from, count);
  };
  const Kernels& k = kernels();
  auto work = [&](int64_t unit) { k.backward(job, unit); };
  auto finish = [&](int64_t from, int count) {
    double gradients[5][NEURONS], outward[5][NEURONS] = {};
    own.pull_back(job, sums, from, count, gradients);
    bool any = false;
    for (int l = 0; pull && l < count; ++l) any |= pulled[from + l] != 0;
    if (any) neighbours.pull_back(job, neighbour_sums, from, count, outward);
    // Singular coefficients of the paper's solution have the gradients of a neighbour, or none.
    for (int j = 0; !plan.continuous && j < 3; ++j)
      for (int l = 0; l < count; ++l)
        if (std::fabs(own.coefficients(from + l)[j * own.stride()]) < plan.eps) gradients[j][l] = outward[j][l];
    neuron_kernels().limit_length(plan.max_grad_norm, count, gradients);
    for (int j = 0; j < 5; ++j)
      for (int l = 0; l < count; ++l) write(grads[j], plan.coefficient_dtype, from + l, gradients[j][l]);
  };
  in_parallel(useful_threads(plan, threads),
              {phase(blocks_of(channels), by_block(channels, form)), phase(job.units(), work),
               phase(blocks_of(channels), by_block(channels, finish))});
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
