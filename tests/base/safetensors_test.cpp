#include "ridge/base/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "ridge/base/error.h"
#include "tests/base/temporary_directory.h"

namespace ridge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// A file of this header, as it is, and so many bytes of data.
std::string file_of(std::string_view header, std::size_t data_size) {
  const std::uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  file += header;
  for (std::size_t i = 0; i < data_size; ++i) file += static_cast<char>(i);
  return file;
}

// One that is sound: two tensors, an empty one, and metadata.
constexpr std::string_view sound_header =
    R"({"__metadata__":{"format":"pt","note":"a \"b\"\n"},)"
    R"("b":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
    R"("a":{"data_offsets":[8,14],"dtype":"BF16","shape":[3]},)"
    R"("none":{"dtype":"I64","shape":[4,0],"data_offsets":[8,8]}}  )";

SafetensorsFile parse(std::string_view file) { return {bytes_of(file), "the.file"}; }

// The message with which a file of this header and data is refused.
std::string refusal(std::string_view file) {
  try {
    parse(file);
  } catch (const FormatError& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("the.file: ")) << message;
    EXPECT_EQ(message.find('\n'), message.npos);
    return message;
  }
  ADD_FAILURE() << "not refused: " << file;
  return "";
}
std::string refusal(std::string_view header, std::size_t data_size) {
  return refusal(file_of(header, data_size));
}

TEST(Safetensors, ReadsASoundFile) {
  const std::string content = file_of(sound_header, 14);
  const SafetensorsFile file = parse(content);
  ASSERT_EQ(file.size(), 3u);
  const StoredTensor a = file.tensor(0), b = file.tensor(1), none = file.tensor(2);
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, "BF16");
  EXPECT_THAT(a.shape, ElementsAre(3));
  EXPECT_EQ(a.type(), (TensorType{DType::bf16, Shape{3}}));
  EXPECT_EQ(a.bytes.size(), 6u);
  EXPECT_EQ(static_cast<int>(a.bytes[0]), 8);
  EXPECT_EQ(b.type(), (TensorType{DType::f32, Shape{2, 1}}));
  EXPECT_EQ(static_cast<int>(b.bytes[7]), 7);
  EXPECT_EQ(none.dtype, "I64");
  EXPECT_THAT(none.shape, ElementsAre(4, 0));
  EXPECT_FALSE(none.type());
  EXPECT_TRUE(none.bytes.empty());
}

TEST(Safetensors, ReadsWithoutCopying) {
  const std::string content = file_of(sound_header, 14);
  const SafetensorsFile file = parse(content);
  EXPECT_EQ(static_cast<const void*>(file.find("b")->bytes.data()),
            content.data() + 8 + sound_header.size());
}

TEST(Safetensors, FindsByName) {
  const std::string content = file_of(sound_header, 14);
  const SafetensorsFile file = parse(content);
  for (const char* name : {"a", "b", "none"}) {
    ASSERT_TRUE(file.find(name)) << name;
    EXPECT_EQ(file.find(name)->name, name);
  }
  for (const char* name : {"", "A", "aa", "c", "nonf", "__metadata__"})
    EXPECT_FALSE(file.find(name)) << name;
}

TEST(Safetensors, ReadsMetadata) {
  const std::string content = file_of(sound_header, 14);
  const SafetensorsFile file = parse(content);
  EXPECT_EQ(file.metadata("format"), "pt");
  EXPECT_EQ(file.metadata("note"), "a \"b\"\n");
  EXPECT_FALSE(file.metadata("missing"));
  EXPECT_FALSE(file.metadata("b"));
  EXPECT_EQ(file.metadata(),
            (std::map<std::string, std::string>{{"format", "pt"}, {"note", "a \"b\"\n"}}));
}

TEST(Safetensors, ReadsAFileOfNothing) {
  const std::string content = file_of("{}", 0);
  EXPECT_EQ(parse(content).size(), 0u);
  EXPECT_TRUE(parse(content).metadata().empty());
}

