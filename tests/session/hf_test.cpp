#include "ridge/session/hf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/safetensors.h"
#include "ridge/cpu/device.h"
#include "ridge/session/checkpoint.h"
#include "ridge/session/language.h"
#include "ridge/session/session.h"
#include "tests/base/message_of.h"
#include "tests/base/temporary_directory.h"
#include "tests/session/runs.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

RunOptions small_options() {
  RunOptions o = small_llama(
      {.vocab_size = 11, .hidden_dim = 24, .intermediate_dim = 10, .batch_size = 1, .seq_len = 7});
  o.norm_eps = 1e-5;
  o.rope_theta = 5000;
  o.resolve();
  return o;
}

std::vector<float> read(Executor& executor, Value value) {
  std::vector<float> content(static_cast<std::size_t>(value.shape().numel()));
  executor.read(value, std::span(content));
  return content;
}

std::map<std::string, std::vector<float>> parameters_of(Graph& graph, Executor& executor) {
  std::map<std::string, std::vector<float>> parameters;
  for (const Value& p : graph.parameters()) parameters[graph.info(p.id).name] = read(executor, p);
  return parameters;
}

// A tensor of a file to be made.
struct Made {
  std::string name;
  TensorType type;
  std::vector<std::byte> bytes;
};

std::vector<Made> tensors_in(const fs::path& path) {
  const SafetensorsFile file(path);
  std::vector<Made> tensors;
  for (std::size_t i = 0; i < file.size(); ++i) {
    const StoredTensor t = file.tensor(i);
    tensors.push_back({t.name, t.type().value(), {t.bytes.begin(), t.bytes.end()}});
  }
  return tensors;
}

void write(const fs::path& path, const std::vector<Made>& tensors) {
  std::vector<NamedType> types;
  for (const Made& t : tensors) types.push_back({t.name, t.type});
  write_safetensors(path, types, {}, [&](std::size_t i) { return std::span(tensors[i].bytes); });
}

// A model that has been trained for a step, so that no two weights are alike, and its folder.
class HfTest : public ::testing::Test {
 protected:
  void make(const RunOptions& options) {
    options_ = options;
    trainer_ = std::make_unique<Session>(options, device_);
    trainer_->step();
    trainer_->save(checkpoint_);
    export_hf(checkpoint_, folder_);
  }

  json config() const { return json::parse(read_text_file(folder_ / "config.json", 1 << 20)); }
  void edit_config(const std::string& key, const json& value) {
    json edited = config();
    edited[key] = value;
    write_text_file(folder_ / "config.json", edited.dump());
  }

  LlamaConfig config_of_folder() const {
    RunOptions options;
    apply_hf_config(options, folder_);
    return llama_config(options);
  }
  std::map<std::string, std::vector<float>> read_back() {
    Graph graph;
    const LlamaConfig config = config_of_folder();
    build_llama(graph, config, 1, 1);
    initialize_from_hf(folder_, config, graph);
    Executor executor(graph, device_);
    executor.initialize(0);
    return parameters_of(graph, executor);
  }

  CpuDevice device_{2};
  TemporaryDirectory directory_;
  fs::path checkpoint_ = directory_.path / "checkpoint.safetensors";
  fs::path folder_ = directory_.path / "made" / "hf";
  fs::path weights_ = folder_ / "model.safetensors";
  RunOptions options_;
  std::unique_ptr<Session> trainer_;
};

TEST_F(HfTest, ReadsBackWhatItWrote) {
  for (const bool tied : {false, true})
    for (const std::int64_t kv_heads : {1, 2, 4}) {
      RunOptions options = small_options();
      options.tie_embeddings = tied;
      options.n_kv_heads = kv_heads;
      make(options);
      EXPECT_EQ(config_of_folder(), llama_config(options));
      EXPECT_EQ(read_back(), parameters_of(trainer_->graph(), trainer_->executor()));
    }
}

