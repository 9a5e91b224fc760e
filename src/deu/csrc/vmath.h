// Elementary functions as plain branch-free code that compilers vectorise.
// The polynomials interpolate at Chebyshev nodes; their errors are below 2e-8 (Single),
// 3e-11 (Medium) and 1e-18 (Double).
// Included inside a namespace of its own for each instruction set.

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__AVX2__)
#define DEU_HAS_FMA 1
#else
#define DEU_HAS_FMA 0
#endif

// The smaller one; NaN stays NaN.
template <class T>
DEU_INLINE T capped(T x, T cap) {
  return x > cap ? cap : x;
}

constexpr double LOG2E = 1.44269504088896341;

// 2^x.  With n the nearest integer to x and r = x - n, 2^r = 1 + r·first and first = ln 2 + r·second.
template <class T>
struct Power {
  T value, less_one;  // 2^x - 1 with all its digits
  T first, second;
  bool near;          // n is 0
};

// Each of the three structs is one precision of arithmetic.

struct Single {
  using T = float;
  using Int = int32_t;
  static constexpr float MAGIC = 12582912.0f;  // 1.5·2^23: adding it rounds to an integer
  static constexpr float BIASED = MAGIC + 127;  // and so does this, with 2^n's exponent in the last bits
  static constexpr float LOWEST = -125.0f;      // 2^LOWEST is still a normal number

  // 2^x for LOWEST <= x.
  DEU_INLINE Power<float> exp2(float x) {
    const float shifted = x + BIASED;
    const float r = x - (shifted - BIASED);
    const float r2 = r * r;
    const float low = 0.0555038101379645743f * r + 0.240226506959100712f;
    const float high = 0.00133813025373207962f * r + 0.00961810325303187041f;
    const float second = (0.000154448839531449266f * r2 + high) * r2 + low;
    const float first = second * r + 0.693147180559945309f;
    const float y = first * r;
    const float scale = bits<float>(bits<uint32_t>(shifted) << 23);
    return {y * scale + scale, y * scale + (scale - 1.0f), first, second, scale == 1.0f};
  }

  // sin, cos and cos - 1 of π·(hi + lo)·t, the angle reduced before digits are lost.
  DEU_INLINE void sincos(float t, float hi, float lo, float* sine, float* cosine, float* cosine_less_one) {
#if DEU_HAS_FMA
    const float shifted = fmaf(t, hi, MAGIC);
    const float n = shifted - MAGIC;
    const float r = fmaf(t, lo, fmaf(t, hi, -n));
    const Int parity = bits<Int>(shifted);
#else
    const double product = static_cast<double>(t) * (static_cast<double>(hi) + lo);
    const double shifted = product + 6755399441055744.0;
    const float r = static_cast<float>(product - (shifted - 6755399441055744.0));
    const Int parity = static_cast<Int>(bits<int64_t>(shifted));
#endif
    const float u = capped(r * r, 0.25f);  // beyond 2^22 half turns no digit of the angle is left
    const float u2 = u * u;
    const float s_low = -5.16770998999317666f * u + 3.1415926395324357f;
    const float s_mid = -0.59827503101047977f * u + 2.55007531684485385f;
    const float s = (0.0776209174109541562f * u2 + s_mid) * u2 + s_low;
    const float c_low = 4.05871139183088489f * u - 4.93480219684338647f;
    const float c_mid = 0.235070312126060475f * u - 1.33523941492895673f;
    const float c = ((-0.0246178817364324038f * u2 + c_mid) * u2 + c_low) * u;
    const Int sign = static_cast<Int>(static_cast<uint32_t>(parity) << 31);
    *sine = bits<float>(bits<Int>(s * r) ^ sign);
    *cosine = bits<float>(bits<Int>(c + 1.0f) ^ sign);
    *cosine_less_one = sign == 0 ? c : *cosine - 1.0f;
  }

  // scale·σ'(2z) = scale/(2 cosh z)², by the series of cosh: off by less than 2e-9·scale, or, if
  // ROUGH, by less than 8e-8·scale, and by nothing at 0.
  template <bool ROUGH>
  DEU_INLINE float bump(float z, float scale) {
    const float w = z * z;
    const float w2 = w * w;
    const float low = 1.0f / 2 * w + 1.0f;
    const float mid = 1.0f / 720 * w + 1.0f / 24;
    const float high = 1.0f / 3628800 * w + 1.0f / 40320;
    const float top = ROUGH ? 1.0f / 479001600
                            : (1.0f / 20922789888000.0f * w + 1.0f / 87178291200.0f) * w + 1.0f / 479001600;
    const float c = ((top * w2 + high) * w2 + mid) * w2 + low;
    return 0.25f * scale / (c * c);
  }
};

struct Double {
  using T = double;
  using Int = int64_t;
  static constexpr double MAGIC = 6755399441055744.0;  // 1.5·2^52
  static constexpr double BIASED = MAGIC + 1023;
  static constexpr double LOWEST = -1021.0;

