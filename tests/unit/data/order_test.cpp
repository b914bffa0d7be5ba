#include "data/order.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace lockstep::data {
namespace {

const std::vector<int64_t> kSizes = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 100, 1000, 4097, 60000};

void expect_permutation(const Order& order, uint64_t epoch) {
  std::vector<int> seen(static_cast<size_t>(order.num_samples));
  for (int64_t p = 0; p < order.num_samples; ++p) {
    const uint64_t row = order.row(epoch, static_cast<uint64_t>(p));
    ASSERT_LT(row, seen.size());
    ASSERT_EQ(++seen[row], 1) << "row " << row << " twice, N " << order.num_samples;
  }
}

TEST(Order, EveryEpochIsAPermutationAtAnyN) {
  for (int64_t n : kSizes)
    for (uint64_t epoch : {0, 1, 7}) expect_permutation({.num_samples = n, .seed = 11}, epoch);
}

TEST(Order, ByChunksIsAPermutationAtAnyChunkAndWindow) {
  for (int64_t n : {1, 2, 7, 100, 1000, 4097})
    for (int64_t rows : {1, 2, 3, 64, 5000})
      for (int64_t window : {1, 2, 5, 100})
        for (uint64_t epoch : {0, 3})
          expect_permutation({.num_samples = n, .seed = 5, .chunk_rows = rows, .window_chunks = window},
                             epoch);
}

TEST(Order, ByChunksOpensEachChunkInOneWindowOnly) {
  const Order order{.num_samples = 1003, .seed = 3, .chunk_rows = 10, .window_chunks = 4};
  std::vector<int64_t> first(101, -1), last(101, -1);
  for (int64_t p = 0; p < 1003; ++p) {
    const size_t chunk = order.row(0, static_cast<uint64_t>(p)) / 10;
    if (first[chunk] < 0) first[chunk] = p;
    last[chunk] = p;
  }
  for (size_t c = 0; c < 101; ++c) EXPECT_LT(last[c] - first[c], 40) << "chunk " << c;
}

TEST(Order, InverseUndoesThePermutation) {
  for (uint64_t n : {1ull, 2ull, 3ull, 100ull, 60000ull, 1ull << 33}) {
    const Permutation p(n, {9, 0, 0, Purpose::shuffle, 0});
    for (uint64_t i = 0; i < std::min<uint64_t>(n, 1000); ++i) {
      EXPECT_LT(p(i), n);
      EXPECT_EQ(p.inverse(p(i)), i);
    }
  }
}

TEST(Order, EpochsAndSeedsDiffer) {
  const Order a{.num_samples = 1000, .seed = 1}, b{.num_samples = 1000, .seed = 2};
  int same_epoch = 0, same_seed = 0, fixed = 0;
  for (uint64_t p = 0; p < 1000; ++p) {
    same_epoch += a.row(0, p) == a.row(1, p);
    same_seed += a.row(0, p) == b.row(0, p);
    fixed += a.row(0, p) == p;
  }
  EXPECT_LT(same_epoch, 10);
  EXPECT_LT(same_seed, 10);
  EXPECT_LT(fixed, 10);
}

// Where a row lands should be uniform: chi-square of (row tenth, position tenth) over epochs, 81 degrees of
// freedom.
TEST(Order, RowsSpreadEvenlyOverPositions) {
  for (int64_t n : {10, 50, 1000}) {
    const Order order{.num_samples = n, .seed = 4};
    std::vector<double> cell(100);
    const int epochs = static_cast<int>(100000 / n);
    for (int e = 0; e < epochs; ++e)
      for (int64_t p = 0; p < n; ++p)
        cell[static_cast<size_t>(p * 10 / n * 10) +
             order.row(static_cast<uint64_t>(e), static_cast<uint64_t>(p)) * 10 / static_cast<uint64_t>(n)] +=
            1;
    double chi2 = 0;
    const double expected = epochs * static_cast<double>(n) / 100;
    for (double c : cell) chi2 += (c - expected) * (c - expected) / expected;
    EXPECT_LT(chi2, 81 + 5 * std::sqrt(2 * 81.0)) << "N " << n;
  }
}

// All 24 orders of four samples should come up: a network too weak for small N would miss some.
TEST(Order, SmallSetsTakeEveryOrder) {
  const Order order{.num_samples = 4, .seed = 8};
  std::set<std::vector<uint64_t>> orders;
  for (uint64_t e = 0; e < 2000; ++e)
    orders.insert({order.row(e, 0), order.row(e, 1), order.row(e, 2), order.row(e, 3)});
  EXPECT_EQ(orders.size(), 24u);
}

TEST(Order, WithoutShuffleRowsComeInFileOrder) {
  const Order order{.num_samples = 50, .shuffle = false, .chunk_rows = 7};
  for (uint64_t p = 0; p < 50; ++p) EXPECT_EQ(order.row(3, p), p);
}

TEST(Order, BatchesCountTheLastPartialOne) {
  const Order order{.num_samples = 10, .global_batch = 4};
  EXPECT_EQ(order.batches_per_epoch(), 3);
  EXPECT_EQ(order.batch_size(0), 4);
  EXPECT_EQ(order.batch_size(2), 2);
  EXPECT_EQ(order.batch_size(3), 0);
  EXPECT_EQ(order.next({0, 1}), (Cursor{0, 2}));
  EXPECT_EQ(order.next({0, 2}), (Cursor{1, 0}));
  const Order dropped{.num_samples = 10, .global_batch = 4, .drop_last = true};
  EXPECT_EQ(dropped.batches_per_epoch(), 2);
  EXPECT_EQ(dropped.batch_size(2), 0);
  EXPECT_EQ(dropped.next({0, 1}), (Cursor{1, 0}));
}

// A stored cursor must mean the same samples in every later version: changing this order breaks resuming.
TEST(Order, IsTheSameForever) {
  const Order order{.num_samples = 60000, .seed = 1};
  std::vector<uint64_t> rows;
  for (uint64_t p = 0; p < 4; ++p) rows.push_back(order.row(2, p));
  EXPECT_EQ(rows, (std::vector<uint64_t>{33820, 5295, 26115, 43528}));
}

}  // namespace
}  // namespace lockstep::data
