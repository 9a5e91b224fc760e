// Neurons side by side, one a lane of a vector, where channels lie next to each other: no element is
// moved to another lane.  LANES neighbouring neurons are a group, worked on in one pass for each kind
// of arithmetic among them; each pass leaves the lanes of the others alone.
// Included inside a namespace of its own for each instruction set.

// A number k of the neurons from the first on.
struct Column {
  const double* first;
  int64_t stride;

  double operator[](int k) const { return first[k * stride]; }
};

// A group made ready for arithmetic in one precision, on elements of type W.
template <class V, class W>
struct Lanes {
  using T = typename V::T;
#define DEU_DECLARE_LANES(number) alignas(64) T number[LANES];
  DEU_NUMBERS(DEU_DECLARE_LANES)
  DEU_SLOPES(DEU_DECLARE_LANES)
  alignas(64) W member[LANES];  // not 0: its results are wanted
  bool whole;                   // those of all lanes are
  Unit<V> shared;               // what is the same in all lanes

  // What is the same in all lanes is handed in: a loop keeps it in registers.
  DEU_INLINED Unit<V> unit(int lane, const Unit<V>& same) const {
    Unit<V> u;
#define DEU_TAKE_NUMBER(number) u.number = number[lane];
    DEU_NUMBERS(DEU_TAKE_NUMBER)
    u.cap2 = same.cap2, u.inner_cap = same.inner_cap, u.inner_cap2 = same.inner_cap2;
    u.lowest = same.lowest, u.sharpness = same.sharpness, u.bound = same.bound;
    return u;
  }

  DEU_INLINED Slopes<V> slopes(int lane) const {
    Slopes<V> d;
#define DEU_TAKE_SLOPE(number) d.number = number[lane];
    DEU_SLOPES(DEU_TAKE_SLOPE)
    return d;
  }

  // Results where they are wanted.  To read what is there already takes longer than to write.
  DEU_INLINED void put(const W* values, bool all, W* DEU_RESTRICT target) const {
    if (all) {
      DEU_SIMD
      for (int l = 0; l < LANES; ++l) target[l] = values[l];
    } else {
      DEU_SIMD
      for (int l = 0; l < LANES; ++l) target[l] = member[l] != 0 ? values[l] : target[l];
    }
  }
};

// What holds for all members of a pass, so that its arithmetic may be shorter.
struct Common {
  bool settling, falling, fast;
};

template <int KIND, class V, class W>
static Common set_lanes(Column numbers, Limits limits, const bool* member, Lanes<V, W>* lanes) {
  double closed_errors[LANES];
  DEU_INDEPENDENT
  for (int l = 0; l < LANES; ++l) {
    Unit<V> u;
    u.template set<KIND>(Column{numbers.first + l, numbers.stride}, limits);
    const Slopes<V> d(u);
#define DEU_GIVE_NUMBER(number) lanes->number[l] = u.number;
    DEU_NUMBERS(DEU_GIVE_NUMBER)
#define DEU_GIVE_SLOPE(number) lanes->number[l] = d.number;
    DEU_SLOPES(DEU_GIVE_SLOPE)
    closed_errors[l] = u.closed_errors;
  }
  lanes->shared.template set<KIND>(numbers, limits);
  Common all{true, true, true};
  lanes->whole = true;
  for (int l = 0; l < LANES; ++l) {
    lanes->member[l] = member[l];
    lanes->whole &= member[l];
    all.settling &= !member[l] || (lanes->p[l] <= 0 && lanes->q[l] <= 0);
    all.falling &= !member[l] || lanes->alpha[l] <= 0;
    all.fast &= !member[l] || Unit<V>::fast(closed_errors[l]);
  }
  return all;
}

// Elements of a group: those of a position next to each other, positions `step` apart; and how many
// elements ahead to fetch from memory, which the hardware does not do if there are gaps between them.
template <class W>
struct Strip {
  W* first;
  int64_t step;
  int64_t ahead;

  DEU_INLINED W* at(int i) const {
    W* place = first + i * step;
    DEU_PREFETCH(place + ahead);
    return place;
  }
};

