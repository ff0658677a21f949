// Checks that Python makes before it uses the library. Compiled for any CPU: it must run where the rest cannot.
#include "base/exports.h"
#include "base/parallel.h"

namespace ibidem {
OmpApi omp_api;
}

// Incremented with every change of an exported function, so that Python refuses a library of another version.
IBIDEM_EXPORT int ibidem_interface() { return 17; }

// Whether the CPU and the operating system support the instructions of a build.
IBIDEM_EXPORT int ibidem_supported_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}
// F16C is older than AVX2 and present in every CPU that has AVX2; not every compiler can test for it.
IBIDEM_EXPORT int ibidem_supported_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

IBIDEM_EXPORT void ibidem_use_omp(void* parallel, void* number, void* count) {
  ibidem::omp_api.parallel = reinterpret_cast<decltype(ibidem::OmpApi::parallel)>(parallel);
  ibidem::omp_api.number = reinterpret_cast<decltype(ibidem::OmpApi::number)>(number);
  ibidem::omp_api.count = reinterpret_cast<decltype(ibidem::OmpApi::count)>(count);
}
