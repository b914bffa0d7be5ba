#include "checkpoint/safetensors.h"

#include <fmt/format.h>

#include <stdexcept>

#include "unit/checkpoint/support.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;

std::string little_endian(uint64_t n) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(n >> (8 * i));
  return text;
}

std::string file_of(const std::string& header, const std::string& data) {
  return little_endian(header.size()) + header + data;
}

std::span<const std::byte> bytes_of(const auto& values) { return std::as_bytes(std::span(values)); }

class Safetensors : public Scratch {
 protected:
  fs::path path_ = dir_ / "t.safetensors";
  std::string why_refused(const std::string& bytes) {
    write_text(path_, bytes);
    UserError e = error_of([&] { SafetensorsFile file(path_); });
    EXPECT_THAT(e.headline(), HasSubstr("'" + path_.string() + "'"));
    EXPECT_EQ(e.why().find('\n'), std::string::npos);
    return e.why();
  }
};

TEST_F(Safetensors, AreTheBytesThatTheFormatAsksFor) {
  const float weights[] = {1.0f, -2.0f};
  const int64_t count[] = {7};
  const TensorView tensors[] = {{"w\"1", Dtype::f32, {2, 1}, bytes_of(weights)},
                                {"n", Dtype::i64, {}, bytes_of(count)}};
  FileRecord record = write_safetensors(path_, tensors, {{"format", "pt"}});

  std::string header =
      R"({"__metadata__":{"format":"pt"},"n":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("w\"1":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string data("\7\0\0\0\0\0\0\0\0\0\x80\x3f\0\0\0\xc0", 16);
  EXPECT_EQ(read_text(path_), file_of(header, data));
  EXPECT_EQ(record, hash_file(path_));
}

TEST_F(Safetensors, ComeBackAsTheyWereWritten) {
  const std::vector<float> values{1.5f, -0.0f, std::numeric_limits<float>::infinity()};
  const std::vector<uint16_t> halves{0x3c00, 0x7c01};
  const std::vector<uint8_t> odd{1, 2, 3};
  const TensorView tensors[] = {{"odd", Dtype::u8, {3}, bytes_of(odd)},
                                {"values", Dtype::f32, {1, 3, 1}, bytes_of(values)},
                                {"halves", Dtype::bf16, {2}, bytes_of(halves)},
                                {"empty", Dtype::f32, {0, 4}, {}}};
  write_safetensors(path_, tensors, {{"a", "b\n"}});
  SafetensorsFile file(path_);
  auto named = [](const char* name) { return Field(&TensorView::name, name); };
  EXPECT_THAT(file.tensors(), ElementsAre(named("empty"), named("halves"), named("odd"), named("values")));
  EXPECT_EQ(file.metadata(), (Metadata{{"a", "b\n"}}));
  for (const TensorView& t : tensors) {
    const TensorView* found = file.find(t.name);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->dtype, t.dtype);
    EXPECT_EQ(found->shape, t.shape);
    EXPECT_TRUE(std::ranges::equal(found->data, t.data));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(found->data.data()) % size_of(t.dtype), 0u);
  }
  EXPECT_EQ(file.find("valu"), nullptr);
}

TEST_F(Safetensors, BytesDoNotDependOnTheOrderOfTensors) {
  const float a[] = {1, 2}, b[] = {3};
  TensorView tensors[] = {{"a", Dtype::f32, {2}, bytes_of(a)}, {"b", Dtype::f32, {1}, bytes_of(b)}};
  FileRecord first = write_safetensors(path_, tensors);
  std::swap(tensors[0], tensors[1]);
  EXPECT_EQ(write_safetensors(path_, tensors), first);
}

TEST_F(Safetensors, DataBeginsAtAMultipleOfEightWhateverTheNames) {
  const float a[] = {1};
  for (size_t length = 1; length <= 16; ++length) {
    const TensorView tensors[] = {{std::string(length, 'n'), Dtype::f32, {1}, bytes_of(a)}};
    EXPECT_EQ((write_safetensors(path_, tensors).bytes - sizeof(a)) % 8, 0u) << length;
    EXPECT_EQ(SafetensorsFile(path_).tensors().front().name.size(), length);
  }
}

TEST_F(Safetensors, OfNoTensorsIsAFile) {
  write_safetensors(path_, {});
  EXPECT_TRUE(SafetensorsFile(path_).tensors().empty());
}

TEST_F(Safetensors, TheWriterRefusesWhatTheReaderWould) {
  const float a[] = {1, 2};
  const TensorView twice[] = {{"a", Dtype::f32, {2}, bytes_of(a)}, {"a", Dtype::f32, {2}, bytes_of(a)}};
  EXPECT_THROW(write_safetensors(path_, twice), std::invalid_argument);
  const TensorView wrong[] = {{"a", Dtype::f32, {3}, bytes_of(a)}};
  EXPECT_THROW(write_safetensors(path_, wrong), std::invalid_argument);
}