TEST(Safetensors, ReadsScalarsSpacesAndEscapes) {
  const std::string content = file_of(
      "{ \"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\/\\\\\" :\t{ \"dtype\" : \"\\u00551\"\n, "
      "\"sh\\u0061pe\":[ ], \"data_offsets\" : [ 0 , 1 ] }\r}",
      1);
  const SafetensorsFile file = parse(content);
  ASSERT_EQ(file.size(), 1u);
  EXPECT_EQ(file.tensor(0).name, "A\u00e9\u20ac\U0001F600/\\");
  EXPECT_EQ(file.tensor(0).dtype, "U1");  // which nobody knows, so its size goes unchecked
  EXPECT_TRUE(file.tensor(0).shape.empty());
  EXPECT_TRUE(file.find("A\u00e9\u20ac\U0001F600/\\"));
}

TEST(Safetensors, KnowsTheSizesOfDTypes) {
  const std::pair<const char*, int> sizes[] = {
      {"F64", 8}, {"F32", 4},  {"F16", 2},     {"BF16", 2},   {"I64", 8}, {"I32", 4},
      {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},    {"U16", 2}, {"U8", 1},
      {"C64", 8}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [dtype, size] : sizes)
    for (const int wrong : {0, 1}) {
      const int bytes = 3 * size + wrong;
      const std::string content =
          file_of(fmt::format(R"({{"x":{{"dtype":"{}","shape":[3],"data_offsets":[0,{}]}}}})",
                              dtype, bytes),
                  static_cast<std::size_t>(bytes));
      if (wrong == 0)
        EXPECT_EQ(parse(content).tensor(0).dtype, dtype);
      else
        EXPECT_THAT(refusal(content),
                    HasSubstr(fmt::format("needs {} bytes of data and has {}", 3 * size, bytes)));
    }
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string content = file_of(sound_header, 14);
  for (std::size_t size = 0; size < content.size(); ++size)
    EXPECT_THAT(refusal(content.substr(0, size)),
                ::testing::AnyOf(HasSubstr("truncated"), HasSubstr("it has only")))
        << size;
}

TEST(Safetensors, RefusesOrReadsEveryChangeOfAByte) {
  const std::string content = file_of(sound_header, 14);
  for (std::size_t i = 0; i < 8 + sound_header.size(); ++i)
    for (const int change : {1, 2, 4, 8, 16, 32, 64, 128}) {
      std::string changed = content;
      changed[i] = static_cast<char>(changed[i] ^ change);
      try {
        const SafetensorsFile file = parse(changed);
        for (std::size_t t = 0; t < file.size(); ++t) file.tensor(t);
        file.metadata();
      } catch (const FormatError&) {
      }
    }
}