template <int KIND, int WAY, bool SMALL, class V, class W>
static void forward_lanes(const void* ready, Strip<const W> in, Strip<W> out, int count) {
  const Lanes<V, W>& lanes = *static_cast<const Lanes<V, W>*>(ready);
  const Unit<V> same = lanes.shared;
  const bool whole = lanes.whole;
  for (int i = 0; i < count; ++i) {
    const W* DEU_RESTRICT t = in.at(i);
    alignas(64) W values[LANES];
    DEU_SIMD
    for (int l = 0; l < LANES; ++l) {
      const Unit<V> u = lanes.unit(l, same);
      narrow(value_at<KIND, WAY, SMALL>(u, static_cast<typename V::T>(t[l])), values + l);
    }
    lanes.put(values, whole, out.at(i));
  }
}

#define DEU_COUNT_SUM(sum) +1
constexpr int SUMS = 0 DEU_SUMS(DEU_COUNT_SUM);

// Adds to `totals`, a row of lanes for each of DEU_SUMS.
template <int KIND, int WAY, bool SLOPE, bool FAST, class V, class W>
static void backward_lanes(const void* ready, Strip<const W> in, Strip<const W> grad, Strip<W> out, int count,
                           double (*totals)[LANES]) {
  using T = typename V::T;
  const Lanes<V, W>& lanes = *static_cast<const Lanes<V, W>*>(ready);
  const Unit<V> same = lanes.shared;
  const bool whole = lanes.whole;
#define DEU_DECLARE_SUM(sum) alignas(64) T sum[LANES] = {};
  DEU_SUMS(DEU_DECLARE_SUM)
  for (int i = 0; i < count; ++i) {
    const W* DEU_RESTRICT t = in.at(i);
    const W* DEU_RESTRICT g = grad.at(i);
    alignas(64) W values[LANES];
    DEU_SIMD
    for (int l = 0; l < LANES; ++l) {
      const Unit<V> u = lanes.unit(l, same);
      const Slopes<V> d = lanes.slopes(l);
      const T moved = gradient_at<KIND, WAY, SLOPE, FAST>(
          u, d, static_cast<T>(t[l]), static_cast<T>(g[l]), sp[l], sq[l], sA[l], sB[l], sQ[l], sK[l], sAf[l], sBf[l],
          sPf[l], sQf[l], sG[l], te1[l], te2[l], te1_right[l], apart[l], stopped[l]);
      if (SLOPE) narrow(moved, values + l);
    }
    if (SLOPE) lanes.put(values, whole, out.at(i));
  }
  double(*row)[LANES] = totals;
#define DEU_ADD_SUM(sum)                                                          \
  for (int l = 0; l < LANES; ++l) (*row)[l] += static_cast<double>(sum[l]);       \
  ++row;
  DEU_SUMS(DEU_ADD_SUM)
}

template <int KIND, int WAY, bool FAST, class V>
static void gradients_of_lanes(Column numbers, Limits limits, const double (*totals)[LANES],
                               double (*result)[LANES]) {
  DEU_INDEPENDENT
  for (int l = 0; l < LANES; ++l) {
    Unit<V> u;
    u.template set<KIND>(Column{numbers.first + l, numbers.stride}, limits);
    Totals s;
    const double(*row)[LANES] = totals;
#define DEU_TAKE_TOTAL(sum) s.sum = (*row++)[l];
    DEU_SUMS(DEU_TAKE_TOTAL)
    double all[NUMBERS];
    number_gradients<KIND, WAY, FAST>(u, s, all);
#define DEU_GIVE(number) result[number][l] = all[number];
    DEU_GIVE(p_) DEU_GIVE(q_) DEU_GIVE(A_) DEU_GIVE(B_) DEU_GIVE(Q_) DEU_GIVE(K_)
    DEU_GIVE(Af_) DEU_GIVE(Bf_) DEU_GIVE(Pf_) DEU_GIVE(Qf_) DEU_GIVE(G_)
#undef DEU_GIVE
  }
}

