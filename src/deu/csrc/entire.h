// Units near a seam of the continuous solution (c near 0, or a nearly double root), in float64.
// The formulas are those of deu/_entire.py, with their derivatives; docs/mathematics.md derives
// them.  Every formula is evaluated, at arguments made harmless where it does not hold, and the
// right one chosen, so that the loops are vectorised.
// Included inside a namespace of its own for each instruction set.

// 1/n!
constexpr double OVER_FACTORIAL[] = {
    1.0, 1.0, 0.5, 0.16666666666666666, 0.041666666666666664, 0.0083333333333333332, 0.0013888888888888889,
    0.00019841269841269841, 2.4801587301587302e-05, 2.7557319223985893e-06, 2.7557319223985888e-07,
    2.505210838544172e-08, 2.08767569878681e-09, 1.6059043836821613e-10, 1.1470745597729725e-11,
    7.6471637318198164e-13, 4.7794773323873853e-14, 2.8114572543455206e-15, 1.5619206968586225e-16,
    8.2206352466243295e-18, 4.1103176233121648e-19, 1.9572941063391263e-20, 8.8967913924505741e-22,
    3.8681701706306835e-23};

DEU_INLINE double within(double x, double limit) { return x > limit ? limit : (x < -limit ? -limit : x); }

DEU_INLINE double entire_exp(double x) {
  const double raised = x * LOG2E;
  return Double::exp2(raised < Double::LOWEST ? Double::LOWEST : raised).value;
}

// X = e^x·C(z), Y = t·e^x·S(z), and their derivatives by z.
// live_x, live_y: X and Y with what a cap holds fixed left out, as their derivatives need them.
struct Homogeneous {
  double X, Y, live_x, live_y, X_z, Y_z;
  double root, over_root;  // √z, of at least 1/32
  bool held;
};

DEU_INLINE Homogeneous homogeneous(double x, double z, double t, double m) {
  Homogeneous h;
  h.held = x > m;
  x = h.held ? m : x;
  h.root = std::sqrt(z > 0.03125 ? z : 0.03125);
  h.over_root = 1 / h.root;
  const bool above = z >= 1, below = z <= -1;

  // |z| < 1: power series
  const double zs = within(z, 1);
  double even = 0, odd = 0, odd_z = 0;
  DEU_UNROLL
  for (int j = 10; j >= 0; --j) {
    even = even * zs + OVER_FACTORIAL[2 * j];
    odd = odd * zs + OVER_FACTORIAL[2 * j + 1];
    odd_z = odd_z * zs + (j + 1) * OVER_FACTORIAL[2 * j + 3];
  }

  // z <= -1: sine and cosine
  const double w = std::sqrt(below ? -z : 1), over_w = 1 / w;
  double sine, cosine, unused;
  Double::sincos(w, 0.31830988618379067154, 0, &sine, &cosine, &unused);
  const double sinc = sine * over_w;
  even = below ? cosine : even;
  odd = below ? sinc : odd;
  odd_z = below ? (cosine - sinc) * (-0.5 * over_w * over_w) : odd_z;
  const double e = entire_exp(x);

  // z >= 1: two real exponentials, the growing one capped
  const double s = h.root > 1 ? h.root : 1, up = x + s;
  const bool full = up > 2 * m;
  const double grown = entire_exp(full ? 2 * m : up), shrunk = entire_exp(x - s), live = full ? 0 : grown;
  const double over_2s = 0.5 * (h.root > 1 ? h.over_root : 1);
  const double real_y = t * (grown - shrunk) * over_2s;

  h.X = above ? (grown + shrunk) / 2 : e * even;
  h.Y = above ? real_y : t * e * odd;
  h.live_x = above ? (live + shrunk) / 2 : h.X;
  h.live_y = above ? t * (live - shrunk) * over_2s : h.Y;
  h.X_z = above ? (live - shrunk) * over_2s / 2 : e * odd / 2;
  h.Y_z = above ? (t * (live + shrunk) - 2 * real_y) * over_2s * over_2s : t * e * odd_z;
  return h;
}

// U = ∫Y for t > 0 and its derivatives by α and κ, given those of X and Y.
struct Response {
  double U, U_alpha, U_kappa;
};

