// FEEDLINE_EACH_SIMD_LEVEL marks a function whose loops the compiler can vectorise. The function is then compiled once
// for each SIMD level, and the version for this CPU is chosen while the program is loaded.
#pragma once

// Under ThreadSanitizer and with clang the macro is empty, because they have trouble with functions that are chosen
// while the program is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define FEEDLINE_EACH_SIMD_LEVEL [[gnu::flatten, gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define FEEDLINE_EACH_SIMD_LEVEL
#endif
