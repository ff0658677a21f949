// Memory for numbers, aligned to cache lines.
#pragma once

#include <cstdlib>
#include <memory>

#include "base/sanitized.h"

namespace ibidem {

// Allocates at least this many bytes, in huge pages where they fill one; to be freed with std::free.
void* allocate(size_t bytes);
// Allocates bytes from huge pages that are shared with earlier calls.
std::shared_ptr<char> allocate_shared_pages(size_t bytes);

// A fixed number of uninitialised elements.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t count) : data_(static_cast<T*>(allocate(count * sizeof(T)))) {}

  T* get() const { return data_.get(); }
  T& operator[](size_t i) const { return data_.get()[i]; }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T, Free> data_;
};

// The same for long-lived data that every step reads, such as weights. They share few pages, so that their address
// translations stay in the TLB although a search touches a thousand pages.
template <class T>
class HugePageBuffer {
 public:
  explicit HugePageBuffer(size_t count) : data_(allocate_shared_pages(count * sizeof(T))) {}

  T* get() const { return reinterpret_cast<T*>(data_.get()); }
  T& operator[](size_t i) const { return get()[i]; }

 private:
  std::shared_ptr<char> data_;
};

// A reusable buffer that grows and never shrinks; growing discards its contents.
template <class T>
class Scratch {
 public:
  T* of(size_t count) {
    if (count > count_ || kSanitized) {
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
