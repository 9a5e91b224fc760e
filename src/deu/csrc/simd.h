// What tells compilers to vectorise a loop, and what else they have no standard word for.
#pragma once

#if defined(_MSC_VER) && !defined(__clang__)
#define DEU_SIMD __pragma(loop(ivdep))
#define DEU_INDEPENDENT __pragma(loop(ivdep))
#define DEU_SIMD_SUM(...)
#define DEU_UNROLL
#define DEU_RESTRICT __restrict
#define DEU_PREFETCH(place)
#else
#define DEU_PRAGMA(text) _Pragma(#text)
#define DEU_SIMD DEU_PRAGMA(omp simd)
#if defined(__clang__)
#define DEU_INDEPENDENT DEU_PRAGMA(clang loop vectorize(assume_safety))
#define DEU_UNROLL DEU_PRAGMA(unroll)
#else
// Unlike DEU_SIMD it leaves a whole struct that a loop makes to be taken apart.
#define DEU_INDEPENDENT DEU_PRAGMA(GCC ivdep)
#define DEU_UNROLL DEU_PRAGMA(GCC unroll 16)
#endif
#define DEU_RESTRICT __restrict__
#define DEU_PREFETCH(place) __builtin_prefetch(place)
#define DEU_SIMD_SUM(...) DEU_PRAGMA(omp simd reduction(+ : __VA_ARGS__))
#endif
