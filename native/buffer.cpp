#include "buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>

namespace ibidem {
namespace {

constexpr size_t kCacheLine = 64, kLargePage = size_t{2} << 20;

size_t round_up(size_t bytes, size_t unit) { return (std::max<size_t>(bytes, 1) + unit - 1) / unit * unit; }

}  // namespace

void* allocate(size_t bytes) {
  if constexpr (kSanitized) {
    void* room = nullptr;
    if (posix_memalign(&room, kCacheLine, std::max<size_t>(bytes, 1)) != 0) throw std::bad_alloc();
    return room;
  }
  const size_t unit = bytes < kLargePage ? kCacheLine : kLargePage, whole = round_up(bytes, unit);
  void* room = std::aligned_alloc(unit, whole);
  if (room == nullptr) throw std::bad_alloc();
  // A wish: where there are no large pages, small ones do.
  if (unit == kLargePage) madvise(room, whole, MADV_HUGEPAGE);
  return room;
}

std::shared_ptr<char> keep(size_t bytes) {
  if constexpr (kSanitized) return {static_cast<char*>(allocate(bytes)), std::free};
  static std::mutex mutex;
  static std::shared_ptr<char> pages;  // those begun last; the others belong to whoever has a part of them
  static size_t size = 0, used = 0;
  const std::lock_guard<std::mutex> lock(mutex);
  const size_t whole = round_up(bytes, kCacheLine);
  if (whole > size - used) {
    const size_t wanted = round_up(whole, kLargePage);
    pages.reset(static_cast<char*>(allocate(wanted)), std::free);
    size = wanted;
    used = 0;
  }
  const std::shared_ptr<char> room(pages, pages.get() + used);
  used += whole;
  return room;
}

}  // namespace ibidem
