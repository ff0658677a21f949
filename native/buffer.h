// Room for numbers, at the beginning of a cache line.
#pragma once

#include <sys/mman.h>

#include <cstdlib>
#include <memory>
#include <new>

namespace ibidem {

// Fixed room; what is in it is not set.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t count) {
    const bool large = count * sizeof(T) >= kHugePage;
    const size_t alignment = large ? kHugePage : kCacheLine;
    const size_t bytes = (count * sizeof(T) + alignment - 1) / alignment * alignment;
    data_.reset(static_cast<T*>(std::aligned_alloc(alignment, bytes == 0 ? alignment : bytes)));
    if (data_ == nullptr) throw std::bad_alloc();
    // Weights are streamed from end to end at every step: large pages spare most of the address translation.
    if (large) madvise(data_.get(), bytes, MADV_HUGEPAGE);
  }

  T* get() const { return data_.get(); }
  T& operator[](size_t i) const { return data_.get()[i]; }

 private:
  static constexpr size_t kCacheLine = 64;
  static constexpr size_t kHugePage = size_t{2} << 20;
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T, Free> data_;
};

// Room that grows when more is asked for, and never shrinks; growing forgets what was in it.
template <class T>
class Scratch {
 public:
  T* of(size_t count) {
    if (count > count_) {
      buffer_ = Buffer<T>(count);
      count_ = count;
    }
    return buffer_.get();
  }

 private:
  Buffer<T> buffer_;
  size_t count_ = 0;
};

}  // namespace ibidem
