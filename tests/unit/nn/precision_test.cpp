#include "nn/precision.h"

#include <gtest/gtest.h>

#include "nn/fusion.h"

namespace lockstep::nn {
namespace {

constexpr auto kHalf = Precision::bf16;

TEST(Precision, ConvolutionsAndLinearGiveHalfAndWhatFollowsKeepsIt) {
  Graph g(2);
  const auto image = g.input({3, 8, 8});
  const auto c = g.conv2d("c", image, {.out_channels = 4});
  const auto bn = g.batch_norm("bn", c);
  const auto pool = g.max_pool(g.relu(bn));
  const auto hidden = g.linear("l1", g.flatten(g.dropout(pool, 0.5)), {8});
  const auto logits = g.linear("l2", g.gelu(hidden), {5});
  const auto loss = g.softmax_cross_entropy(logits);
  const std::vector<Precision> stored = storage_precision(g, kHalf);
  for (ValueId v = 0; v <= loss; ++v)
    EXPECT_EQ(stored[v], v == image || v == logits || v == loss ? Precision::fp32 : kHalf)
        << op_name(g.nodes[g.values[v].producer].op);
  for (Precision p : storage_precision(g, Precision::fp32)) EXPECT_EQ(p, Precision::fp32);
  for (Precision p : storage_precision(g, Precision::fp16)) EXPECT_NE(p, Precision::bf16);
}

TEST(Precision, TheImageStaysAsItIsUntilTheFirstProduct) {
  Graph g(2);
  const auto flat = g.flatten(g.relu(g.input({3, 4, 4})));
  const auto y = g.linear("l1", flat, {8});
  g.softmax_cross_entropy(g.linear("l2", y, {5}));
  const std::vector<Precision> stored = storage_precision(g, kHalf);
  EXPECT_EQ(stored[flat], Precision::fp32);
  EXPECT_EQ(stored[y], kHalf);
}

TEST(Precision, LogitsAreFloatsBackToTheProductThatMakesThem) {
  Graph g(2);
  const auto c = g.conv2d("c", g.input({3, 8, 8}), {.out_channels = 4});
  const auto head = g.conv2d("head", c, {.out_channels = 5});
  const auto mean = g.global_avg_pool(head), logits = g.flatten(mean);
  g.softmax_cross_entropy(logits);
  const std::vector<Precision> stored = storage_precision(g, kHalf);
  EXPECT_EQ(stored[c], kHalf);
  for (ValueId v : {head, mean, logits}) EXPECT_EQ(stored[v], Precision::fp32);
}

TEST(Precision, AValueWithAnotherReaderIsNoLogit) {
  Graph g(2);
  const auto c = g.conv2d("c", g.input({3, 8, 8}), {.out_channels = 5});
  const auto mean = g.global_avg_pool(c);
  const auto again = g.conv2d("again", mean, {.out_channels = 5});
  g.softmax_cross_entropy(g.flatten(g.add(mean, again)));
  const std::vector<Precision> stored = storage_precision(g, kHalf);
  EXPECT_EQ(stored[mean], kHalf);
  EXPECT_EQ(stored[again], kHalf);
}

TEST(Precision, IsTheSameForTheFusedGraph) {
  Graph g(2);
  const auto x = g.relu(g.batch_norm("bn", g.conv2d("c", g.input({3, 8, 8}), {.out_channels = 4})));
  const auto y = g.relu(g.add(g.batch_norm("bn2", g.conv2d("d", x, {.out_channels = 4})), x));
  g.softmax_cross_entropy(g.linear("fc", g.flatten(g.global_avg_pool(y)), {5}));
  const std::vector<Precision> plain = storage_precision(g, kHalf), fused = storage_precision(fuse(g), kHalf);
  EXPECT_EQ(plain[x], fused[x]);
  EXPECT_EQ(plain[y], fused[y]);
  EXPECT_EQ(fused[y], kHalf);
}

}  // namespace
}  // namespace lockstep::nn
