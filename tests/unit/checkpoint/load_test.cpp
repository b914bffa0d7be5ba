#include "checkpoint/load.h"

#include "unit/checkpoint/support.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void flip_bit(const fs::path& path, uint64_t byte) {
  std::string text = read_text(path);
  text.at(byte) = static_cast<char>(text[byte] ^ 4);
  write_text(path, text);
}

class Load : public Scratch {};

TEST_F(Load, TheNewestWholeOneIsFound) {
  for (int64_t step : {9, 100, 20}) write_checkpoint(dir_, make_snapshot(step));
  fs::create_directory(dir_ / "step-00000200.partial");
  fs::create_directory(dir_ / "step-00000300.trash");
  fs::create_directory(dir_ / "step-x");
  write_text(dir_ / "notes.txt", "");
  Latest latest = find_latest(dir_);
  ASSERT_TRUE(latest.checkpoint);
  EXPECT_EQ(latest.checkpoint->state.step, 100);
  EXPECT_THAT(latest.damaged, IsEmpty());
}

TEST_F(Load, StepsSortAsNumbers) {
  for (int64_t step : {99999999, 100000000}) write_checkpoint(dir_, make_snapshot(step));
  EXPECT_EQ(find_latest(dir_).checkpoint->state.step, 100000000);
}

TEST_F(Load, AFlippedBitInAnyFileIsFoundAndTheOlderOneUsed) {
  for (const std::string file : {kModelFile, kOptimizerFile, kStateFile}) {
    SCOPED_TRACE(file);
    fs::remove_all(dir_);
    write_checkpoint(dir_, make_snapshot(1));
    fs::path path = write_checkpoint(dir_, make_snapshot(2));
    const uint64_t bytes = fs::file_size(path / file);
    for (uint64_t i = 0; i < 16; ++i) {
      const uint64_t byte = i * (bytes - 1) / 15;
      flip_bit(path / file, byte);
      Latest latest = find_latest(dir_);
      ASSERT_TRUE(latest.checkpoint);
      EXPECT_EQ(latest.checkpoint->state.step, 1);
      ASSERT_EQ(latest.damaged.size(), 1u);
      EXPECT_EQ(latest.damaged[0].path, path);
      EXPECT_THAT(latest.damaged[0].why, HasSubstr("'" + file + "'"));
      flip_bit(path / file, byte);
    }
    EXPECT_EQ(find_latest(dir_).checkpoint->state.step, 2);
  }
}

TEST_F(Load, ATruncatedOrMissingFileIsFoundWithoutReadingTensors) {
  for (const std::string file : {kModelFile, kOptimizerFile, kStateFile}) {
    fs::path path = write_checkpoint(dir_, make_snapshot(1));
    const uint64_t bytes = fs::file_size(path / file);
    for (uint64_t i = 16; i-- > 0;) {
      fs::resize_file(path / file, bytes * i / 16);
      UserError e = error_of([&] { load_checkpoint(path, Verify::sizes); });
      EXPECT_EQ(e.headline(), "checkpoint '" + path.string() + "' is damaged");
      EXPECT_THAT(e.why(), HasSubstr("'" + file + "'"));
    }
    fs::remove(path / file);
    EXPECT_THAT(error_of([&] { load_checkpoint(path); }).why(), HasSubstr("'" + file + "'"));
    fs::remove_all(path);
  }
}

TEST_F(Load, WhatIsNoCheckpointIsToldApartFromADamagedOne) {
  EXPECT_EQ(error_of([&] { load_checkpoint(dir_ / "none"); }).why(), "there is nothing of that name");
  write_text(dir_ / "file", "x");
  EXPECT_EQ(error_of([&] { load_checkpoint(dir_ / "file"); }).why(), "it is not a directory");
  EXPECT_EQ(error_of([&] { load_checkpoint(dir_); }).why(), "it has no 'state.json'");
  write_checkpoint(dir_ / "run" / "checkpoints", make_snapshot(5));
  UserError e = error_of([&] { load_checkpoint(dir_ / "run"); });
  EXPECT_THAT(e.todo(), HasSubstr("run/checkpoints/step-00000005'"));
}

TEST_F(Load, ATrailingSlashChangesNothing) {
  fs::path path = write_checkpoint(dir_, make_snapshot(5));
  EXPECT_EQ(load_checkpoint(path / "").path, path);
}

