// Writing an inverted file: regions, groups and centroids, and then keys that are in order into blocks with their guides.
#include <algorithm>
#include <vector>

#include "blocks.h"
#include "exports.h"
#include "guard.h"
#include "ivf.h"
#include "team.h"

namespace ibidem {
namespace {

// A block whose keys lie far from their mean is likelier to hold a near one than the distance of the mean tells: it is to
// seem nearer by this part of their mean square distance from it (docs/results/search.md).
constexpr float kNearer = 0.15f;
// Keeps the norms of blocks whose keys lie anywhere within halves; a dimension.
constexpr float kMostNearer = 4000.0f;

// The codes in a place of blocks as in codes.h.
void read_codes(const Coding& coding, const int8_t* blocks, int64_t place, float* codes) {
  const int8_t* bytes = blocks + place / kLanes * coding.block_bytes() + kNormBytes;
  for (int64_t i = 0; i < coding.dimension; ++i)
    codes[i] = bytes[(i / kGroup * kLanes + place % kLanes) * kGroup + i % kGroup];
}

// Put points [count, dimension] into places of blocks; bases: [blocks, dimension]; read: what they are read as, by place, or
// null.
void write_points(const Coding& coding, const float* points, int64_t count, const int64_t* places, const float* bases,
                  uint8_t* blocks, float* read, int threads) {
  const int64_t dimension = coding.dimension;
  share(threads, count, [&](int64_t begin, int64_t end) {
    std::vector<float> point(dimension);
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < dimension; ++j) point[j] = (points[i * dimension + j] - coding.mean[j]) * coding.scale;
      const int64_t block = places[i] / kLanes;
      write_point<kCoarseBits>(dimension, point.data(), bases + block * dimension, 0.0f,
                               blocks + block * block_bytes<kCoarseBits>(dimension), places[i] % kLanes);
      if (read != nullptr) std::copy(point.begin(), point.end(), read + places[i] * dimension);
    }
  });
}

template <class Key>
class Packer {
 public:
  Packer(const Ivf& ivf, uint8_t* guides, uint8_t* blocks)
      : ivf_(ivf),
        guides_(guides),
        blocks_(blocks),
        dimension_(ivf.coding.dimension),
        bytes_(block_bytes<kFineBits>(dimension_)),
        centroid_(dimension_),
        mean_(dimension_),
        rows_(kLanes * dimension_) {}

  // Writes the guides and the blocks of a list, which has so many.
  void pack(int64_t list, int64_t count) {
    read_centroid(ivf_, list, centroid_.data());
    const ListFacts& facts = ivf_.lists[list];
    for (int32_t guide = facts.first_guide; guide < facts.end_of_guides; ++guide)
      clear_block<kFineBits>(dimension_, guides_ + guide * bytes_);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t guide = facts.first_guide + i / kLanes;
      pack_block(facts.first_block + i, guides_ + guide * bytes_, i % kLanes);
    }
  }

 private:
  // Writes a block, and its mean into a lane of its guide.
  void pack_block(int64_t block, uint8_t* guide, int64_t guide_lane) {
    uint8_t* target = blocks_ + block * bytes_;
    clear_block<kFineBits>(dimension_, target);
    int64_t lanes[kLanes], count = 0;
    std::fill(mean_.begin(), mean_.end(), 0.0f);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const int32_t slot = ivf_.slots[block * kLanes + lane];
      if (slot < 0) continue;
      float* row = rows_.data() + count * dimension_;
      read(slot, row);
      for (int64_t i = 0; i < dimension_; ++i) mean_[i] += row[i];
      lanes[count++] = lane;
    }
    if (count == 0) return;
    for (float& one : mean_) one /= static_cast<float>(count);
    float square = 0;
    for (int64_t i = 0; i < count * dimension_; ++i) {
      const float left = rows_[i] - mean_[i % dimension_];
      square += left * left;
    }
    const float most = kMostNearer * static_cast<float>(dimension_);
    const float nearer = std::min(most, kNearer * square / static_cast<float>(count));
    write_point<kFineBits>(dimension_, mean_.data(), centroid_.data(), nearer, guide, guide_lane);
    for (int64_t row = 0; row < count; ++row)
      write_point<kFineBits>(dimension_, rows_.data() + row * dimension_, mean_.data(), -nearer, target, lanes[row]);
  }

  // The key in a slot, in units of codes.
  void read(int64_t slot, float* row) const {
    const Key* key = static_cast<const Key*>(ivf_.keys) + slot * dimension_;
    for (int64_t i = 0; i < dimension_; ++i) row[i] = (number(key[i]) - ivf_.coding.mean[i]) * ivf_.coding.scale;
  }
  static float number(float x) { return x; }
  static float number(uint16_t x) { return from_half(x); }

  const Ivf& ivf_;
  uint8_t *guides_, *blocks_;
  int64_t dimension_, bytes_;
  std::vector<float> centroid_, mean_, rows_;
};

