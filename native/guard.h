// No exception crosses the C interface: what cannot be had is null or zero there.
#pragma once

#include <exception>

namespace ibidem {

template <class Work>
auto guard(Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace ibidem
