// Writing an inverted file: regions, groups and centroids, and then the blocks of ordered keys and their means.
#include <algorithm>
#include <vector>

#include "base/exports.h"
#include "base/noexcept_call.h"
#include "base/parallel.h"
#include "index/blocks.h"
#include "index/ivf.h"

namespace ibidem {
namespace {

// A block whose keys lie far from their mean is likelier to hold a near key than the distance of the mean shows, so that
// distance is lowered by this part of the keys' mean squared distance from it (docs/results/search.md).
constexpr float kNearer = 0.15f;
// Limits that correction, per dimension, so that norms fit into float16.
constexpr float kMostNearer = 4000.0f;

// Reads the codes in a place of blocks as in codes.h.
void read_codes(const Coding& coding, const int8_t* blocks, int64_t place, float* codes) {
  const int8_t* bytes = blocks + place / kLanes * coding.block_bytes() + kNormBytes;
  for (int64_t i = 0; i < coding.dimension; ++i) codes[i] = bytes[(i / kQuad * kLanes + place % kLanes) * kQuad + i % kQuad];
}

// Writes points [count, dimension] into places of blocks; bases: [blocks, dimension]; decoded: the decoded points by place, or
// null.
void write_points(const Coding& coding, const float* points, int64_t count, const int64_t* places, const float* bases,
                  uint8_t* blocks, float* decoded, int threads) {
  const int64_t dimension = coding.dimension;
  parallel_for(threads, count, [&](int64_t begin, int64_t end) {
    std::vector<float> point(dimension);
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < dimension; ++j) point[j] = (points[i * dimension + j] - coding.mean[j]) * coding.scale;
      const int64_t block = places[i] / kLanes;
      write_point<kCoarseBits>(dimension, point.data(), bases + block * dimension, 0.0f,
                               blocks + block * block_bytes<kCoarseBits>(dimension), places[i] % kLanes);
      if (decoded != nullptr) std::copy(point.begin(), point.end(), decoded + places[i] * dimension);
    }
  });
}

class Packer {
 public:
  Packer(const Ivf& ivf, uint8_t* block_means, uint8_t* blocks)
      : ivf_(ivf),
        block_means_(block_means),
        blocks_(blocks),
        dimension_(ivf.coding.dimension),
        bytes_(block_bytes<kFineBits>(dimension_)),
        centroid_(dimension_),
        mean_(dimension_),
        rows_(kLanes * dimension_) {}

  // Writes the `count` blocks of a list and their means.
  void pack(int64_t list, int64_t count) {
    read_centroid(ivf_, list, centroid_.data());
    const ListInfo& info = ivf_.lists[list];
    for (int32_t means = info.first_means; means < info.end_means; ++means)
      clear_block<kFineBits>(dimension_, block_means_ + means * bytes_);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t means = info.first_means + i / kLanes;
      pack_block(info.first_block + i, block_means_ + means * bytes_, i % kLanes);
    }
  }

 private:
  // Writes a block, and its mean into a lane of a block of means.
  void pack_block(int64_t block, uint8_t* means, int64_t means_lane) {
    uint8_t* target = blocks_ + block * bytes_;
    clear_block<kFineBits>(dimension_, target);
    int64_t lanes[kLanes], count = 0;
    std::fill(mean_.begin(), mean_.end(), 0.0f);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const int32_t entry = ivf_.entries[block * kLanes + lane];
      if (entry < 0) continue;
      float* row = rows_.data() + count * dimension_;
      ivf_.keys.read(entry, row);
      for (int64_t i = 0; i < dimension_; ++i) {
        row[i] = (row[i] - ivf_.coding.mean[i]) * ivf_.coding.scale;
        mean_[i] += row[i];
      }
      lanes[count++] = lane;
    }
    if (count == 0) return;
    for (float& one : mean_) one /= static_cast<float>(count);
    float square = 0;
    for (int64_t i = 0; i < count * dimension_; ++i) {
      const float difference = rows_[i] - mean_[i % dimension_];
      square += difference * difference;
    }
    const float most = kMostNearer * static_cast<float>(dimension_);
    const float nearer = std::min(most, kNearer * square / static_cast<float>(count));
    write_point<kFineBits>(dimension_, mean_.data(), centroid_.data(), nearer, means, means_lane);
    for (int64_t row = 0; row < count; ++row)
      write_point<kFineBits>(dimension_, rows_.data() + row * dimension_, mean_.data(), -nearer, target, lanes[row]);
  }

  const Ivf& ivf_;
  uint8_t *block_means_, *blocks_;
  int64_t dimension_, bytes_;
  std::vector<float> centroid_, mean_, rows_;
};

void pack_all(const Ivf& ivf, const int32_t* offsets, uint8_t* block_means, uint8_t* blocks, int threads) {
  parallel_dynamic(threads, ivf.regions * kLanes * kLanes, [&] {
    return [&, packer = Packer(ivf, block_means, blocks)](int64_t list) mutable {
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

// Writes the tree of regions, groups and centroids, [count, dimension] each; groups and centroids come with their places in
// the blocks. Returns 0 when out of memory.
IBIDEM_EXPORT int ibidem_ivf_pack_tree(const ibidem::Coding* coding, const float* regions, int64_t region_count,
                                       const float* groups, const int64_t* group_places, int64_t group_count,
                                       const float* centroids, const int64_t* centroid_places, int64_t centroid_count,
                                       int8_t* region_blocks, uint8_t* group_blocks, uint8_t* centroid_blocks, int threads) {
  using namespace ibidem;
  return noexcept_call([&] {
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

// Writes the blocks and the block means of all lists, from the entries and keys of the index; offsets: [lists + 1], in blocks.
// Returns 0 when out of memory.
IBIDEM_EXPORT int ibidem_ivf_pack_lists(const ibidem::Ivf* ivf, const int32_t* offsets, uint8_t* block_means, uint8_t* blocks,
                                        int threads) {
  using namespace ibidem;
  return noexcept_call([&] {
    pack_all(*ivf, offsets, block_means, blocks, threads);
    return 1;
  });
}
