// The work on each element: a unit's value, its slope, and the sums that its gradient needs.
// V is the precision of the arithmetic, W the type of the elements.
// Included inside a namespace of its own for each instruction set.

// Which limits hold: the paper's, or those of the continuous solution, where time stops on the right
// if the mean of the exponents rises with t, and that mean is held on the left if it falls.  SETTLING:
// it falls, and so do both of two real exponents; e^(qt) is then never capped, as q·t is at most its cap
// where the mean is, and falls to the left of that.  EITHER: units side by side, of which some rise.
enum Way { PAPER, RISING, FALLING, SETTLING, EITHER };

constexpr bool can_stop(int way) { return way == RISING || way == EITHER; }
constexpr bool can_be_held(int way) { return way == FALLING || way == SETTLING || way == EITHER; }

// Up to which size of the errors of (t·e^(pt) - M)/p at t = 0, in units of rounding, it is good enough in float32.
constexpr double TRUSTED_CLOSED = 8;

// Two real roots p and q, |p| >= |q|.
struct Roots {
  bool swapped;  // against the normal form
  double p, q, over_p, over_q, A, B, D;

  // A root smaller than `smallest` is taken as that: M(r, t) is then t.
  template <class Form>
  DEU_INLINED void set(const Form& n, double smallest) {
    const double first = n[p_], second = n[q_], by_first = n[A_], by_second = n[B_], gap = n[Af_];
    swapped = std::fabs(second) > std::fabs(first);
    p = swapped ? second : first;
    q = swapped ? first : second;
    p = std::fabs(p) < smallest ? -smallest : p;
    q = std::fabs(q) < smallest ? -smallest : q;
    over_p = 1 / p;
    over_q = 1 / q;
    A = swapped ? by_second : by_first;
    B = swapped ? by_first : by_second;
    D = swapped ? -gap : gap;
  }
};

// The numbers of a unit that are its own, where it has lanes beside it one of each: the exponents, q/π in
// two parts, mean and half the distance of two real roots; the same for exponents to base 2; the
// homogeneous part, on both sides of 0; f, for t > 0; both together; and where time stops.
#define DEU_NUMBERS(EACH)                                                                          \
  EACH(p) EACH(q) EACH(turn_hi) EACH(turn_lo) EACH(alpha) EACH(half_gap) EACH(p2) EACH(q2)         \
  EACH(alpha2) EACH(half_gap2) EACH(A) EACH(B) EACH(Q) EACH(K) EACH(Af) EACH(Bf) EACH(Pf) EACH(Qf) \
  EACH(G) EACH(Ap) EACH(Bp) EACH(Kp) EACH(A_and_B) EACH(stop)

// A normal form made ready for arithmetic in one precision.
template <class V>
struct Unit {
  using T = typename V::T;
#define DEU_DECLARE(number) T number;
  DEU_NUMBERS(DEU_DECLARE)
  T cap2, inner_cap, inner_cap2, lowest;
  T sharpness, bound;
  Roots roots;
  double closed_errors;  // of two real roots: see fast()
  Way way;

  Unit() = default;

  // p is so large that ∂M/∂p needs no care near t = 0.
  static bool fast(double closed_errors) { return sizeof(T) == 4 && closed_errors <= TRUSTED_CLOSED; }

  Unit(const Neuron& neuron, const Limits& limits) {
    if (neuron.kind == REAL) set<REAL>(neuron.n, limits);
    else set<OSCILLATING>(neuron.n, limits);
  }

