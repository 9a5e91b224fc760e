// Functions that must become part of the loop that calls them, or the loop is not vectorised.
#pragma once

#if defined(_MSC_VER) && !defined(__clang__)
#define DEU_INLINED __forceinline
#else
#define DEU_INLINED inline __attribute__((always_inline))
#endif
#define DEU_INLINE static DEU_INLINED
