// Floating-point types in memory: bfloat16 and float16 as their bits, and how values reach them.
// Included inside a namespace of its own for each instruction set.

template <class To, class From>
DEU_INLINE To bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "bits() keeps the size");
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

// Narrow floating-point types, kept as their bits.

struct BFloat16 {
  uint16_t raw;
};
struct Half {
  uint16_t raw;
};

DEU_INLINE float widen(BFloat16 v) { return bits<float>(static_cast<uint32_t>(v.raw) << 16); }

DEU_INLINE float widen(Half v) {
  const uint32_t sign = static_cast<uint32_t>(v.raw & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(v.raw & 0x7fffu) << 13;
  const float scaled = bits<float>(rest) * 5.192296858534828e33f;  // 2^112: moves the exponent
  const uint32_t special = rest | 0x7f800000u;                     // infinity and NaN keep theirs
  const uint32_t finite = bits<uint32_t>(scaled);
  return bits<float>(sign | (rest >= 0x0f800000u ? special : finite));
}

DEU_INLINE float widen(float v) { return v; }
DEU_INLINE double widen(double v) { return v; }

// Rounding to nearest even; a finite value too large for the type becomes its largest.

DEU_INLINE void narrow(float v, BFloat16* out) {
  const float most = 3.3895313892515355e38f;
  v = v > most ? most : (v < -most ? -most : v);
  const uint32_t u = bits<uint32_t>(v);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  out->raw = static_cast<uint16_t>(v != v ? 0x7fc0u : rounded);
}

DEU_INLINE void narrow(float v, Half* out) {
  v = v > 65504.0f ? 65504.0f : (v < -65504.0f ? -65504.0f : v);
  const uint32_t u = bits<uint32_t>(v);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7fffffffu;
  // Below the smallest normal number, adding a constant lets the hardware do the rounding.
  const uint32_t tiny = bits<uint32_t>(bits<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (magnitude - 0x38000000u + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t h = magnitude < 0x38800000u ? tiny : normal;
  out->raw = static_cast<uint16_t>(sign | (v != v ? 0x7e00u : h));
}

DEU_INLINE void narrow(float v, float* out) { *out = v; }
DEU_INLINE void narrow(double v, double* out) { *out = v; }

DEU_INLINE void narrow(double v, float* out) {
  const double most = 3.4028234663852886e38;
  *out = static_cast<float>(v > most ? most : (v < -most ? -most : v));
}

template <class S>
DEU_INLINE void narrow(double v, S* out) {
  float single;
  narrow(v, &single);
  narrow(single, out);
}