  // KIND tells two real roots from all others.
  template <int KIND, class Form>
  DEU_INLINED void set(const Form& n, const Limits& limits) {
    constexpr bool TWO = KIND == REAL;
    roots.set(n, sizeof(T) == 4 ? 1e-10 : 1e-30);
    const double over_square = roots.over_p * roots.over_p;
    closed_errors = roots.D * roots.D * (over_square > 1 ? over_square : 1);
    const double most = sizeof(T) == 4 ? 40.0 : 300.0;  // e^most squared is still finite
    const double m = limits.max_exponent < most ? limits.max_exponent : most;
    const double first = TWO ? roots.p : n[p_], second = TWO ? roots.q : n[q_];
    const double mean = TWO ? (first + second) / 2 : first;
    const double turns = second * 0.31830988618379067154;
    p = static_cast<T>(first);
    q = static_cast<T>(second);
    turn_hi = static_cast<T>(turns);
    turn_lo = static_cast<T>(turns - static_cast<double>(turn_hi));
    alpha = static_cast<T>(mean);
    half_gap = static_cast<T>((second - first) / 2);
    A = static_cast<T>(TWO ? roots.A : n[A_]);
    B = static_cast<T>(TWO ? roots.B : n[B_]);
    Q = static_cast<T>(n[Q_]);
    K = static_cast<T>(n[K_]);
    Af = static_cast<T>(TWO ? -roots.D * roots.over_p : n[Af_]);
    Bf = static_cast<T>(TWO ? roots.D * roots.over_q : n[Bf_]);
    Pf = static_cast<T>(n[Pf_]);
    Qf = static_cast<T>(n[Qf_]);
    G = static_cast<T>(n[G_]);
    Ap = A + Af, Bp = B + Bf, Kp = K - Af, A_and_B = A + B;
    inner_cap = static_cast<T>(m);
    p2 = static_cast<T>(first * LOG2E);
    q2 = static_cast<T>(second * LOG2E);
    alpha2 = static_cast<T>(mean * LOG2E);
    half_gap2 = static_cast<T>((second - first) / 2 * LOG2E);
    inner_cap2 = static_cast<T>(m * LOG2E);
    cap2 = static_cast<T>((limits.continuous && TWO ? 2 * m : m) * LOG2E);
    const bool settling = TWO && first <= 0 && second <= 0;
    way = !limits.continuous ? PAPER : mean > 0 ? RISING : settling ? SETTLING : FALLING;
    stop = static_cast<T>(way == RISING ? m / (2 * mean) : HUGE_VAL);
    lowest = V::LOWEST;
    sharpness = static_cast<T>(limits.sharpness);
    bound = static_cast<T>(limits.bound);
  }
};

// 2^x, the exponent held at the cap.
template <class V, class T = typename V::T>
DEU_INLINE Power<T> exponential(const Unit<V>& u, T x) {
  x = x > u.cap2 ? u.cap2 : x;
  return V::exp2(x < u.lowest ? u.lowest : x);
}

// The basis functions at x.
template <class T>
struct Basis {
  T b1, b2;
  T d1, d2;            // b1 - b1(0), b2 - b2(0), with all their digits
  bool free1, free2;   // the exponents are below their cap
  bool held;           // the mean of the exponents is at its cap
  T e, cosine, sine;   // OSCILLATING: what b1 and b2 are products of
  T first1, second1, first2, second2;  // REAL: parts of the two exponentials
  bool near1, near2;
};

template <int KIND, int WAY, class V, class T = typename V::T>
DEU_INLINE Basis<T> basis(const Unit<V>& u, T x) {
  constexpr T O = 0;
  Basis<T> s{O, O, O, O, true, true, false, O, O, O, O, O, O, O, false, false};
  if (KIND == EXPONENTIAL || KIND == CRITICAL || KIND == OSCILLATING) {
    const T raw = u.p2 * x;
    const Power<T> e = exponential(u, raw);
    s.d1 = e.less_one;
    s.free1 = !(raw > u.cap2);
    if (KIND == OSCILLATING) {
      T less_one;
      V::sincos(x, u.turn_hi, u.turn_lo, &s.sine, &s.cosine, &less_one);
      s.e = e.value;
      s.b1 = e.value * s.cosine;
      s.b2 = s.d2 = e.value * s.sine;
      s.d1 = s.d1 * s.cosine + less_one;
    } else {
      s.b1 = e.value;
      if (KIND == CRITICAL) s.b2 = s.d2 = x * e.value;
    }
  }
  if (KIND == REAL) {
    T raw1 = u.p2 * x, raw2 = u.q2 * x;
    if (can_be_held(WAY)) {
      s.held = u.alpha2 * x > u.inner_cap2;
      raw1 = s.held ? u.inner_cap2 - u.half_gap2 * x : raw1;
      raw2 = s.held ? u.inner_cap2 + u.half_gap2 * x : raw2;
    }
    const Power<T> e1 = exponential(u, raw1);
    const Power<T> e2 = WAY == SETTLING ? V::exp2(raw2 < u.lowest ? u.lowest : raw2) : exponential(u, raw2);
    s.b1 = e1.value, s.d1 = e1.less_one, s.first1 = e1.first, s.second1 = e1.second, s.near1 = e1.near;
    s.b2 = e2.value, s.d2 = e2.less_one, s.first2 = e2.first, s.second2 = e2.second, s.near2 = e2.near;
    s.free1 = !(raw1 > u.cap2);
    s.free2 = WAY == SETTLING || !(raw2 > u.cap2);
  }
  return s;
}