  DEU_INLINE Power<double> exp2(double x) {
    const double shifted = x + BIASED;
    const double r = x - (shifted - BIASED);
    double y = 2.5729334365063256871e-11;
    y = y * r + 4.4558199665721413479e-10;
    y = y * r + 7.0548972984244248626e-9;
    y = y * r + 1.0178057076155389805e-7;
    y = y * r + 1.3215486808716706477e-6;
    y = y * r + 0.000015252733841579288376;
    y = y * r + 0.00015403530393370723602;
    y = y * r + 0.0013333558146406452119;
    y = y * r + 0.0096181291076284802398;
    y = y * r + 0.055504108664821624356;
    const double second = y * r + 0.24022650695910071233;
    const double first = second * r + 0.69314718055994530942;
    y = first * r;
    const double scale = bits<double>(bits<uint64_t>(shifted) << 52);
    return {y * scale + scale, y * scale + (scale - 1.0), first, second, scale == 1.0};
  }

  DEU_INLINE void sincos(double t, double hi, double lo, double* sine, double* cosine, double* cosine_less_one) {
    const double product = t * (hi + lo);
    const double shifted = product + MAGIC;
    const double r = product - (shifted - MAGIC);
    const double u = capped(r * r, 0.25);  // beyond 2^51 half turns no digit of the angle is left
    double s = 7.69582443098615584e-7;
    s = s * u - 0.0000219033085860845563;
    s = s * u + 0.00046629974442694022;
    s = s * u - 0.00737043049176228686;
    s = s * u + 0.0821458865715653603;
    s = s * u - 0.599264529318854615;
    s = s * u + 2.5501640398772979;
    s = s * u - 5.16771278004996958;
    s = s * u + 3.14159265358979324;
    double c = -1.3475900683248174e-7;
    c = c * u + 4.30117402973045197e-6;
    c = c * u - 0.000104637623036595657;
    c = c * u + 0.00192957423793749249;
    c = c * u - 0.0258068913837850977;
    c = c * u + 0.235330630358588145;
    c = c * u - 1.33526276885458201;
    c = c * u + 4.05871212641676815;
    c = c * u - 4.93480220054467931;
    c = c * u;
    const Int sign = static_cast<Int>(static_cast<uint64_t>(bits<Int>(shifted)) << 63);
    *sine = bits<double>(bits<Int>(s * r) ^ sign);
    *cosine = bits<double>(bits<Int>(c + 1.0) ^ sign);
    *cosine_less_one = sign == 0 ? c : *cosine - 1.0;
  }

  template <bool ROUGH>
  DEU_INLINE double bump(double z, double scale) {
    double x = -2.0 * LOG2E * (z < 0 ? -z : z);
    x = x < LOWEST ? LOWEST : x;
    const double e = exp2(x).value;
    const double r = 1.0 / (1.0 + e);
    return scale * e * r * r;
  }
};

// Arithmetic in float64 to twelve digits, for results that are rounded to float32.
struct Medium {
  using T = double;
  static constexpr double MAGIC = Double::MAGIC, BIASED = Double::BIASED, LOWEST = Double::LOWEST;

  DEU_INLINE Power<double> exp2(double x) {
    const double shifted = x + BIASED;
    const double r = x - (shifted - BIASED);
    const double r2 = r * r;
    const double low = 0.0555041088390961839 * r + 0.240226506959100712;
    const double mid = 0.00133335023861627707 * r + 0.00961812911970442601;
    const double high = 0.0000152973237607010741 * r + 0.000154034917547387844;
    const double second = ((1.32463871612216418e-6 * r2 + high) * r2 + mid) * r2 + low;
    const double first = second * r + 0.693147180559945309;
    const double y = first * r;
    const double scale = bits<double>(bits<uint64_t>(shifted) << 52);
    return {y * scale + scale, y * scale + (scale - 1.0), first, second, scale == 1.0};
  }

  DEU_INLINE void sincos(double t, double hi, double lo, double* sine, double* cosine, double* cosine_less_one) {
    const double product = t * (hi + lo);
    const double shifted = product + MAGIC;
    const double r = product - (shifted - MAGIC);
    const double u = capped(r * r, 0.25);
    const double u2 = u * u;
    const double s_low = -5.16771276396926879 * u + 3.14159265353352012;
    const double s_mid = -0.599251891214529217 * u + 2.55016329476198094;
    const double s_high = -0.00702562728294660936 * u + 0.0820488381095647527;
    const double s = (s_high * u2 + s_mid) * u2 + s_low;
    const double c_low = 4.05871212279223533 * u - 4.93480220053199528;
    const double c_mid = 0.235327782719896048 * u - 1.33526260092639967;
    const double c_high = 0.0018519862866265386 * u - 0.0257850335994132262;
    const double c = ((c_high * u2 + c_mid) * u2 + c_low) * u;
    const int64_t sign = static_cast<int64_t>(static_cast<uint64_t>(bits<int64_t>(shifted)) << 63);
    *sine = bits<double>(bits<int64_t>(s * r) ^ sign);
    *cosine = bits<double>(bits<int64_t>(c + 1.0) ^ sign);
    *cosine_less_one = sign == 0 ? c : *cosine - 1.0;
  }

  template <bool ROUGH>
  DEU_INLINE double bump(double z, double scale) {
    return Single::bump<false>(static_cast<float>(z), static_cast<float>(scale));
  }
};
