#include "data/loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <new>
#include <tuple>

#include "data/hdf5_file.h"
#include "test_files.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCountsAllocations = false;
static std::atomic<long> allocations{0};
#else
constexpr bool kCountsAllocations = true;
static std::atomic<long> allocations{0};
__attribute__((noinline)) void* operator new(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

namespace lockstep::data {
namespace {

using test::FileSpec;
using test::TempFolder;
using test::user_error;
using test::write_file;

class LoaderTest : public testing::Test {
 protected:
  ClassificationSet make(int64_t n, bool compressed = false) {
    FileSpec spec{.image_shape = {static_cast<hsize_t>(n), 4, 4, 1}};
    if (compressed) {
      spec.chunk = {std::min<hsize_t>(8, static_cast<hsize_t>(n)), 4, 4, 1};
      spec.creation = [](hid_t list) { H5Pset_deflate(list, 4), H5Pset_fletcher32(list); };
    }
    const std::string path = folder / ("set" + std::to_string(files++) + ".h5");
    write_file(path, spec);
    return ClassificationSet(path);
  }
  TempFolder folder;
  int files = 0;
};

/// All that a batch says, copied.
struct Seen {
  std::vector<uint64_t> rows;
  std::vector<int32_t> labels;
  std::vector<float> images;
  bool operator==(const Seen&) const = default;
};

Seen copy(const nn::Batch& b, int64_t floats = 16) {
  return {{b.samples, b.samples + b.count},
          {b.labels, b.labels + b.count},
          {b.images, b.images + b.count * floats}};
}

std::vector<Seen> take(Loader& loader, int batches, int64_t floats = 16) {
  std::vector<Seen> seen;
  for (int i = 0; i < batches; ++i) seen.push_back(copy(*loader.next(), floats));
  return seen;
}

constexpr TransformOptions kAugmented{.pad = 1, .flip = true};

TEST_F(LoaderTest, EverySampleOnceAnEpochAtAnyWorldAndN) {
  for (bool train : {true, false})
    for (bool compressed : {false, true})
      for (int64_t n : {1, 2, 5, 8, 37, 100}) {
        const ClassificationSet set = make(n, compressed);
        for (int64_t m : {1, 3, 8})
          for (auto [shards, devices] : {std::pair<int64_t, int64_t>{1, 1}, {8, 1}, {8, 2}, {8, 8}, {4, 4}}) {
            const Order order = make_order(set, m * shards, 3, train);
            std::vector<std::map<uint64_t, int>> epochs(2);
            for (int64_t d = 0; d < devices; ++d) {
              const int64_t a = shards / devices;
              Loader loader(set, order, {},
                            {.micro_batch = m,
                             .shards_per_step = shards,
                             .first_shard = d * a,
                             .num_shards = a,
                             .threads = static_cast<int>(d % 3),
                             .prefetch = 2,
                             .train = train});
              const int64_t batches = order.batches_per_epoch() * a;
              for (int64_t i = 0; i < batches * (train ? 2 : 1); ++i) {
                const nn::Batch* b = loader.next();
                ASSERT_NE(b, nullptr);
                const uint64_t epoch = static_cast<uint64_t>(i / batches);
                const int64_t first = i % batches / a * m * shards + (d * a + i % a) * m;
                for (int64_t k = 0; k < b->count; ++k) {
                  ++epochs[epoch][b->samples[k]];
                  ASSERT_EQ(b->labels[k], static_cast<int32_t>(b->samples[k] % 3));
                  ASSERT_EQ(b->images[k * 16 + 5], static_cast<float>(test::pixel(b->samples[k], 5) / 255.0));
                  ASSERT_EQ(order.row(epoch, static_cast<uint64_t>(first + k)), b->samples[k]);
                }
              }
              ASSERT_TRUE(train || loader.next() == nullptr);
            }
            for (int e = 0; e < (train ? 2 : 1); ++e) {
              ASSERT_EQ(epochs[static_cast<size_t>(e)].size(), static_cast<size_t>(n));
              for (auto [row, times] : epochs[static_cast<size_t>(e)]) ASSERT_EQ(times, 1) << "row " << row;
            }
          }
      }
}

TEST_F(LoaderTest, ShardsPastTheEndAreEmpty) {
  const ClassificationSet set = make(5);
  Loader loader(set, make_order(set, 8, 1, true), {},
                {.micro_batch = 2, .shards_per_step = 4, .num_shards = 4});
  std::vector<int64_t> counts;
  for (int i = 0; i < 4; ++i) counts.push_back(loader.next()->count);
  EXPECT_EQ(counts, (std::vector<int64_t>{2, 2, 1, 0}));
}

TEST_F(LoaderTest, DropLastLeavesThePartialBatchOut) {
  const ClassificationSet set = make(10);
  const Order order = make_order(set, 4, 1, true, true);
  Loader loader(set, order, {}, {.micro_batch = 4});
  for (uint64_t i = 0; i < 6; ++i) {
    const nn::Batch* b = loader.next();
    ASSERT_EQ(b->count, 4);
    EXPECT_EQ(b->samples[0], order.row(i / 2, i % 2 * 4));
  }
  const ClassificationSet small = make(3);
  EXPECT_NE(user_error([&] {
              Loader(small, make_order(small, 4, 1, true, true), {}, {.micro_batch = 4});
            }).find("'4'"),
            std::string::npos);
}

TEST_F(LoaderTest, SameFloatsAtAnyThreadCountAndPrefetch) {
  for (bool compressed : {false, true}) {
    const ClassificationSet set = make(53, compressed);
    const Order order = make_order(set, 12, 9, true);
    LoaderOptions options{.micro_batch = 6, .shards_per_step = 2, .num_shards = 2, .threads = 0};
    Loader reference(set, order, kAugmented, options);
    const std::vector<Seen> wanted = take(reference, 40);
    for (int threads : {1, 2, 5})
      for (int prefetch : {0, 1, 7}) {
        options.threads = threads, options.prefetch = prefetch;
        Loader loader(set, order, kAugmented, options);
        EXPECT_EQ(take(loader, 40), wanted) << threads << " threads, prefetch " << prefetch;
      }
  }
}

TEST_F(LoaderTest, ASampleLooksTheSameInAnyMicroBatchAndWorld) {
  const ClassificationSet set = make(48);
  const Order order = make_order(set, 8, 9, true);
  auto by_position = [&](int64_t m, int64_t devices) {
    std::map<std::pair<uint64_t, uint64_t>, std::vector<float>> images;  // by epoch and row
    const int64_t shards = 8 / m, a = shards / devices;
    for (int64_t d = 0; d < devices; ++d) {
      Loader loader(set, order, kAugmented,
                    {.micro_batch = m, .shards_per_step = shards, .first_shard = d * a, .num_shards = a});
      const int64_t batches = order.batches_per_epoch() * a;
      for (int64_t i = 0; i < 2 * batches; ++i) {
        const Seen seen = copy(*loader.next());
        for (size_t k = 0; k < seen.rows.size(); ++k)
          images[{static_cast<uint64_t>(i / batches), seen.rows[k]}] = {
              seen.images.begin() + static_cast<ptrdiff_t>(16 * k),
              seen.images.begin() + static_cast<ptrdiff_t>(16 * k + 16)};
      }
    }
    return images;
  };
  const auto wanted = by_position(8, 1);
  EXPECT_EQ(wanted.size(), 96u);
  EXPECT_EQ(by_position(2, 1), wanted);
  EXPECT_EQ(by_position(2, 4), wanted);
  EXPECT_EQ(by_position(1, 8), wanted);
}

TEST_F(LoaderTest, LargeImagesAreSharedAmongWorkersInOrder) {
  write_file(folder / "large.h5", {.image_shape = {9, 128, 128, 3}});
  const ClassificationSet set(folder / "large.h5");
  const Order order = make_order(set, 4, 2, true);
  Loader reference(set, order, kAugmented, {.micro_batch = 4, .threads = 0});
  Loader loader(set, order, kAugmented, {.micro_batch = 4, .threads = 3, .prefetch = 2});
  EXPECT_EQ(take(reference, 12, 128 * 128 * 3), take(loader, 12, 128 * 128 * 3));
}

TEST_F(LoaderTest, SeekGivesTheUninterruptedSequence) {
  for (int threads : {0, 2}) {
    const ClassificationSet set = make(29);
    const Order order = make_order(set, 8, 4, true);
    const LoaderOptions options{.micro_batch = 4, .shards_per_step = 2, .num_shards = 2, .threads = threads};
    Loader whole(set, order, kAugmented, options);
    const std::vector<Seen> all = take(whole, 24);  // 4 batches of 2 shards an epoch, 3 epochs
    for (Cursor at : {Cursor{0, 0}, Cursor{0, 3}, Cursor{1, 2}, Cursor{2, 0}}) {
      Loader resumed(set, order, kAugmented, options);
      take(resumed, 3);
      resumed.seek(at);
      const size_t skipped = (at.epoch * 4 + static_cast<uint64_t>(at.batch)) * 2;
      EXPECT_EQ(take(resumed, static_cast<int>(24 - skipped)),
                std::vector<Seen>(all.begin() + static_cast<ptrdiff_t>(skipped), all.end()));
    }
  }
}

TEST_F(LoaderTest, EvaluationEndsOnceAndSeekStartsItAnew) {
  const ClassificationSet set = make(7);
  Loader loader(set, make_order(set, 4, 0, false), {}, {.micro_batch = 4, .threads = 2, .train = false});
  for (int pass = 0; pass < 3; ++pass) {
    std::vector<uint64_t> rows;
    while (const nn::Batch* b = loader.next()) rows.insert(rows.end(), b->samples, b->samples + b->count);
    EXPECT_EQ(rows, (std::vector<uint64_t>{0, 1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(loader.next(), nullptr);
    loader.seek({});
  }
}

TEST_F(LoaderTest, ABatchStaysWholeUntilTheFollowingNext) {
  const ClassificationSet set = make(64);
  Loader loader(set, make_order(set, 8, 1, true), {}, {.micro_batch = 8, .threads = 3, .prefetch = 3});
  for (int i = 0; i < 50; ++i) {
    const nn::Batch& b = *loader.next();
    const Seen before = copy(b);
    for (int spin = 0; spin < 2000; ++spin) std::atomic_signal_fence(std::memory_order_seq_cst);
    ASSERT_EQ(copy(b), before);
    ASSERT_GE(reinterpret_cast<const std::byte*>(b.images), loader.memory().data());
    ASSERT_LT(reinterpret_cast<const std::byte*>(b.images), loader.memory().data() + loader.memory().size());
  }
}

TEST_F(LoaderTest, DamageFoundByAWorkerIsThrownByNext) {
  make(64, true);
  const std::string path = folder / "set0.h5";
  std::vector<uint8_t> bytes = test::file_bytes(path);
  const auto location = Hdf5File(path).dataset("/images", 4).chunk_index()[3];
  bytes[location.address + location.bytes / 2] ^= 1;
  test::write_bytes(path, bytes);
  for (int threads : {0, 2}) {
    const ClassificationSet set(path);
    Loader loader(set, make_order(set, 64, 1, false), {},
                  {.micro_batch = 64, .threads = threads, .train = false});
    const std::string what = user_error([&] { loader.next(); });
    EXPECT_NE(what.find("chunk '3' (rows '24' to '31')"), std::string::npos) << what;
    EXPECT_NE(what.find(path), std::string::npos);
    EXPECT_NE(what.find("Fletcher32"), std::string::npos);
  }
}

TEST_F(LoaderTest, ASteadyLoaderAllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "the sanitizer has its own operator new";
  for (bool compressed : {false, true})
    for (int threads : {0, 2}) {
      const ClassificationSet set = make(64, compressed);
      Loader loader(set, make_order(set, 8, 1, true), {.size = 3, .flip = true, .random_resized_crop = true},
                    {.micro_batch = 8, .threads = threads});
      for (int i = 0; i < 100; ++i) loader.next();
      const long before = allocations;
      for (int i = 0; i < 100; ++i) loader.next();
      EXPECT_EQ(allocations - before, 0) << "compressed " << compressed << ", threads " << threads;
    }
}

TEST_F(LoaderTest, AbandoningALoaderJoinsItsWorkers) {
  const ClassificationSet set = make(100);
  for (int i = 0; i < 50; ++i) {
    Loader loader(set, make_order(set, 10, 1, true), {}, {.micro_batch = 10, .threads = 4, .prefetch = 8});
    if (i % 2) loader.next();
  }
}

}  // namespace
}  // namespace lockstep::data