// r times the derivative of M(r, x) = (e^(rx) - 1)/r by r, x·e^(rx) - M; where rx is small, from the
// parts of the exponential.  r2 is r for base 2, and `live` the exponential, or 0 where it is capped.
template <class T>
DEU_INLINE T grown_by_root(T r2, T over_root, T x, T live, T less_one, T first, T second, bool near) {
  const T series = r2 * x * (first - T(LOG2E) * second);
  const T M = less_one * over_root;
  return x * (near ? series : live) - (near ? T(0) : M);
}

template <class T>
DEU_INLINE T bounded(T y, T bound) {
  y = y > bound ? bound : y;
  return y < -bound ? -bound : y;
}

// σ(s·x), the smoothed step, and σ' there.
template <class V, class T = typename V::T>
DEU_INLINE T smooth_step(const Unit<V>& u, T x, T* slope) {
  const T z = u.sharpness * T(LOG2E) * x;
  T fall = z > T(0) ? -z : z;
  fall = fall < u.lowest ? u.lowest : fall;
  const T e = V::exp2(fall).value;
  const T r = T(1) / (T(1) + e);
  *slope = e * r * r;
  return z > T(0) ? r : e * r;
}

// The value at x.  SMALL: f's numbers are so small that it may be added in closed form, which is
// cheaper than keeping all its digits where t is near 0.
template <int KIND, int WAY, bool SMALL, class V, class T = typename V::T>
DEU_INLINE T value_at(const Unit<V>& u, T x) {
  T value;
  if (can_stop(WAY)) x = x > u.stop ? u.stop : x;
  const bool positive = x > T(0);
  if (KIND == STEP) {
    T unused;
    value = u.G * smooth_step(u, x, &unused);
  } else if (KIND == POLYNOMIAL) {
    value = u.Q * x + u.K + (positive ? (u.Pf * x + u.Qf) * x : T(0));
  } else {
    const Basis<T> s = basis<KIND, WAY>(u, x);
    if (SMALL && KIND == OSCILLATING) {
      const T wave = (positive ? u.Ap : u.A) * s.cosine + (positive ? u.Bp : u.B) * s.sine;
      value = s.e * wave + (positive ? u.Kp : u.K);
    } else if (SMALL && KIND == REAL) {
      value = (positive ? u.Ap : u.A) * s.d1 + ((positive ? u.Bp : u.B) * s.d2 + u.A_and_B);
    } else if (SMALL) {
      value = (positive ? u.Ap : u.A) * s.b1 + (positive ? u.Kp : u.K);
      if (KIND == EXPONENTIAL) value += (positive ? u.Qf : T(0)) * x;
      else value += (positive ? u.Bp : u.B) * s.b2;
    } else {
      T f = u.Af * s.d1;
      value = u.A * s.b1;
      if (KIND == EXPONENTIAL) {
        f += u.Qf * x;
        value += u.K;
      } else {
        f += u.Bf * s.d2;
        value += u.B * s.b2;
      }
      value += positive ? f : T(0);
    }
  }
  return bounded(value, u.bound);
}

template <int KIND, int WAY, bool SMALL, class V, class W>
static void forward_row(const Unit<V>& unit, const W* t, W* y, int count) {
  using T = typename V::T;
  const Unit<V> u = unit;
  DEU_SIMD
  for (int i = 0; i < count; ++i) narrow(value_at<KIND, WAY, SMALL>(u, static_cast<T>(t[i])), y + i);
}

// What the gradient takes besides: the roots' inverses, as the exponents have them, rounded, because
// differences cancel; and dy/dt of two real roots, by e^(pt) and e^(qt): on the left, on the right, held.
#define DEU_SLOPES(EACH) \
  EACH(over_p) EACH(over_q) EACH(left1) EACH(left2) EACH(right1) EACH(right2) EACH(held1) EACH(held2)

template <class V>
struct Slopes {
  using T = typename V::T;
  DEU_SLOPES(DEU_DECLARE)

  Slopes() = default;

