// Loops that the compiler turns into vector code, compiled for each level of SIMD and chosen while the program loads.
#pragma once

// ThreadSanitizer and clang have trouble with functions that are chosen while the program is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define FEEDLINE_EACH_SIMD_LEVEL [[gnu::flatten, gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define FEEDLINE_EACH_SIMD_LEVEL
#endif
