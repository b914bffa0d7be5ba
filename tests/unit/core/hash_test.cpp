#include "core/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

TEST(Hash, OfNothingIsTheKnownAnswerOfXxh3) { EXPECT_EQ(hex64(xxh3({})), "2d06800538d394c2"); }

TEST(Hash, HexHasSixteenDigits) { EXPECT_EQ(hex64(0xabc), "0000000000000abc"); }

TEST(Hash, OfPiecesEqualsThatOfTheWhole) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * 31);
  const uint64_t whole = xxh3(std::as_bytes(std::span(text)));
  for (size_t piece : {1, 7, 256, 4096}) {
    Xxh3Stream stream;
    for (size_t at = 0; at < text.size(); at += piece)
      stream.update(text.data() + at, std::min(piece, text.size() - at));
    EXPECT_EQ(stream.digest(), whole);
  }
  text[1234] ^= 1;
  EXPECT_NE(xxh3(std::as_bytes(std::span(text))), whole);
}

TEST(Hash, StreamSurvivesAMove) {
  Xxh3Stream a;
  a.update("ab", 2);
  Xxh3Stream b = std::move(a);
  b.update("c", 1);
  EXPECT_EQ(b.digest(), xxh3(std::as_bytes(std::span("abc", 3))));
}

}  // namespace
}  // namespace lockstep