  DEU_INLINED explicit Slopes(const Unit<V>& u) {
    const Roots& r = u.roots;
    over_p = static_cast<T>(LOG2E / u.p2), over_q = static_cast<T>(LOG2E / u.q2);
    left1 = static_cast<T>(r.p * r.A), left2 = static_cast<T>(r.q * r.B);
    right1 = static_cast<T>(r.p * r.A - r.D), right2 = static_cast<T>(r.q * r.B + r.D);
    held1 = -u.half_gap * u.A, held2 = u.half_gap * u.B;
  }
};

// Sums over a unit's inputs: of most numbers the gradient, of two real roots what it is made of.
#define DEU_SUMS(EACH)                                                                              \
  EACH(sp) EACH(sq) EACH(sA) EACH(sB) EACH(sQ) EACH(sK) EACH(sAf) EACH(sBf) EACH(sPf) EACH(sQf)     \
  EACH(sG) EACH(te1) EACH(te2) EACH(te1_right) EACH(apart) EACH(stopped)

struct Totals {
#define DEU_DECLARE_TOTAL(sum) double sum;
  DEU_SUMS(DEU_DECLARE_TOTAL)
};

// An input's part in the sums, and with SLOPE g·dy/dt there.  FAST: the unit's `fast`.
template <int KIND, int WAY, bool SLOPE, bool FAST, class V, class T = typename V::T>
DEU_INLINE T gradient_at(const Unit<V>& u, const Slopes<V>& d, T x, T gi, T& sp, T& sq, T& sA, T& sB, T& sQ, T& sK,
                         T& sAf, T& sBf, T& sPf, T& sQf, T& sG, T& te1, T& te2, T& te1_right, T& apart, T& stopped) {
  bool beyond = false;
  if (can_stop(WAY)) {
    beyond = x > u.stop;
    x = beyond ? u.stop : x;
  }
  const bool positive = x > T(0);
  const T gp = positive ? gi : T(0);
  T slope = T(0), f = T(0);
  if (KIND == STEP) {
    T bump;
    sG += gi * smooth_step(u, x, &bump);
    slope = u.G * (u.sharpness * bump);
  } else if (KIND == POLYNOMIAL) {
    slope = u.Q + (positive ? T(2) * u.Pf * x + u.Qf : T(0));
    f = (u.Pf * x + u.Qf) * x;
    sQ += gi * x;
    sK += gi;
    sQf += gp * x;
    sPf += gp * x * x;
  } else {
    const Basis<T> s = basis<KIND, WAY>(u, x);
    // Chosen together: compilers would make branches of choices that are apart.
    const T A = positive ? u.Ap : u.A, B = positive ? u.Bp : u.B, rise = positive ? u.Qf : T(0);
    const T gx = gi * x;
    sA += gi * s.b1;
    sAf += gp * s.d1;
    f = u.Af * s.d1;
    if (KIND == EXPONENTIAL) {
      const T live = s.free1 ? A * s.b1 : T(0);
      slope = u.p * live + rise;
      sp += gx * live;
      sQf += gp * x;
      sK += gi;
      f += u.Qf * x;
    } else {
      sB += gi * s.b2;
      sBf += gp * s.d2;
      f += u.Bf * s.d2;
    }
    if (KIND == CRITICAL) {
      const T live = s.free1 ? A * s.b1 + B * s.b2 : T(0);
      slope = u.p * live + B * s.b1;
      sp += gx * live;
    }
    if (KIND == OSCILLATING) {
      const T live = s.free1 ? A * s.b1 + B * s.b2 : T(0);
      const T turned = B * s.b1 - A * s.b2;
      slope = u.p * live + u.q * turned;
      sp += gx * live;
      sq += gx * turned;
    }
    if (KIND == REAL) {
      const T e1 = s.free1 ? s.b1 : T(0), e2 = s.free2 ? s.b2 : T(0);
      T slope1 = positive ? d.right1 : d.left1, slope2 = positive ? d.right2 : d.left2;
      slope1 = s.held ? d.held1 : slope1;
      slope2 = s.held ? d.held2 : slope2;
      slope = slope1 * e1 + slope2 * e2;
      const T gx_free = s.held ? T(0) : gx, x_held = s.held ? x : T(0);
      te1 += gx_free * e1;
      te2 += gx_free * e2;
      apart += x_held * (gi * slope);
      if (FAST) te1_right += gp * x * e1;
      else sp += gp * grown_by_root(u.p2, d.over_p, x, e1, s.d1, s.first1, s.second1, s.near1);
      sq += gp * grown_by_root(u.q2, d.over_q, x, e2, s.d2, s.first2, s.second2, s.near2);
    }
  }
  if (!SLOPE) return T(0);
  if (WAY == PAPER && KIND != STEP) {
    // f of a second-order equation starts as t², which forgives errors of the bump's flank.
    constexpr bool SECOND_ORDER = KIND == REAL || KIND == OSCILLATING || KIND == CRITICAL;
    slope += V::template bump<SECOND_ORDER>(u.sharpness / 2 * x, u.sharpness) * f;
  }
  const T moved = gi * slope;
  if (can_stop(WAY)) stopped += beyond ? moved : T(0);
  return beyond ? T(0) : moved;
}

