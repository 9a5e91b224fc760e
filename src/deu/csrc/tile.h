// Copies between a tensor, however it lies, and rows: one channel each, its positions side by side.
// Included inside a namespace of its own for each instruction set.

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
