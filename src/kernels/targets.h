// Which SIMD targets the kernels are compiled for: SSE4, AVX2+FMA and AVX-512 on x86, NEON on Arm, and Highway's portable fallback.
// Include before hwy/foreach_target.h.
#pragma once

// AVX3_DL differs from AVX3 only in operations that attention does not use; SSSE3 machines without SSE4 are gone. SVE's vectors have no
// size that the compiler knows, so there can be no arrays of them, nor tiles in registers by number: Arm machines with SVE run the NEON
// code.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