TEST(Safetensors, RefusesWhatIsNoSuchFile) {
  EXPECT_THAT(refusal(""), HasSubstr("it has only 0 bytes"));
  EXPECT_THAT(refusal("not a safetensors file at all"), HasSubstr("no safetensors file"));
  EXPECT_THAT(refusal("", 0), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(refusal(" {}", 0), HasSubstr("does not begin with '{'"));
  std::string huge = file_of("{}", 0);
  huge[5] = 1;
  EXPECT_THAT(refusal(huge), HasSubstr("header would have 1099511627778 bytes, of 100000000"));
}

// A tensor "x" of four bytes of data, described by `members`.
std::string of_members(std::string_view members) {
  return fmt::format("{{\"x\":{{{}}}}}", members);
}

TEST(Safetensors, RefusesHeadersThatAreNoJson) {
  const auto fails = [](std::string_view header, int at) {
    EXPECT_THAT(refusal(header, 4), HasSubstr(fmt::format("its header is no JSON at byte {}", at)))
        << header;
  };
  fails("{", 2);
  fails("{}x", 3);
  fails("{\"x\"", 5);
  fails("{\"x", 4);
  fails("{\"x\\", 5);
  fails("{\"\\x\"", 4);
  fails("{\"\\u12g4\"", 7);
  fails("{\"\\ud800\"", 9);
  fails("{\"\\ud800\\u0041\"", 14);
  fails("{\"\\udc00\\ud800\"", 8);
  fails("{\"a\nb\"", 4);
  fails(of_members(R"("shape":[1,])"), 18);
  fails(of_members(R"("shape":[1 1])"), 18);
  fails(of_members(R"("shape":[01])"), 17);
}

TEST(Safetensors, RefusesHeadersThatAreNotAsTheFormatSays) {
  const auto fails = [](std::string_view header, std::string_view fault) {
    EXPECT_THAT(refusal(header, 4), ::testing::EndsWith(fmt::format("file: {}", fault))) << header;
  };
  fails("{\"x\":3}", "tensor \"x\" is no object");
  fails("{\"x\":[]}", "tensor \"x\" is no object");
  fails("{\"x\":{}}", "tensor \"x\" lacks one of dtype, shape and data_offsets");
  fails("{\"__metadata__\":{\"a\":1}}", "metadata key \"a\" has a value that is no string");
  fails("{\"__metadata__\":{\"a\":{}}}", "metadata key \"a\" has a value that is no string");
  fails("{\"__metadata__\":null}", "__metadata__ is no object");
  fails("{\"__metadata__\":{},\"__met\\u0061data__\":{}}",
        "\"__metadata__\" appears twice in one object");

  const std::string lacks = "tensor \"x\" lacks one of dtype, shape and data_offsets";
  fails(of_members(R"("dtype":"F32","shape":[])"), lacks);
  fails(of_members(R"("dtype":"F32","data_offsets":[0,4])"), lacks);
  fails(of_members(R"("shape":[],"data_offsets":[0,4])"), lacks);
  fails(of_members(R"("dtype":"F32","dtype":"F32")"), "\"dtype\" appears twice in one object");
  fails(of_members(R"("shape":[1],"shape":[1])"), "\"shape\" appears twice in one object");
  fails(of_members(R"("data_offsets":[0,4],"data_offsets":[0,4])"),
        "\"data_offsets\" appears twice in one object");
  fails(of_members(R"("layout":"dense")"),
        "tensor \"x\" has a member \"layout\": the format has dtype, shape and data_offsets");

  fails(of_members(R"("dtype":32)"), "the dtype of tensor \"x\" is no string");
  fails(of_members(R"("dtype":null)"), "the dtype of tensor \"x\" is no string");
  for (const char* shape : {"4", "true", "[[1]]", "[-1]", "[-0]", "[1.0]", "[1e3]", "[\"1\"]",
                            "[18446744073709551616]", "[9223372036854775808]"})
    fails(of_members(fmt::format(R"("shape":{})", shape)),
          "the shape of tensor \"x\" is no array of at most 64 whole numbers below 2^63");
  for (const char* offsets : {"7", "[]", "[0]", "[0,1,2]", "[0,-1]", "[0,1.5]", "[[0],1]"})
    fails(of_members(fmt::format(R"("data_offsets":{})", offsets)),
          "the data_offsets of tensor \"x\" are not two whole numbers below 2^64");
}

TEST(Safetensors, RefusesTextThatIsNotUtf8) {
  for (const char* bad : {"\x80", "\xC0\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80",
                          "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "\xFF"})
    EXPECT_THAT(refusal(fmt::format("{{\"__metadata__\":{{\"{}\":\"\"}}}}", bad), 0),
                HasSubstr("byte 18 of its header is not UTF-8"));
  for (const char* good : {"\x7F", "\xC2\x80", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEF\xBF\xBF",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    const std::string content =
        file_of(fmt::format("{{\"__metadata__\":{{\"{}\":\"\"}}}}", good), 0);
    EXPECT_TRUE(parse(content).metadata(good));
  }
}

// A deep nesting would overflow the stack of a recursive parser.
TEST(Safetensors, RefusesNestingOfAnyDepth) {
  EXPECT_THAT(refusal(of_members("\"shape\":" + std::string(1'000'000, '[')), 0),
              HasSubstr("the shape of tensor \"x\" is no array"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"x\":";
  EXPECT_THAT(refusal(objects, 0), HasSubstr("has a member \"x\""));
}

TEST(Safetensors, RefusesShapesOfTooManyDimensions) {
  const auto header = [](int rank) {
    std::string ones = "1";
    for (int i = 1; i < rank; ++i) ones += ",1";
    return of_members(R"("dtype":"F32","data_offsets":[0,4],"shape":[)" + ones + "]");
  };
  const std::string content = file_of(header(64), 4);
  EXPECT_EQ(parse(content).tensor(0).shape.size(), 64u);
  EXPECT_FALSE(parse(content).tensor(0).type());
  EXPECT_THAT(refusal(header(65), 4), HasSubstr("at most 64 whole numbers"));
}

// Tensors of bytes at these places.
std::string of_places(std::initializer_list<std::pair<std::uint64_t, std::uint64_t>> places) {
  std::string members;
  char name = 'a';
  for (const auto& [begin, end] : places)
    members += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})",
                           members.empty() ? "" : ",", name++, end - begin, begin, end);
  return "{" + members + "}";
}

TEST(Safetensors, RefusesDataThatTensorsDoNotCoverExactly) {
  const std::string exact = file_of(of_places({{2, 4}, {0, 2}, {2, 2}, {4, 4}}), 4);
  EXPECT_EQ(parse(exact).size(), 4u);
  EXPECT_THAT(refusal(of_places({{0, 2}, {2, 4}}), 5),
              HasSubstr("bytes 4 to 5 of the data belong"));
  EXPECT_THAT(refusal("{}", 1), HasSubstr("bytes 0 to 1 of the data belong to no tensor"));
  EXPECT_THAT(refusal(of_places({{1, 4}}), 4), HasSubstr("bytes 0 to 1 of the data belong"));
  EXPECT_THAT(refusal(of_places({{0, 1}, {3, 4}}), 4), HasSubstr("bytes 1 to 3 of the data"));
  EXPECT_THAT(refusal(of_places({{0, 3}, {2, 4}}), 4), HasSubstr("at byte 2 of the data, within"));
  EXPECT_THAT(refusal(of_places({{0, 4}, {0, 4}}), 4), HasSubstr("at byte 0 of the data, within"));
  EXPECT_THAT(refusal(of_places({{0, 4}, {1, 1}}), 4), HasSubstr("at byte 1 of the data, within"));
  EXPECT_THAT(refusal(of_places({{0, 5}}), 4),
              HasSubstr("ends at byte 5 of the data, of which there are 4"));
  EXPECT_THAT(refusal(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[3,2]}})", 4),
              HasSubstr("ends at byte 2 of the data, before its begin at 3"));
  EXPECT_THAT(
      refusal(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,18446744073709551615]}})", 4),
      HasSubstr("truncated"));
}

