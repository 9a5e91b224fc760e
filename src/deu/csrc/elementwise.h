// The work on each element: a unit's value, its slope, and the sums that its gradient needs.
// V is the precision of the arithmetic, W the type of the elements.
// Included inside a namespace of its own for each instruction set.

// A normal form made ready for arithmetic in one precision.
template <class V>
struct Unit {
  using T = typename V::T;
  static constexpr double ROOT = 1e-30;  // a smaller one counts as 0
  T p, q;
  T turn_hi, turn_lo;    // q/π in two parts
  T alpha, half_gap;     // mean and half the distance of two real roots
  T p2, q2, alpha2, half_gap2, cap2, inner_cap2;  // the same and the caps, for exponents to base 2
  T A, B, Q, K;          // the homogeneous part, on both sides of 0
  T Af, Bf, Pf, Qf, G;   // f, for t > 0
  T D, over_p, over_q;   // f of two real roots; 1/p and 1/q, or 0 for a root of 0
  T inner_cap, stop, lowest;
  T sharpness, bound;

  Unit(const Neuron& neuron, const Limits& limits) {
    const double* n = neuron.n;
    const double most = sizeof(T) == 4 ? 40.0 : 300.0;  // e^most squared is still finite
    const double m = limits.max_exponent < most ? limits.max_exponent : most;
    const double mean = neuron.kind == REAL ? (n[p_] + n[q_]) / 2 : n[p_];
    const double turns = n[q_] * 0.31830988618379067154;
    p = static_cast<T>(n[p_]);
    q = static_cast<T>(n[q_]);
    turn_hi = static_cast<T>(turns);
    turn_lo = static_cast<T>(turns - static_cast<double>(turn_hi));
    alpha = static_cast<T>(mean);
    half_gap = static_cast<T>((n[q_] - n[p_]) / 2);
    A = static_cast<T>(n[A_]);
    B = static_cast<T>(n[B_]);
    Q = static_cast<T>(n[Q_]);
    K = static_cast<T>(n[K_]);
    const double by_p = std::fabs(n[p_]) > ROOT ? 1 / n[p_] : 0, by_q = std::fabs(n[q_]) > ROOT ? 1 / n[q_] : 0;
    D = static_cast<T>(n[Af_]);
    over_p = static_cast<T>(by_p);
    over_q = static_cast<T>(by_q);
    Af = static_cast<T>(neuron.kind == REAL ? -n[Af_] * by_p : n[Af_]);
    Bf = static_cast<T>(neuron.kind == REAL ? n[Af_] * by_q : n[Bf_]);
    Pf = static_cast<T>(n[Pf_]);
    Qf = static_cast<T>(n[Qf_]);
    G = static_cast<T>(n[G_]);
    inner_cap = static_cast<T>(m);
    p2 = static_cast<T>(n[p_] * LOG2E);
    q2 = static_cast<T>(n[q_] * LOG2E);
    alpha2 = static_cast<T>(mean * LOG2E);
    half_gap2 = static_cast<T>((n[q_] - n[p_]) / 2 * LOG2E);
    inner_cap2 = static_cast<T>(m * LOG2E);
    cap2 = static_cast<T>((limits.continuous && neuron.kind == REAL ? 2 * m : m) * LOG2E);
    stop = static_cast<T>(limits.continuous && mean > 0 ? m / (2 * mean) : HUGE_VAL);
    lowest = V::LOWEST;
    sharpness = static_cast<T>(limits.sharpness);
    bound = static_cast<T>(limits.bound);
  }
};

// 2^x and 2^x - 1, the exponent held at the cap.
template <class V, class T = typename V::T>
DEU_INLINE T exponential(const Unit<V>& u, T x, T* less_one) {
  x = x > u.cap2 ? u.cap2 : x;
  return V::exp2(x < u.lowest ? u.lowest : x, less_one);
}

// The basis functions at x.
template <class T>
struct Basis {
  T b1, b2;
  T d1, d2;            // b1 - b1(0), b2 - b2(0), with all their digits
  bool free1, free2;   // the exponents are below their cap
  bool held;           // the mean of the exponents is at its cap
  T e, cosine, sine;   // OSCILLATING: what b1 and b2 are products of
};