TEST_F(HfTest, WritesTheirNamesAndTurnsHalvesOfHeads) {
  make(small_options());
  const SafetensorsFile file(weights_);
  EXPECT_EQ(file.metadata("format"), "pt");
  std::vector<std::string> names;
  for (std::size_t i = 0; i < file.size(); ++i) names.push_back(file.tensor(i).name);
  std::vector<std::string> expected{"lm_head.weight", "model.embed_tokens.weight",
                                    "model.norm.weight"};
  for (const char* layer : {"model.layers.0.", "model.layers.1."})
    for (const char* name : {"input_layernorm", "mlp.down_proj", "mlp.gate_proj", "mlp.up_proj",
                             "post_attention_layernorm", "self_attn.k_proj", "self_attn.o_proj",
                             "self_attn.q_proj", "self_attn.v_proj"})
      expected.push_back(std::string(layer) + name + ".weight");
  EXPECT_THAT(names, ::testing::UnorderedElementsAreArray(expected));

  const auto parameters = parameters_of(trainer_->graph(), trainer_->executor());
  const auto theirs = [&](const std::string& name, std::int64_t row) {
    const StoredTensor tensor = file.find("model.layers.1.self_attn." + name).value();
    std::vector<float> values(24);
    std::memcpy(values.data(), tensor.bytes.data() + row * 24 * 4, 24 * 4);
    return values;
  };
  const auto ours = [&](const std::string& name, std::int64_t row) {
    const float* values = parameters.at("layers.1.attention." + name).data() + row * 24;
    return std::vector<float>(values, values + 24);
  };
  // Heads of 6: their rows 0, 1, 2 turn with 3, 4, 5, our rows 0, 2, 4 with 1, 3, 5.
  EXPECT_EQ(theirs("q_proj.weight", 18 + 0), ours("q_proj.weight", 18 + 0));
  EXPECT_EQ(theirs("q_proj.weight", 18 + 1), ours("q_proj.weight", 18 + 2));
  EXPECT_EQ(theirs("q_proj.weight", 18 + 3), ours("q_proj.weight", 18 + 1));
  EXPECT_EQ(theirs("k_proj.weight", 6 + 2), ours("k_proj.weight", 6 + 4));
  EXPECT_EQ(theirs("k_proj.weight", 6 + 5), ours("k_proj.weight", 6 + 5));
  EXPECT_EQ(theirs("v_proj.weight", 1), ours("v_proj.weight", 1));
}

TEST_F(HfTest, ConfigurationSaysWhatTransformersNeeds) {
  make(small_options());
  const json c = config();
  EXPECT_EQ(c["architectures"], json({"LlamaForCausalLM"}));
  EXPECT_EQ(c["rope_theta"], 5000);
  EXPECT_EQ(c["rope_parameters"], json({{"rope_type", "default"}, {"rope_theta", 5000}}));
  EXPECT_EQ(c["rms_norm_eps"], 1e-5);
  EXPECT_EQ(c["head_dim"], 6);
  EXPECT_EQ(c["max_position_embeddings"], 7);
  EXPECT_EQ(c["tie_word_embeddings"], false);
}

TEST_F(HfTest, ReadsNarrowWeights) {
  make(small_options());
  std::vector<Made> tensors = tensors_in(weights_);
  const std::map<std::string, std::vector<float>> exact = read_back();
  for (Made& t : tensors) {
    std::vector<BFloat16> narrow;
    for (std::size_t i = 0; i < t.bytes.size(); i += 4) {
      float value;
      std::memcpy(&value, &t.bytes[i], 4);
      narrow.emplace_back(value);
    }
    const auto bytes = std::as_bytes(std::span(narrow));
    t = {t.name, {DType::bf16, t.type.shape}, {bytes.begin(), bytes.end()}};
  }
  write(weights_, tensors);
  for (const auto& [name, values] : read_back())
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], static_cast<float>(BFloat16(exact.at(name)[i]))) << name;
}