TEST(Safetensors, RefusesSizesThatDoNotFitTheShape) {
  const auto sized = [](std::string_view shape) {
    return refusal(
        fmt::format(R"({{"x":{{"dtype":"F32","shape":[{}],"data_offsets":[0,8]}}}})", shape), 8);
  };
  EXPECT_THAT(sized("3"), HasSubstr("\"x\" of type F32[3] needs 12 bytes of data and has 8"));
  EXPECT_THAT(sized(""), HasSubstr("needs 4 bytes"));
  EXPECT_THAT(sized("2,0"), HasSubstr("needs 0 bytes"));
  // These wrap round to 8 bytes.
  EXPECT_THAT(sized("4611686018427387906"), HasSubstr("needs more than 2^64 bytes"));
  EXPECT_THAT(sized("4294967296,4294967296,2"), HasSubstr("needs more than 2^64 bytes"));
}

TEST(Safetensors, RefusesNamesThatAppearTwice) {
  constexpr std::string_view tensor = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_THAT(refusal(fmt::format(R"({{"a":{0},"b":{0},"a":{0}}})", tensor), 0),
              HasSubstr("tensor \"a\" appears twice"));
  EXPECT_THAT(refusal(fmt::format(R"({{"a":{0},"\u0061":{0}}})", tensor), 0),
              HasSubstr("tensor \"a\" appears twice"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"k":"1","k":"1"}})", 0),
              HasSubstr("metadata key \"k\" appears twice"));
}

TEST(Safetensors, ShowsOddNamesOnOneShortLine) {
  const std::string name = "a\\n\\u001b[31m\\u009b" + std::string(1000, 'x');
  const std::string message = refusal(
      fmt::format(R"({{"{}":{{"dtype":"U8","shape":[2],"data_offsets":[0,1]}}}})", name), 1);
  EXPECT_THAT(message, HasSubstr("\"a\\x0a\\x1b[31m\\xc2\\x9bxxx"));
  EXPECT_LT(message.size(), 200u);
}

class SafetensorsFileTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory;
  std::filesystem::path path = directory.path / "model.safetensors";
};