template <int KIND, bool CONTINUOUS, class V, class T = typename V::T>
DEU_INLINE Basis<T> basis(const Unit<V>& u, T x) {
  Basis<T> s{T(0), T(0), T(0), T(0), true, true, false, T(0), T(0), T(0)};
  if (KIND == EXPONENTIAL || KIND == CRITICAL || KIND == OSCILLATING) {
    const T raw = u.p2 * x;
    const T e = exponential(u, raw, &s.d1);
    s.free1 = !(raw > u.cap2);
    if (KIND == OSCILLATING) {
      T less_one;
      V::sincos(x, u.turn_hi, u.turn_lo, &s.sine, &s.cosine, &less_one);
      s.e = e;
      s.b1 = e * s.cosine;
      s.b2 = s.d2 = e * s.sine;
      s.d1 = s.d1 * s.cosine + less_one;
    } else {
      s.b1 = e;
      if (KIND == CRITICAL) s.b2 = s.d2 = x * e;
    }
  }
  if (KIND == REAL) {
    T raw1 = u.p2 * x, raw2 = u.q2 * x;
    if (CONTINUOUS) {
      s.held = u.alpha2 * x > u.inner_cap2;
      raw1 = s.held ? u.inner_cap2 - u.half_gap2 * x : raw1;
      raw2 = s.held ? u.inner_cap2 + u.half_gap2 * x : raw2;
    }
    s.b1 = exponential(u, raw1, &s.d1);
    s.b2 = exponential(u, raw2, &s.d2);
    s.free1 = !(raw1 > u.cap2);
    s.free2 = !(raw2 > u.cap2);
  }
  return s;
}

// M(r, x) = (e^(rx) - 1)/r, from the exponential less one.
template <class T>
DEU_INLINE T grown(T over_root, T x, T less_one) {
  return over_root == T(0) ? x : less_one * over_root;
}

// Its derivative by r, (x·e^(rx) - M)/r; where rx is small, by x² times Σ (k+1)/(k+2)!·(rx)^k.  `live` is the
// exponential, or 0 where its exponent is capped.
template <class T>
DEU_INLINE T grown_by_root(T root, T over_root, T x, T live, T M) {
  constexpr bool WIDE = sizeof(T) == 8;  // which can lose a few digits, and so has a shorter series
  constexpr T SMALL = WIDE ? T(0.0625) : T(0.5);
  const T z = root * x;
  const bool small = z < SMALL && z > -SMALL;
  const T zs = small ? z : T(0);
  const T z2 = zs * zs;
  const T low = (T(1.0 / 30) * zs + T(1.0 / 8)) * z2 + (T(1.0 / 3) * zs + T(1.0 / 2));
  const T top = T(1.0 / 45360) * zs + T(1.0 / 5760);
  const T high = (WIDE ? T(1.0 / 403200) * z2 + top : top) * z2 + (T(1.0 / 840) * zs + T(1.0 / 144));
  const T series = high * (z2 * z2) + low;
  return small ? x * x * series : (x * live - M) * over_root;
}

template <class T>
DEU_INLINE T bounded(T y, T bound) {
  return y > bound ? bound : (y < -bound ? -bound : y);
}

// σ(s·x), the smoothed step, and σ' there.
template <class V, class T = typename V::T>
DEU_INLINE T smooth_step(const Unit<V>& u, T x, T* slope) {
  const T z = u.sharpness * T(LOG2E) * x;
  T unused, fall = z > T(0) ? -z : z;
  fall = fall < u.lowest ? u.lowest : fall;
  const T e = V::exp2(fall, &unused);
  const T r = T(1) / (T(1) + e);
  *slope = e * r * r;
  return z > T(0) ? r : e * r;
}

// SMALL: f's numbers are so small that it may be added in closed form, which is cheaper than
// keeping all its digits where t is near 0.
template <int KIND, bool CONTINUOUS, bool SMALL, class V, class W>
static void forward_row(const Unit<V>& unit, const W* t, W* y, int count) {
  using T = typename V::T;
  const Unit<V> u = unit;
  const T Ap = u.A + u.Af, Bp = u.B + u.Bf, Kp = u.K - u.Af - (KIND == REAL ? u.Bf : T(0));
  DEU_SIMD
  for (int i = 0; i < count; ++i) {
    T x = t[i], value;
    if (CONTINUOUS) x = x > u.stop ? u.stop : x;
    const bool positive = x > T(0);
    if (KIND == STEP) {
      T unused;
      value = u.G * smooth_step(u, x, &unused);
    } else if (KIND == POLYNOMIAL) {
      value = u.Q * x + u.K + (positive ? (u.Pf * x + u.Qf) * x : T(0));
    } else {
      const Basis<T> s = basis<KIND, CONTINUOUS>(u, x);
      if (SMALL && KIND == OSCILLATING) {
        const T wave = (positive ? Ap : u.A) * s.cosine + (positive ? Bp : u.B) * s.sine;
        value = s.e * wave + (positive ? Kp : u.K);
      } else if (SMALL) {
        value = (positive ? Ap : u.A) * s.b1 + (positive ? Kp : u.K);
        if (KIND == EXPONENTIAL) value += (positive ? u.Qf : T(0)) * x;
        else value += (positive ? Bp : u.B) * s.b2;
      } else {
        T f = u.Af * s.d1;
        value = u.A * s.b1;
        if (KIND == EXPONENTIAL) {
          f += u.Qf * x;
          value += u.K;
        } else if (KIND == REAL) {
          f = u.D * (grown(u.over_q, x, s.d2) - grown(u.over_p, x, s.d1));
          value += u.B * s.b2;
        } else {
          f += u.Bf * s.d2;
          value += u.B * s.b2;
        }
        value += positive ? f : T(0);
      }
    }
    narrow(bounded(value, u.bound), y + i);
  }
}

