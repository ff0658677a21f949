// Checks the pool of candidates against a sort of everything that was offered to it; prints the number of pools.
#include "index/candidate_pool.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <vector>

using namespace ibidem;

namespace {

void require(bool condition, const char* what, int pool) {
  if (condition) return;
  std::fprintf(stderr, "pool %d: %s\n", pool, what);
  std::exit(1);
}

// The number of places that a pool may hold after settle(), as candidate_pool.h states it.
int64_t most(int64_t wanted) { return wanted + wanted / 2 + 64; }

void check(CandidatePool& pool, const std::map<int32_t, int32_t>& offered, int64_t wanted, int number) {
  std::vector<int32_t> distances;
  for (const auto& [place, distance] : offered) distances.push_back(distance);
  std::sort(distances.begin(), distances.end());
  const int64_t count = distances.size();
  std::map<int32_t, int32_t> held;
  int32_t farthest = 0;
  for (int64_t i = 0; i < pool.count(); ++i) {
    const auto found = offered.find(pool.place(i));
    require(found != offered.end(), "a place that was not offered", number);
    require(held.insert(*found).second, "a place twice", number);
    farthest = std::max(farthest, found->second);
  }
  require(pool.count() >= std::min(count, wanted), "fewer places than wanted", number);
  if (count < wanted) {
    require(pool.worst() == kFarthest, "a bound before the pool is full", number);
    return;
  }
  require(pool.count() <= most(wanted), "more places than fit", number);
  require(pool.worst() == farthest, "the bound is not the farthest distance", number);
  for (const auto& [place, distance] : offered)
    require(distance >= distances[wanted - 1] || held.count(place) == 1, "a nearer place was dropped", number);
}

}  // namespace

int main(int, char** arguments) {
  const int pools = std::atoi(arguments[1]);
  std::mt19937 random(std::atoi(arguments[2]));
  CandidatePool pool;
  for (int number = 0; number < pools; ++number) {
    const int64_t wanted = 1 + random() % (number % 4 == 0 ? 400 : 40);
    // Few distances make many equal ones, which a bound cannot separate.
    const int32_t range = number % 3 == 0 ? 5 : number % 3 == 1 ? 300 : 1 << 26;
    const int blocks = 1 + random() % 80;
    std::map<int32_t, int32_t> offered;
    pool.clear(wanted);
    for (int block = 0; block < blocks; ++block) {
      int32_t distances[kLanes];
      for (int32_t& distance : distances) distance = random() % range;
      const Bits some = random() % 5 == 0 ? static_cast<Bits>(random() % (1 << kLanes)) : kAllBits;
      const Bits lanes = below(load(distances), splat(pool.worst())) & some;
      for (int lane = 0; lane < kLanes; ++lane)
        if (some >> lane & 1) offered[block * kLanes + lane] = distances[lane];
      pool.add(block, load(distances), lanes);
      if (random() % 16 == 0) {
        pool.settle();
        check(pool, offered, wanted, number);
      }
    }
    pool.settle();
    check(pool, offered, wanted, number);
  }
  std::printf("%d pools\n", pools);
  return 0;
}