std::vector<std::byte> random_bytes(std::size_t size, std::mt19937& random) {
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST_F(SafetensorsFileTest, ReadsBackWhatItWrote) {
  std::mt19937 random(1);
  const std::vector<NamedType> tensors = {{"odd", {DType::bf16, {3}}},
                                          {"w", {DType::f32, {2, 5}}},
                                          {"tok\"en\\s\n\u20ac", {DType::i32, {}}},
                                          {"another", {DType::bf16, {2, 2}}}};
  std::vector<std::vector<std::byte>> data;
  for (const NamedType& tensor : tensors) data.push_back(random_bytes(tensor.type.bytes(), random));
  const std::map<std::string, std::string> metadata = {
      {"step", "123456789012345678"}, {"options", "{\"a\": \"b\\\\\"}\t\x01"}, {"", ""}};
  write_safetensors(path, tensors, metadata,
                    [&](std::size_t i) { return std::span<const std::byte>(data[i]); });

  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto tensor = file.find(tensors[i].name);
    ASSERT_TRUE(tensor) << tensors[i].name;
    EXPECT_EQ(tensor->type(), tensors[i].type);
    EXPECT_TRUE(std::ranges::equal(tensor->bytes, data[i])) << tensors[i].name;
    // A mapping begins on a page.
    EXPECT_EQ(
        reinterpret_cast<std::uintptr_t>(tensor->bytes.data()) % size_of(tensors[i].type.dtype),
        0u);
  }
}

// The bytes are part of the contract: the same tensors make the same file.
TEST_F(SafetensorsFileTest, WritesTheFormatToTheByte) {
  const std::vector<NamedType> tensors = {{"h", {DType::bf16, {1}}}, {"f", {DType::f32, {1, 1}}}};
  write_safetensors(path, tensors, {{"format", "pt"}}, [&](std::size_t i) {
    return bytes_of(i == 0 ? std::string_view("hh") : std::string_view("ffff"));
  });
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("f":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},)"
                             R"("h":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(read_text_file(path, 1000), file_of(padded, 0) + "ffffhh");
}

TEST_F(SafetensorsFileTest, WritesNoTensorsAtAll) {
  write_safetensors(path, {}, {}, [](std::size_t) { return std::span<const std::byte>(); });
  EXPECT_EQ(read_text_file(path, 100), file_of("{}      ", 0));
  EXPECT_EQ(SafetensorsFile(path).size(), 0u);
}

TEST_F(SafetensorsFileTest, RefusesToWriteWhatTheFormatCannotHold) {
  const TensorType one{DType::f32, {}};
  const auto refusal_of = [&](std::vector<NamedType> tensors,
                              std::map<std::string, std::string> metadata, std::string_view data) {
    try {
      write_safetensors(path, tensors, metadata, [&](std::size_t) { return bytes_of(data); });
    } catch (const UsageError& error) {
      EXPECT_TRUE(std::filesystem::is_empty(directory.path));
      return std::string(error.what());
    }
    ADD_FAILURE() << "not refused";
    return std::string();
  };
  EXPECT_THAT(refusal_of({{"a", one}, {"b", one}, {"a", one}}, {}, "1234"),
              HasSubstr("two tensors are called \"a\""));
  EXPECT_THAT(refusal_of({{"__metadata__", one}}, {}, "1234"), HasSubstr("can be called"));
  EXPECT_THAT(refusal_of({{"\xFF", one}}, {}, "1234"), HasSubstr("\"\\xff\" is not UTF-8"));
  EXPECT_THAT(refusal_of({{"a", one}}, {{"k", "\xC3("}}, "1234"), HasSubstr("is not UTF-8"));
  EXPECT_THAT(refusal_of({{"a", one}}, {}, "12345"), HasSubstr("f32[] was given 5 bytes"));
}

TEST_F(SafetensorsFileTest, PassesOnWhatTheSystemRefuses) {
  EXPECT_THROW(SafetensorsFile{path}, IoError);
  EXPECT_THROW(SafetensorsFile{directory.path}, IoError);
  EXPECT_THROW(write_safetensors(directory.path / "no" / "file", {}, {},
                                 [](std::size_t) { return std::span<const std::byte>(); }),
               IoError);
}

}  // namespace
}  // namespace ridge
