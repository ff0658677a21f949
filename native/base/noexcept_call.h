// Keeps exceptions inside the C interface: a call that throws returns null or zero.
#pragma once

#include <exception>

namespace ibidem {

template <class Work>
auto noexcept_call(Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace ibidem