// The gradient of each number of the normal form, added to `sums`; with SLOPE also
// grad_t[i] = g[i]·dy/dt.
template <int KIND, bool CONTINUOUS, bool SLOPE, class V, class W>
static void backward_row(const Unit<V>& unit, const W* t, const W* g, W* grad_t, int count, Sums* sums) {
  using T = typename V::T;
  const Unit<V> u = unit;
  const T half_sharpness = u.sharpness / 2;
  T sp = 0, sq = 0, sA = 0, sB = 0, sQ = 0, sK = 0, sAf = 0, sBf = 0, sPf = 0, sQf = 0, sG = 0;
  T stopped = 0;
  DEU_SIMD_SUM(sp, sq, sA, sB, sQ, sK, sAf, sBf, sPf, sQf, sG, stopped)
  for (int i = 0; i < count; ++i) {
    T x = t[i];
    const T gi = g[i];
    bool beyond = false;
    if (CONTINUOUS) {
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
      const Basis<T> s = basis<KIND, CONTINUOUS>(u, x);
      const T A = u.A + (positive ? u.Af : T(0)), B = u.B + (positive ? u.Bf : T(0));
      const T gx = gi * x;
      sA += gi * s.b1;
      if (KIND != REAL) {
        sAf += gp * s.d1;
        f = u.Af * s.d1;
      }
      if (KIND == EXPONENTIAL) {
        const T live = s.free1 ? A * s.b1 : T(0);
        slope = u.p * live + (positive ? u.Qf : T(0));
        sp += gx * live;
        sQf += gp * x;
        sK += gi;
        f += u.Qf * x;
      } else {
        sB += gi * s.b2;
        if (KIND != REAL) {
          sBf += gp * s.d2;
          f += u.Bf * s.d2;
        }
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
        const T live1 = u.A * e1, live2 = u.B * e2;
        // With the mean of the roots held, only their distance still moves the exponents; which
        // happens for t < 0 alone, where there is no f.
        const T apart = T(0.5) * (live2 - live1);
        slope = s.held ? u.half_gap * (live2 - live1) : u.p * live1 + u.q * live2;
        sp += gx * (s.held ? -apart : live1);
        sq += gx * (s.held ? apart : live2);
        const T M1 = grown(u.over_p, x, s.d1), M2 = grown(u.over_q, x, s.d2), Dg = gp * u.D;
        f = u.D * (M2 - M1);
        slope += positive ? u.D * (e2 - e1) : T(0);
        sAf += gp * (M2 - M1);
        sp -= Dg * grown_by_root(u.p, u.over_p, x, e1, M1);
        sq += Dg * grown_by_root(u.q, u.over_q, x, e2, M2);
      }
    }
    if (SLOPE) {
      if (!CONTINUOUS && KIND != STEP) {
        // f of a second-order equation starts as t², which forgives errors of the bump's flank.
        constexpr bool SECOND_ORDER = KIND == REAL || KIND == OSCILLATING || KIND == CRITICAL;
        slope += V::template bump<SECOND_ORDER>(half_sharpness * x, u.sharpness) * f;
      }
      const T moved = gi * slope;
      narrow(beyond ? T(0) : moved, grad_t + i);
      if (CONTINUOUS) stopped += beyond ? moved : T(0);
    }
  }
  if (CONTINUOUS && stopped != T(0)) {
    // stop = m/2α moves with α.
    const T through_stop = stopped * (-u.stop / u.alpha);
    sp += KIND == REAL ? through_stop / 2 : through_stop;
    sq += KIND == REAL ? through_stop / 2 : T(0);
  }
  const T all[NUMBERS] = {sp, sq, sA, sB, sQ, sK, sAf, sBf, sPf, sQf, sG};
  for (int k = 0; k < NUMBERS; ++k) sums->number[k] += static_cast<double>(all[k]);
}