TEST_F(Safetensors, AFullDiskIsAUserError) {
  const std::vector<float> a(1 << 16);
  const TensorView tensors[] = {{"a", Dtype::f32, {1 << 16}, bytes_of(a)}};
  UserError e = error_of([&] { write_safetensors("/dev/full", tensors); });
  EXPECT_EQ(e.headline(), "cannot write '/dev/full'");
  EXPECT_EQ(e.why(), "No space left on device");
}

struct Malformed {
  const char* header;
  size_t data_bytes;
  const char* why;
};

TEST_F(Safetensors, EachMalformedHeaderIsRefusedByName) {
  const Malformed cases[] = {
      {"[]", 0, "does not begin with '{'"},
      {"{", 0, "not JSON"},
      {"{\"\xff\":1}", 0, "not JSON"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "has \"a\" twice"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "has \"dtype\" twice"},
      {R"({"a":7})", 0, "tensor 'a' has no proper 'dtype'"},
      {R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "tensor 'a' has no proper 'dtype'"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "tensor 'a' has no proper 'shape'"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "tensor 'a' has no proper 'data_offsets'"},
      {R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4, "tensor 'a' has dtype 'F33'"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "tensor 'a' has '-1' in its shape"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "tensor 'a' has '1.0' in its shape"},
      {R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4,
       "tensor 'a' has '\"1\"' in its shape"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4, "in its shape"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}})", 4, "impossibly large"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "impossibly large"},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1, "'7' dimensions"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
       "tensor 'a' of dtype 'F32' and shape '[2]'"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "before it begins"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 8, "'3' data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,-4]}})", 4,
       "tensor 'a' has '-4' in its data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7,
       "truncated: tensor 'a' ends at byte '8'"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "tensor 'b' overlaps"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
       12, "hole of '4' bytes before tensor 'b'"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "hole of '4' bytes before tensor 'a'"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "'1' bytes after its last tensor"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__ 'a' is not a string"},
      {R"({"__metadata__":[]})", 0, "__metadata__ is not an object"},
      {R"({"a":{"dtype":"F32","shape":[[[[[1]]]]],"data_offsets":[0,4]}})", 4, "nested deeper"},
  };
  for (const Malformed& c : cases)
    EXPECT_THAT(why_refused(file_of(c.header, std::string(c.data_bytes, 'x'))), HasSubstr(c.why)) << c.header;
}

TEST_F(Safetensors, AHeaderSizeIsBoundedBeforeItIsUsed) {
  EXPECT_THAT(why_refused(""), HasSubstr("'0' bytes"));
  EXPECT_THAT(why_refused("1234567"), HasSubstr("'7' bytes"));
  EXPECT_THAT(why_refused(little_endian(100'000'001)), HasSubstr("more than '100000000'"));
  EXPECT_THAT(why_refused(little_endian(UINT64_MAX)), HasSubstr("more than '100000000'"));
  EXPECT_THAT(why_refused(little_endian(3) + "{}"),
              HasSubstr("truncated: its header is '3' bytes, '2' are there"));
  EXPECT_THAT(why_refused(little_endian(0)), HasSubstr("does not begin"));
  const std::string pytorch_zip("PK\3\4\0\0\x08\x08\0\0\0\0", 12);
  EXPECT_THAT(why_refused(pytorch_zip), HasSubstr("it is another format, or damaged"));
}

TEST_F(Safetensors, DeepNestingIsRefusedWithoutDeepRecursion) {
  EXPECT_THAT(why_refused(file_of("{\"a\":" + std::string(1 << 20, '['), "")), HasSubstr("nested deeper"));
}

TEST_F(Safetensors, TruncatedAnywhereIsRefused) {
  const std::vector<float> a(100, 1.0f);
  const TensorView tensors[] = {{"a", Dtype::f32, {100}, bytes_of(a)}};
  write_safetensors(path_, tensors);
  const std::string whole = read_text(path_);
  for (size_t i = 0; i < 16; ++i) why_refused(whole.substr(0, whole.size() * i / 16));
  why_refused(whole.substr(0, whole.size() - 1));
}

TEST_F(Safetensors, MissingFilesAndDirectoriesAreUserErrors) {
  EXPECT_EQ(error_of([&] { SafetensorsFile f(dir_ / "none"); }).why(), "No such file or directory");
  EXPECT_EQ(error_of([&] { SafetensorsFile f{dir_}; }).why(), "it is no regular file");
}

}  // namespace
}  // namespace lockstep::checkpoint
