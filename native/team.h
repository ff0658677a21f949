// Sharing work among the threads that torch already has.
//
// The library is built without OpenMP and has no threads of its own. Python hands it the entry points of the OpenMP
// that torch has loaded, so that one pool serves both and nothing is oversubscribed; without them it works alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace ibidem {

struct Team {
  // GOMP_parallel(function, data, threads, flags): the stable entry of libgomp, which LLVM's and Intel's have too.
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned) = nullptr;
  int (*number)() = nullptr;  // omp_get_thread_num
  int (*count)() = nullptr;   // omp_get_num_threads
};

extern Team team;

// Call work(number, count) on each of the threads.
template <class Work>
void gather(int threads, Work work) {
  if (threads <= 1 || team.parallel == nullptr) {
    work(0, 1);
    return;
  }
  team.parallel([](void* data) { (*static_cast<Work*>(data))(team.number(), team.count()); }, &work,
                static_cast<unsigned>(threads), 0);
}

// How many threads to wake, where each should have at least `least` of the work; a sleeping one costs microseconds.
inline int64_t threads_for(int64_t threads, int64_t work, int64_t least) {
  return std::max<int64_t>(1, std::min(threads, work / least));
}

// Call work(begin, end) for an even part of the items on each of the threads.
template <class Work>
void share(int64_t threads, int64_t items, Work work) {
  gather(static_cast<int>(std::min(threads, items)), [&](int number, int count) {
    const int64_t begin = items * number / count, end = items * (number + 1) / count;
    if (begin < end) work(begin, end);
  });
}

// Call make() once on each of the threads, and what it gives with every item that the thread takes.
template <class Make>
void deal(int64_t threads, int64_t items, Make make) {
  std::atomic<int64_t> next{0};
  gather(static_cast<int>(std::min(threads, items)), [&](int, int) {
    auto work = make();
    for (int64_t item = next++; item < items; item = next++) work(item);
  });
}

}  // namespace ibidem
