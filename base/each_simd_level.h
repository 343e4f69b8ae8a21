// FEEDLINE_EACH_SIMD_LEVEL marks a function whose loops the compiler can vectorise. The function is then compiled once
// for each SIMD level, and the version for this CPU is chosen while the program is loaded.
#pragma once

// The macro is empty under ThreadSanitizer and with clang. Variants of a function are chosen by the dynamic loader
// (ifunc), which runs before ThreadSanitizer is initialised, and clang 14 does not support them in C++.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define FEEDLINE_EACH_SIMD_LEVEL [[gnu::flatten, gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define FEEDLINE_EACH_SIMD_LEVEL
#endif