template <class Key>
void pack_all(const Ivf& ivf, const int32_t* offsets, uint8_t* guides, uint8_t* blocks, int threads) {
  deal(threads, ivf.regions * kLanes * kLanes, [&] {
    return [&, packer = Packer<Key>(ivf, guides, blocks)](int64_t list) mutable {
      if (offsets[list] < offsets[list + 1]) packer.pack(list, offsets[list + 1] - offsets[list]);
    };
  });
}

}  // namespace

void read_centroid(const Ivf& ivf, int64_t list, float* centroid) {
  const int64_t group = list / kLanes, region = group / kLanes, bytes = block_bytes<kCoarseBits>(ivf.coding.dimension);
  read_codes(ivf.coding, ivf.region_blocks, region, centroid);
  read_point<kCoarseBits>(ivf.coding.dimension, ivf.group_blocks + region * bytes, group % kLanes, centroid);
  read_point<kCoarseBits>(ivf.coding.dimension, ivf.centroid_blocks + group * bytes, list % kLanes, centroid);
}

}  // namespace ibidem

// A tree of centroids: regions, groups and centroids, [count, dimension] each, groups and centroids with their places in the
// blocks. 0 where there is no room.
IBIDEM_EXPORT int ibidem_ivf_pack_tree(const ibidem::Coding* coding, const float* regions, int64_t region_count,
                                       const float* groups, const int64_t* group_places, int64_t group_count,
                                       const float* centroids, const int64_t* centroid_places, int64_t centroid_count,
                                       int8_t* region_blocks, uint8_t* group_blocks, uint8_t* centroid_blocks, int threads) {
  using namespace ibidem;
  return guard([&] {
    const int64_t dimension = coding->dimension, bytes = block_bytes<kCoarseBits>(dimension);
    std::vector<float> region_bases(region_count * dimension), group_bases(region_count * kLanes * dimension);
    Coded code;
    for (int64_t i = 0; i < region_count; ++i) {
      code.set(*coding, regions + i * dimension);
      code.write(*coding, region_blocks + i / kLanes * coding->block_bytes(), i % kLanes);
      read_codes(*coding, region_blocks, i, region_bases.data() + i * dimension);
    }
    for (int64_t i = 0; i < region_count; ++i) clear_block<kCoarseBits>(dimension, group_blocks + i * bytes);
    for (int64_t i = 0; i < region_count * kLanes; ++i) clear_block<kCoarseBits>(dimension, centroid_blocks + i * bytes);
    write_points(*coding, groups, group_count, group_places, region_bases.data(), group_blocks, group_bases.data(), threads);
    write_points(*coding, centroids, centroid_count, centroid_places, group_bases.data(), centroid_blocks, nullptr, threads);
    return 1;
  });
}

// The guides and blocks of all lists, whose keys are in their slots and these in their places; offsets: [lists + 1], in blocks. 0 where
// there is no room.
IBIDEM_EXPORT int ibidem_ivf_pack_lists(const ibidem::Ivf* ivf, const int32_t* offsets, uint8_t* guides, uint8_t* blocks,
                                        int threads) {
  using namespace ibidem;
  return guard([&] {
    (ivf->key_bytes == 2 ? pack_all<uint16_t> : pack_all<float>)(*ivf, offsets, guides, blocks, threads);
    return 1;
  });
}
