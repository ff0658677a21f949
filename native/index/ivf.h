// The inverted file: keys in lists by nearest centroid, and in each list in blocks of 16 keys that lie close together.
//
// Each key is stored in two lists, so that a search finds it when it probes either of them. Above the lists is a tree of
// blocks (blocks.h): regions hold groups, groups hold centroids, and every point is coded relative to its parent.
#pragma once

#include <cstdint>

#include "index/codes.h"
#include "index/keys.h"

namespace ibidem {

// The offsets of a list. They lie side by side, so that reading them costs one cache miss.
struct ListInfo {
  int32_t first_block;  // of its keys
  int32_t first_means, end_means;
};

// The arrays of an index; the layout is that of ibidem/native/ivf.py, which owns them. A region is a block of groups, a group
// is a block of centroids, and list i belongs to the centroid in place i; lists of empty places are empty. A block of means
// holds the means of 16 blocks of keys. The distance to a mean is lowered by a part of the spread of the block's keys, and the
// keys' own norms make up for that (pack.cpp).
struct Ivf {
  Coding coding;
  int64_t regions;
  const int8_t* region_blocks;     // codes.h: centres of regions
  const uint8_t* group_blocks;     // [regions], blocks.h: centres of groups, as all below
  const uint8_t* centroid_blocks;  // [16 x regions]
  const ListInfo* lists;           // [16 x 16 x regions]
  const uint8_t* block_means;      // ordered by list
  const uint8_t* blocks;           // of keys
  const int32_t* entries;          // [16 x blocks], the entry in each place, -1 for an empty one
  Keys keys;
};

// Decodes the centroid of a list, in units of codes; centroid: [dimension].
void read_centroid(const Ivf& ivf, int64_t list, float* centroid);

// How many lists, blocks and keys a search reads. The layout is that of ibidem/native/ivf.py.
struct SearchSettings {
  int64_t k;
  int64_t nprobe;           // lists probed at most, and those at the distance of the last one
  int64_t rerank;           // candidates by codes whose exact distances are computed, at least k
  float prune_ratio;        // lists farther than prune_ratio x the worst candidate are skipped
  float block_prune_ratio;  // blocks farther than block_prune_ratio x the worst candidate are skipped
  int64_t groups;           // groups of centroids opened at most, and those at the distance of the last one
};

// Which settings a query is searched for with: none, the reduced or the full ones. As in ibidem/native/ivf.py.
enum class SearchMode : uint8_t { kSkip = 0, kReduced = 1, kFull = 2 };

}  // namespace ibidem
