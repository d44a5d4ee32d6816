// Which SIMD targets the kernels are compiled for: SSE4, AVX2+FMA and AVX-512 on x86, NEON on Arm, and Highway's portable fallback.
// Include before hwy/foreach_target.h.
#pragma once

// AVX3_DL differs from AVX3 only in operations that attention does not use; SSSE3 machines without SSE4 are gone.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif
