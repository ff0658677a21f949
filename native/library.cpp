// What Python asks the library itself before it uses it. Compiled for any CPU: it must run where the rest cannot.
#include "exports.h"
#include "team.h"

namespace ibidem {
Team team;
}

// Raised with every change of an exported function: a library of another build is never called.
IBIDEM_EXPORT int ibidem_interface() { return 12; }

// Whether this CPU and its system have the instructions of a build.
IBIDEM_EXPORT int ibidem_supported_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}
// Half-precision loads (F16C) came before AVX2 and are in every CPU that has it; not every compiler can ask for them.
IBIDEM_EXPORT int ibidem_supported_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

IBIDEM_EXPORT void ibidem_use_team(void* parallel, void* number, void* count) {
  ibidem::team.parallel = reinterpret_cast<decltype(ibidem::Team::parallel)>(parallel);
  ibidem::team.number = reinterpret_cast<decltype(ibidem::Team::number)>(number);
  ibidem::team.count = reinterpret_cast<decltype(ibidem::Team::count)>(count);
}
