#include "base/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>

namespace ibidem {
namespace {

constexpr size_t kCacheLine = 64, kHugePage = size_t{2} << 20;

size_t round_up(size_t bytes, size_t unit) { return (std::max<size_t>(bytes, 1) + unit - 1) / unit * unit; }

}  // namespace

void* allocate(size_t bytes) {
  if constexpr (kSanitized) {
    void* memory = nullptr;
    if (posix_memalign(&memory, kCacheLine, std::max<size_t>(bytes, 1)) != 0) throw std::bad_alloc();
    return memory;
  }
  const size_t unit = bytes < kHugePage ? kCacheLine : kHugePage, whole = round_up(bytes, unit);
  void* memory = std::aligned_alloc(unit, whole);
  if (memory == nullptr) throw std::bad_alloc();
  // A hint: without huge pages the system uses small ones.
  if (unit == kHugePage) madvise(memory, whole, MADV_HUGEPAGE);
  return memory;
}

std::shared_ptr<char> allocate_shared_pages(size_t bytes) {
  if constexpr (kSanitized) return {static_cast<char*>(allocate(bytes)), std::free};
  static std::mutex mutex;
  static std::shared_ptr<char> pages;  // the newest ones; older ones belong to the buffers in them
  static size_t size = 0, used = 0;
  const std::lock_guard<std::mutex> lock(mutex);
  const size_t whole = round_up(bytes, kCacheLine);
  if (whole > size - used) {
    const size_t wanted = round_up(whole, kHugePage);
    pages.reset(static_cast<char*>(allocate(wanted)), std::free);
    size = wanted;
    used = 0;
  }
  const std::shared_ptr<char> part(pages, pages.get() + used);
  used += whole;
  return part;
}

}  // namespace ibidem