// From the sums the gradient of each number of the normal form.
template <int KIND, int WAY, bool FAST, class V>
DEU_INLINE void number_gradients(const Unit<V>& u, const Totals& s, double all[NUMBERS]) {
  const Roots& r = u.roots;
  double by_first = s.sp, by_second = s.sq, by_A = s.sA, by_B = s.sB, by_Af = s.sAf, by_Bf = s.sBf;
  if (KIND == REAL) {
    const double by_p = FAST ? LOG2E / u.p2 : r.over_p;
    const double M1 = s.sAf * by_p, M2 = s.sBf * r.over_q;
    const double M1_by_p = (FAST ? s.te1_right - M1 : s.sp) * by_p, M2_by_q = s.sq * r.over_q;
    // With the mean of the roots held, only their distance still moves the exponents; which
    // happens for t < 0 alone, where there is no f.
    const double moved_apart = can_be_held(WAY) ? s.apart / (2 * static_cast<double>(u.half_gap)) : 0;
    by_first = r.A * s.te1 - moved_apart - r.D * M1_by_p;
    by_second = r.B * s.te2 + moved_apart + r.D * M2_by_q;
    by_Af = r.swapped ? M1 - M2 : M2 - M1;
    by_Bf = 0;
  }
  if (can_stop(WAY)) {
    // stop = m/2α moves with α.
    const double through_stop = s.stopped != 0 ? s.stopped * (-u.stop / u.alpha) : 0;
    by_first += KIND == REAL ? through_stop / 2 : through_stop;
    by_second += KIND == REAL ? through_stop / 2 : 0;
  }
  const bool swapped = KIND == REAL && r.swapped;
  all[p_] = swapped ? by_second : by_first;
  all[q_] = swapped ? by_first : by_second;
  all[A_] = swapped ? by_B : by_A;
  all[B_] = swapped ? by_A : by_B;
  all[Q_] = s.sQ, all[K_] = s.sK, all[Af_] = by_Af, all[Bf_] = by_Bf;
  all[Pf_] = s.sPf, all[Qf_] = s.sQf, all[G_] = s.sG;
}

// The gradient of each number of the normal form, added to `sums`; with SLOPE also
// grad_t[i] = g[i]·dy/dt.
template <int KIND, int WAY, bool SLOPE, bool FAST, class V, class W>
static void backward_row(const Unit<V>& unit, const W* t, const W* g, W* grad_t, int count, double* sums) {
  using T = typename V::T;
  const Unit<V> u = unit;
  const Slopes<V> d(u);
  T sp = 0, sq = 0, sA = 0, sB = 0, sQ = 0, sK = 0, sAf = 0, sBf = 0, sPf = 0, sQf = 0, sG = 0;
  T te1 = 0, te2 = 0, te1_right = 0, apart = 0, stopped = 0;
  DEU_SIMD_SUM(sp, sq, sA, sB, sQ, sK, sAf, sBf, sPf, sQf, sG, te1, te2, te1_right, apart, stopped)
  for (int i = 0; i < count; ++i) {
    const T moved = gradient_at<KIND, WAY, SLOPE, FAST>(u, d, static_cast<T>(t[i]), static_cast<T>(g[i]), sp, sq, sA,
                                                        sB, sQ, sK, sAf, sBf, sPf, sQf, sG, te1, te2, te1_right,
                                                        apart, stopped);
    if (SLOPE) narrow(moved, grad_t + i);
  }
  double all[NUMBERS];
  number_gradients<KIND, WAY, FAST>(
      u, {sp, sq, sA, sB, sQ, sK, sAf, sBf, sPf, sQf, sG, te1, te2, te1_right, apart, stopped}, all);
  for (int k = 0; k < NUMBERS; ++k) sums[k] += all[k];
}