template <class W>
using ForwardLoop = void (*)(const void*, Strip<const W>, Strip<W>, int);

template <class W>
using BackwardLoop = void (*)(const void*, Strip<const W>, Strip<const W>, Strip<W>, int, double (*)[LANES]);

using GradientLoop = void (*)(Column, Limits, const double (*)[LANES], double (*)[LANES]);

// The shortest of the limits that all members of a pass keep to.  SHORT: there are loops for those.
template <bool SHORT>
static Way way_of_all(int kind, bool continuous, const Common& all) {
  if (!continuous) return PAPER;
  if (SHORT && kind == REAL && all.settling) return SETTLING;
  if (SHORT && kind == OSCILLATING && all.falling) return FALLING;
  return EITHER;
}

template <class V, class W, bool SMALL>
static ForwardLoop<W> forward_loop(int kind, Way way) {
  constexpr bool SHORT = sizeof(typename V::T) == 4;
  switch (kind) {
    case STEP: return forward_lanes<STEP, PAPER, false, V, W>;
    case POLYNOMIAL: return forward_lanes<POLYNOMIAL, PAPER, false, V, W>;
    case EXPONENTIAL: return forward_lanes<EXPONENTIAL, PAPER, SMALL, V, W>;
    case CRITICAL: return forward_lanes<CRITICAL, PAPER, SMALL, V, W>;
    case REAL:
      if (way == PAPER) return forward_lanes<REAL, PAPER, SMALL, V, W>;
      if (way == SETTLING) return forward_lanes<REAL, SHORT ? SETTLING : EITHER, SMALL, V, W>;
      return forward_lanes<REAL, EITHER, SMALL, V, W>;
    default:
      if (way == PAPER) return forward_lanes<OSCILLATING, PAPER, SMALL, V, W>;
      if (way == FALLING) return forward_lanes<OSCILLATING, SHORT ? FALLING : EITHER, SMALL, V, W>;
      return forward_lanes<OSCILLATING, EITHER, SMALL, V, W>;
  }
}

template <class W>
struct BackwardLoops {
  BackwardLoop<W> sums;
  GradientLoop gradients;
};

template <int KIND, int WAY, bool SLOPE, bool FAST, class V, class W>
static BackwardLoops<W> backward_pair() {
  return {backward_lanes<KIND, WAY, SLOPE, FAST, V, W>, gradients_of_lanes<KIND, WAY, FAST, V>};
}

template <class V, class W, bool SLOPE, bool FAST>
static BackwardLoops<W> backward_loops_of_roots(Way way) {
  constexpr bool SHORT = sizeof(typename V::T) == 4;
  if (way == PAPER) return backward_pair<REAL, PAPER, SLOPE, FAST, V, W>();
  if (way == SETTLING) return backward_pair<REAL, SHORT ? SETTLING : EITHER, true, FAST, V, W>();
  return backward_pair<REAL, EITHER, true, FAST, V, W>();
}

template <class V, class W, bool SLOPE>
static BackwardLoops<W> backward_loops(int kind, Way way, bool fast) {
  constexpr bool SHORT = sizeof(typename V::T) == 4;
  switch (kind) {
    case STEP: return backward_pair<STEP, PAPER, SLOPE, false, V, W>();
    case POLYNOMIAL: return backward_pair<POLYNOMIAL, PAPER, SLOPE, false, V, W>();
    case EXPONENTIAL: return backward_pair<EXPONENTIAL, PAPER, SLOPE, false, V, W>();
    case CRITICAL: return backward_pair<CRITICAL, PAPER, SLOPE, false, V, W>();
    case REAL:
      if (fast) return backward_loops_of_roots<V, W, SLOPE, SHORT>(way);
      return backward_loops_of_roots<V, W, SLOPE, false>(way);
    default:
      if (way == PAPER) return backward_pair<OSCILLATING, PAPER, SLOPE, false, V, W>();
      if (way == FALLING) return backward_pair<OSCILLATING, SHORT ? FALLING : EITHER, true, false, V, W>();
      return backward_pair<OSCILLATING, EITHER, true, false, V, W>();
  }
}
