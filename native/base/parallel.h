// Parallel loops on torch's threads.
//
// The library is built without OpenMP and creates no threads. Python passes the entry points of the OpenMP library that torch
// has loaded, so that both use one thread pool. Without them all work runs on the calling thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace ibidem {

struct OmpApi {
  // GOMP_parallel(function, data, threads, flags): the stable entry point of libgomp, also found in LLVM's and Intel's.
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned) = nullptr;
  int (*number)() = nullptr;  // omp_get_thread_num
  int (*count)() = nullptr;   // omp_get_num_threads
};

extern OmpApi omp_api;

// Calls work(number, count) on each thread.
template <class Work>
void parallel_run(int threads, Work work) {
  if (threads <= 1 || omp_api.parallel == nullptr) {
    work(0, 1);
    return;
  }
  omp_api.parallel([](void* data) { (*static_cast<Work*>(data))(omp_api.number(), omp_api.count()); }, &work,
                   static_cast<unsigned>(threads), 0);
}

// The number of threads to use so that each has at least `least` units of work; waking a thread costs microseconds.
inline int64_t threads_for(int64_t threads, int64_t work, int64_t least) {
  return std::max<int64_t>(1, std::min(threads, work / least));
}

// Calls work(begin, end) with an equal part of the items on each thread.
template <class Work>
void parallel_for(int64_t threads, int64_t items, Work work) {
  parallel_run(static_cast<int>(std::min(threads, items)), [&](int number, int count) {
    const int64_t begin = items * number / count, end = items * (number + 1) / count;
    if (begin < end) work(begin, end);
  });
}

// Calls make() once on each thread, and the function that it returns with every item that the thread takes.
template <class Make>
void parallel_dynamic(int64_t threads, int64_t items, Make make) {
  std::atomic<int64_t> next{0};
  parallel_run(static_cast<int>(std::min(threads, items)), [&](int, int) {
    auto work = make();
    for (int64_t item = next++; item < items; item = next++) work(item);
  });
}

}  // namespace ibidem
