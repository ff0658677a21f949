// Names the instruction set that this build was compiled for; unlike library.cpp this file is compiled with its flags.
#include "base/exports.h"
#include "simd/simd.h"

IBIDEM_EXPORT const char* ibidem_instructions() { return ibidem::kInstructions; }
