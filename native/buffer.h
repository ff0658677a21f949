// Room for numbers, at the beginning of a cache line.
#pragma once

#include <cstdlib>
#include <memory>

#include "sanitized.h"

namespace ibidem {

// So many bytes or a few more, in large pages where they fill one; to be freed with std::free.
void* allocate(size_t bytes);
// So many bytes, beside others that were asked for before, all in large pages.
std::shared_ptr<char> keep(size_t bytes);

// Fixed room; what is in it is not set.
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

// The same for what lives long and is read at every step, as weights are. They share few pages, so that the CPU knows their
// addresses whatever else a step reads: a search alone touches a thousand pages.
template <class T>
class Kept {
 public:
  explicit Kept(size_t count) : data_(keep(count * sizeof(T))) {}

  T* get() const { return reinterpret_cast<T*>(data_.get()); }
  T& operator[](size_t i) const { return get()[i]; }

 private:
  std::shared_ptr<char> data_;
};

// Room that grows when more is asked for, and never shrinks; growing forgets what was in it.
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