DEU_INLINE Response response(double x, double k, double z, double t, double alpha, double over_kappa,
                             const Homogeneous& h, double X_alpha, double Y_alpha, double X_kappa, double Y_kappa) {
  const bool tiny = std::fabs(k) < 0.03125 && std::fabs(x) < 0.25;
  const bool one_root = !tiny && z > 0.03125 && std::fabs(k) < 0.25 * (std::fabs(x) + h.root);
  const double over_t = 1 / (t > 0 ? t : 1);

  // Both roots near 0: Taylor's series by the ODE's recurrence, with its derivatives.
  const double xs = within(x, 0.25), ks = within(k, 0.03125);
  double before = 1, term = 2 * xs, before_x = 0, term_x = 2, before_k = 0, term_k = 0;
  double sum = 0.5, sum_x = 0, sum_k = 0;
  DEU_UNROLL
  for (int n = 3; n < 16; ++n) {
    sum += term * OVER_FACTORIAL[n];
    sum_x += term_x * OVER_FACTORIAL[n];
    sum_k += term_k * OVER_FACTORIAL[n];
    const double next = 2 * xs * term - ks * before;
    const double next_x = 2 * term + 2 * xs * term_x - ks * before_x;
    const double next_k = 2 * xs * term_k - before - ks * before_k;
    before = term, before_x = term_x, before_k = term_k;
    term = next, term_x = next_x, term_k = next_k;
  }

  // One root near 0, the other not.
  const double s = x < 0 ? -h.root : h.root, over_s = x < 0 ? -h.over_root : h.over_root;
  const double over_far = 1 / (x + s), near = within(k * over_far, 0.25);
  double phi = 0, phi_slope = 0;
  DEU_UNROLL
  for (int j = 10; j >= 0; --j) {
    phi = phi * near + OVER_FACTORIAL[j + 1];
    phi_slope = phi_slope * near + (j + 1) * OVER_FACTORIAL[j + 2];
  }
  const double split = (h.Y * over_t - phi) * over_far;
  const double turn = t * x * over_s, bend = t * t * over_s / 2;
  const double split_alpha = (Y_alpha * over_t - phi_slope * (t - turn) - split * (t + turn)) * over_far;
  const double split_kappa = (Y_kappa * over_t - phi_slope * bend + split * bend) * over_far;

  // Neither: the closed form.
  const double closed = (1 - h.X + alpha * h.Y) * over_kappa;
  const double closed_alpha = (-X_alpha + h.Y + alpha * Y_alpha) * over_kappa;
  const double closed_kappa = (-X_kappa + alpha * Y_kappa - closed) * over_kappa;

  const double t2 = t * t;
  Response out;
  out.U = tiny ? t2 * sum : (one_root ? t2 * split : closed);
  out.U_alpha = tiny ? t2 * t * sum_x : (one_root ? t2 * split_alpha : closed_alpha);
  out.U_kappa = tiny ? t2 * t2 * sum_k : (one_root ? t2 * split_kappa : closed_kappa);
  return out;
}

// A unit's value, its slope, and its derivatives by p = α, q = κ, A, B and G.
struct EntirePoint {
  double value, slope, by_p, by_q, by_A, by_B, by_G;
};

DEU_INLINE EntirePoint entire_point(const Unit<Double>& u, double t) {
  const double alpha = u.p, kappa = u.q;
  const double x = alpha * t, k = kappa * t * t, z = x * x - k;
  const Homogeneous h = homogeneous(x, z, t, u.inner_cap);
  const double moving = h.held ? 0 : 1;
  const double X_alpha = moving * t * h.live_x + 2 * alpha * t * t * h.X_z, X_kappa = -t * t * h.X_z;
  const double Y_alpha = moving * t * h.live_y + 2 * alpha * t * t * h.Y_z, Y_kappa = -t * t * h.Y_z;
  const double X_t = moving * alpha * h.live_x + (alpha * alpha - kappa) * h.live_y;
  const double Y_t = moving * alpha * h.live_y + h.live_x;
  const double F1 = h.X + alpha * h.Y;
  const double over_kappa = 1 / (kappa == 0 ? 1 : kappa);  // unused where κ is small
  const Response r = response(x, k, z, t, alpha, over_kappa, h, X_alpha, Y_alpha, X_kappa, Y_kappa);
  const double G = t > 0 ? u.G : 0;
  EntirePoint out;
  out.value = u.A * F1 + u.B * h.Y + G * r.U;
  out.slope = u.A * (X_t + alpha * Y_t) + u.B * Y_t + G * h.live_y;
  out.by_p = u.A * (X_alpha + h.Y + alpha * Y_alpha) + u.B * Y_alpha + G * r.U_alpha;
  out.by_q = u.A * (X_kappa + alpha * Y_kappa) + u.B * Y_kappa + G * r.U_kappa;
  out.by_A = F1;
  out.by_B = h.Y;
  out.by_G = t > 0 ? r.U : 0;
  return out;
}

template <class W>
static void forward_entire(const Unit<Double>& unit, const W* t, W* y, int count) {
  const Unit<Double> u = unit;
  DEU_SIMD
  for (int i = 0; i < count; ++i) {
    const double x = t[i];
    narrow(bounded(entire_point(u, capped(x, u.stop)).value, u.bound), y + i);
  }
}

template <class W>
static void backward_entire(const Unit<Double>& unit, const W* t, const W* g, W* grad_t, int count, double* sums) {
  const Unit<Double> u = unit;
  double sp = 0, sq = 0, sA = 0, sB = 0, sG = 0, stopped = 0;
  DEU_SIMD_SUM(sp, sq, sA, sB, sG, stopped)
  for (int i = 0; i < count; ++i) {
    const double x = t[i];
    const bool beyond = x > u.stop;
    const EntirePoint point = entire_point(u, beyond ? u.stop : x);
    const double gi = g[i], moved = gi * point.slope;
    sp += gi * point.by_p;
    sq += gi * point.by_q;
    sA += gi * point.by_A;
    sB += gi * point.by_B;
    sG += gi * point.by_G;
    narrow(beyond ? 0 : moved, grad_t + i);
    stopped += beyond ? moved : 0;
  }
  if (stopped != 0) sp += stopped * (-u.stop / u.alpha);
  sums[p_] += sp;
  sums[q_] += sq;
  sums[A_] += sA;
  sums[B_] += sB;
  sums[G_] += sG;
}