TEST_F(Load, NoneFoundSaysWhy) {
  EXPECT_THAT(error_of([&] { require(find_latest(dir_ / "none"), dir_ / "none"); }).why(),
              HasSubstr("no such directory"));
  EXPECT_THAT(error_of([&] { require(find_latest(dir_), dir_); }).why(), HasSubstr("it holds none"));
  for (int64_t step : {1, 2}) fs::resize_file(write_checkpoint(dir_, make_snapshot(step)) / kModelFile, 3);
  EXPECT_THAT(
      error_of([&] { require(find_latest(dir_), dir_); }).why(),
      AllOf(HasSubstr("'step-00000001' ('model.safetensors' has '3' bytes"), HasSubstr("'step-00000002'")));
}

class Compare : public Scratch {
 protected:
  SafetensorsFile file_of(std::vector<TensorSpec> specs) {
    TensorStorage storage;
    storage.layout(std::move(specs));
    write_safetensors(dir_ / "model.safetensors", storage.views());
    return SafetensorsFile(dir_ / "model.safetensors");
  }
  const std::vector<TensorSpec> expected_{
      {"stem.weight", {4, 3}}, {"fc.weight", {10, 4}}, {"fc.bias", {10}}, {"count", {}, Dtype::i64}};
};

TEST_F(Compare, EqualModelsPass) {
  SafetensorsFile file = file_of(expected_);
  require_same_model(file, expected_);
  require_weights(file, expected_);
}

TEST_F(Compare, TheFirstDifferingParameterOfAnotherModelIsNamed) {
  SafetensorsFile file = file_of(
      {{"stem.weight", {4, 3}}, {"fc.weight", {100, 4}}, {"fc.bias", {100}}, {"count", {}, Dtype::i64}});
  UserError e = error_of([&] { require_same_model(file, expected_); });
  EXPECT_THAT(e.headline(), HasSubstr("is of another model"));
  EXPECT_EQ(e.why(),
            "the first difference in 'model.safetensors': 'fc.weight' ('f32 [100, 4]' in the file, 'f32 [10, "
            "4]' in "
            "the model)");
}

TEST_F(Compare, ExtraAndMissingParametersOfAnotherModelAreNamed) {
  auto specs = expected_;
  specs.push_back({"zz", {1}});
  EXPECT_THAT(error_of([&] { require_same_model(file_of(specs), expected_); }).why(),
              HasSubstr("'zz' is not in the model"));
  EXPECT_THAT(error_of([&] { require_same_model(file_of(expected_), specs); }).why(),
              HasSubstr("'zz' is missing"));
}

TEST_F(Compare, ForeignWeightsListEveryDifference) {
  SafetensorsFile file = file_of(
      {{"stem.weight", {3, 4}}, {"fc.weight", {10, 4}, Dtype::bf16}, {"head.bias", {10}}, {"zz", {1}}});
  Differences d = compare(file, expected_);
  EXPECT_THAT(d.missing, ElementsAre("'fc.bias'", "'count'"));
  EXPECT_THAT(d.extra, ElementsAre("'head.bias'", "'zz'"));
  EXPECT_THAT(d.misshapen,
              ElementsAre("'stem.weight' ('f32 [3, 4]' in the file, 'f32 [4, 3]' in the model)"));
  EXPECT_EQ(error_of([&] { require_weights(file, expected_); }).why(),
            "2 missing: 'fc.bias', 'count'\n  2 extra: 'head.bias', 'zz'\n  1 misshapen: 'stem.weight' ('f32 [3, "
            "4]' in "
            "the file, 'f32 [4, 3]' in the model)");
}

TEST_F(Compare, AnyFloatFitsF32AndNothingElseFitsAnInteger) {
  file_of({{"a", {2}, Dtype::f16}});
  SafetensorsFile file = file_of({{"a", {2}, Dtype::f64}, {"n", {}, Dtype::i32}});
  const std::vector<TensorSpec> expected{{"a", {2}}, {"n", {}, Dtype::i64}};
  EXPECT_THAT(compare(file, expected).misshapen,
              ElementsAre("'n' ('i32 []' in the file, 'i64 []' in the model)"));
}

TEST_F(Compare, ADataParallelPrefixIsRecognised) {
  UserError e = error_of([&] { require_weights(file_of({{"module.fc.bias", {10}}}), expected_); });
  EXPECT_THAT(e.todo(), HasSubstr("'module.'"));
}

}  // namespace
}  // namespace lockstep::checkpoint
