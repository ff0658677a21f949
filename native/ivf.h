// An inverted file: keys in lists of centroids near them, and in a list close keys in one block. A key has a place in two
// lists, so that it is found if either is looked into. What is read on the way to a key is a tree of blocks (blocks.h), whose
// points are the bases of the blocks below: regions of groups of lists of blocks of keys.
#pragma once

#include <cstdint>

#include "codes.h"

namespace ibidem {

// Components of a key, which is stored as floats or as halves.
inline Floats load_key(const float* key) { return load(key); }
inline Floats load_key(const uint16_t* key) { return load_half(key); }

// What is to be known of a list before its keys are read, in one place.
struct ListFacts {
  int32_t first_block;  // of its keys
  int32_t first_guide, end_of_guides;
};

// The arrays of an index, wherever they lie; the layout is that of native/ivf.py. A region is a block of groups, a group one
// of centroids, and list i is that of the centroid in place i, so some lists are of no centroid and empty. A guide is a
// block of the means of sixteen blocks of keys, and may tell that these are nearer than they are; the keys make up for it.
struct Ivf {
  Coding coding;
  int64_t regions;
  const int8_t* region_blocks;     // codes.h: of the centres of regions
  const uint8_t* group_blocks;     // [regions], blocks.h: of the centres of groups, as all below
  const uint8_t* centroid_blocks;  // [16 x regions]
  const ListFacts* lists;          // [16 x 16 x regions]
  const uint8_t* guides;           // those of a list in its order
  const uint8_t* blocks;           // of keys
  const int32_t* slots;            // [16 x blocks], where the key of each place stands, -1 where there is none
  const int32_t* entries;          // [keys], the number of each
  const void* keys;                // [keys, dimension], halves or floats
  int64_t key_bytes;               // 2 or 4: of a component
};

// The centroid of a list as it is read, in units of codes.
void read_centroid(const Ivf& ivf, int64_t list, float* centroid);

struct SearchSettings {
  int64_t k;
  int64_t probes;  // the most lists whose guides are asked, and those as near as the last of them
  int64_t pool;    // candidates by codes that are measured exactly, at least k
  float patience;  // lists farther than this times the worst of the pool are passed over
  float block_patience;  // and so are blocks
  int64_t groups;  // the most groups of centroids that are looked into, and those as near as the last of them
};

// Queries [count, dimension], so many together of one sentence, and what is found for them, [count, k].
struct Queries {
  const float* queries;
  int64_t count, together;
  float* distances;
  int64_t* entries;
};

// What is asked of an index, and by whom, and what comes of it: work for the threads that search, before, between and after.
class Inquiry {
 public:
  virtual ~Inquiry() = default;
  // A thread's part of making the queries. Whether all are there now, which is told to one of the threads alone.
  virtual bool make_queries() = 0;
  // A thread's part of what had better be done before searching.
  virtual void prepare() = 0;
  virtual bool briefly(int64_t query) = 0;
  // Something useful, for a thread that has to wait. Whether there was something.
  virtual bool pass_time() = 0;
  // The neighbours of a query are in their place, if it has any.
  virtual void found(int64_t query) = 0;
  // A thread's part of what comes of them, when there is nothing left to search for, though others may be searching still.
  virtual void conclude() = 0;
};

// How far is looked for those; inquiry: null where the queries are there and all are looked for alike. k is the same for all.
struct Brief {
  const SearchSettings* settings;
  Inquiry* inquiry;
};

// live: see ibidem_ivf_search.
void search(const Ivf& ivf, const SearchSettings& settings, const Brief& brief, const uint16_t* live, const Queries& queries,
            int threads);

}  // namespace ibidem