// Nothing here writes F16, so a file of it is put together by hand.
TEST_F(HfTest, ReadsHalfPrecision) {
  make(small_options());
  constexpr std::uint16_t halves[] = {0x3C00, 0xC000, 0x3555, 0x7BFF, 0x0400, 0x0001,
                                      0x83FF, 0x8000, 0x7C00, 0xFC00, 0x0000};
  constexpr float values[] = {1,           -2,    0.333251953125f, 65504,     0x1p-14f, 0x1p-24f,
                              -0x3FFp-24f, -0.0f, INFINITY,        -INFINITY, 0};
  std::string header = "{", data;
  for (const Made& t : tensors_in(weights_)) {
    const std::size_t begin = data.size();
    for (std::int64_t i = 0; i < t.type.numel(); ++i)
      data.append(reinterpret_cast<const char*>(&halves[i % 11]), 2);
    header +=
        fmt::format(R"({}"{}":{{"dtype":"F16","shape":{},"data_offsets":[{},{}]}})",
                    begin == 0 ? "" : ",", t.name, t.type.shape.to_string(), begin, data.size());
  }
  header += "}";
  const std::uint64_t length = header.size();
  write_text_file(weights_, std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
  const std::vector<float> table = read_back().at("embedding.weight");
  for (std::size_t i = 0; i < table.size(); ++i) ASSERT_EQ(table[i], values[i % 11]) << i;
  EXPECT_TRUE(std::signbit(table[7]));
}

TEST_F(HfTest, ReadsSeveralFiles) {
  make(small_options());
  const auto whole = read_back();
  const std::vector<Made> tensors = tensors_in(weights_);
  const auto half = tensors.begin() + 9;
  write(folder_ / "model-1.safetensors", {tensors.begin(), half});
  write(folder_ / "model-2.safetensors", {half, tensors.end()});
  json map;
  for (auto t = tensors.begin(); t != tensors.end(); ++t)
    map[t->name] = t < half ? "model-1.safetensors" : "model-2.safetensors";
  const fs::path index = folder_ / "model.safetensors.index.json";
  write_text_file(index, json{{"metadata", {}}, {"weight_map", map}}.dump());
  fs::remove(weights_);
  EXPECT_EQ(read_back(), whole);

  for (const json& name :
       {json("../model-1.safetensors"), json("/etc/passwd"), json(".."), json(""), json(1)}) {
    write_text_file(index, json{{"weight_map", {{"lm_head.weight", name}}}}.dump());
    EXPECT_THAT(message_of<Error>([&] { read_back(); }), HasSubstr("is no name of a file"));
  }
  write_text_file(index, R"({"weight_map": {"lm_head.weight": "model-3.safetensors"}})");
  EXPECT_THROW(read_back(), IoError);
  write_text_file(index, R"({"weight_map": 1})");
  EXPECT_THAT(message_of<Error>([&] { read_back(); }), HasSubstr("no object 'weight_map'"));
}

TEST_F(HfTest, NamesTheFeatureItDoesNotHave) {
  make(small_options());
  const json rope = {{"rope_type", "llama3"}, {"factor", 8.0}};
  const json unsupported[] = {
      {"model_type", "mistral"},   {"hidden_act", "gelu"},
      {"attention_bias", true},    {"mlp_bias", true},
      {"attention_dropout", 0.1},  {"head_dim", 8},
      {"rope_scaling", rope},      {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
      {"rope_parameters", rope},   {"quantization_config", {{"bits", 4}}},
      {"rope_parameters", "none"}, {"vocab_size", "big"},
      {"hidden_size", 24.5},       {"num_hidden_layers", std::uint64_t{1} << 63},
      {"model_type", nullptr},     {"hidden_size", nullptr},
      {"rms_norm_eps", "small"},   {"tie_word_embeddings", 1}};
  const json sound = config();
  for (const json& edit : unsupported) {
    const std::string key = edit[0];
    write_text_file(folder_ / "config.json", sound.dump());
    edit_config(key, edit[1]);
    EXPECT_THROW(config_of_folder(), FormatError) << edit;
    const std::string message = message_of<Error>([&] { config_of_folder(); });
    EXPECT_THAT(message, HasSubstr((folder_ / "config.json").string())) << edit;
    EXPECT_THAT(message, HasSubstr(key.starts_with("rope") && edit[1].is_object()
                                       ? (edit[1].contains("type") ? "type" : "rope_type")
                                       : key))
        << edit;
  }
  write_text_file(folder_ / "config.json", sound.dump());
  edit_config("num_attention_heads", 5);
  EXPECT_THAT(message_of<Error>([&] { config_of_folder(); }), HasSubstr("4 are left over"));
  for (const char* text : {"", "[]", "{", "{}", "\xff", "null"}) {
    write_text_file(folder_ / "config.json", text);
    EXPECT_THROW(config_of_folder(), FormatError) << text;
  }
}

TEST_F(HfTest, ReadsWhatOlderTransformersWrote) {
  make(small_options());
  json old = config();
  for (const char* key : {"rope_parameters", "head_dim", "attention_bias", "mlp_bias", "dtype"})
    old.erase(key);
  old["num_key_value_heads"] = nullptr;
  write_text_file(folder_ / "config.json", old.dump());
  const LlamaConfig config = config_of_folder();
  EXPECT_EQ(config.rope_theta, 5000);
  EXPECT_EQ(config.n_kv_heads, config.n_heads);
}

TEST_F(HfTest, WeightsMustBeThoseOfTheConfiguration) {
  make(small_options());
  const std::vector<Made> sound = tensors_in(weights_);

  std::vector<Made> tensors = sound;
  tensors.pop_back();
  write(weights_, tensors);
  EXPECT_THAT(message_of<Error>([&] { read_back(); }), HasSubstr("lack model.norm.weight"));

  tensors = sound;
  tensors.push_back(
      {"model.layers.0.self_attn.q_proj.bias", {DType::f32, {1}}, std::vector<std::byte>(4)});
  write(weights_, tensors);
  EXPECT_THAT(message_of<Error>([&] { read_back(); }), HasSubstr("self_attn.q_proj.bias"));

  tensors = sound;
  tensors[1].type.shape = {24, 11};
  write(weights_, tensors);
  EXPECT_THAT(message_of<Error>([&] { read_back(); }), HasSubstr("has the shape [24, 11]"));

  tensors = sound;
  tensors[1].type.dtype = DType::i32;
  write(weights_, tensors);
  EXPECT_THAT(message_of<Error>([&] { read_back(); }), HasSubstr("is I32"));

  // What says nothing new is passed over.
  tensors = sound;
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq",
                     {DType::f32, {1}},
                     std::vector<std::byte>(4)});
  write(weights_, tensors);
  EXPECT_EQ(read_back(), parameters_of(trainer_->graph(), trainer_->executor()));

  fs::remove(weights_);
  EXPECT_THROW(read_back(), IoError);
}

TEST_F(HfTest, SizesComeFromTheFolder) {
  make(small_options());
  RunOptions options;
  apply_hf_config(options, folder_);
  EXPECT_EQ(options.norm_eps, 1e-5);
  options.resolve();
  EXPECT_EQ(llama_config(options), llama_config(options_));

  apply_hf_config(options, folder_, {"hidden-dim", "norm-eps"});  // the same is no contradiction
  options = RunOptions();
  options.n_layers = 3;
  EXPECT_THAT(message_of<Error>([&] { apply_hf_config(options, folder_); }),
              HasSubstr("--n-layers is 3, but the model"));
  options = RunOptions();  // whose hidden_dim is 256, but was it said?
  EXPECT_THROW(apply_hf_config(options, folder_, {"hidden-dim"}), UsageError);
  EXPECT_THROW(apply_hf_config(options, folder_, {"tie-embeddings", "rope-theta"}), UsageError);
}

TEST_F(HfTest, RefusesWhatIsNoCheckpointAndWhereItCannotWrite) {
  make(small_options());
  EXPECT_THROW(export_hf(weights_, directory_.path / "new"), FormatError);
  EXPECT_FALSE(fs::exists(directory_.path / "new"));
  EXPECT_THROW(export_hf(directory_.path / "none", directory_.path / "new"), IoError);
  EXPECT_THAT(message_of<Error>([&] { export_hf(checkpoint_, checkpoint_ / "below"); }),
              HasSubstr("cannot make the directory"));
  EXPECT_THAT(message_of<Error>([&] { export_hf(checkpoint_, checkpoint_); }),
              HasSubstr("cannot make the directory"));
}

TEST_F(HfTest, RefusesACheckpointWithoutItsWeights) {
  make(small_options());
  const SafetensorsFile file(checkpoint_);
  std::vector<NamedType> types;
  std::vector<StoredTensor> tensors;
  for (std::size_t i = 0; i < file.size(); ++i)
    if (file.tensor(i).name != "norm.weight") {
      tensors.push_back(file.tensor(i));
      types.push_back({tensors.back().name, tensors.back().type().value()});
    }
  const fs::path damaged = directory_.path / "damaged.safetensors";
  write_safetensors(damaged, types, file.metadata(),
                    [&](std::size_t i) { return tensors[i].bytes; });
  EXPECT_THAT(message_of<Error>([&] { export_hf(damaged, directory_.path / "new"); }),
              HasSubstr("norm.weight"));
  EXPECT_FALSE(fs::exists(directory_.path / "new"));
}

}  // namespace
}  // namespace ridge
