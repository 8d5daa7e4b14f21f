#include "ridge/session/hf.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/safetensors.h"
#include "ridge/session/checkpoint.h"
#include "ridge/session/language.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view config_name = "config.json";
constexpr std::string_view weights_name = "model.safetensors";
constexpr std::string_view index_name = "model.safetensors.index.json";
constexpr std::size_t max_json_bytes = std::size_t{16} << 20;

json read_json(const fs::path& path) {
  json object = json::parse(read_text_file(path, max_json_bytes), nullptr, false);
  if (!object.is_object()) throw FormatError("{}: it is not a JSON object", path.string());
  return object;
}

// Configuration ---------------------------------------------------------------------------------

// Members of a JSON object, where null is as good as absent.
class Members {
 public:
  Members(const json& object, const fs::path& path) : object_(object), path_(path) {}

  const json* find(const std::string& key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  std::int64_t integer(const std::string& key) const {
    const json* value = find(key);
    if (!value) throw FormatError("{}: '{}' is missing", path_.string(), key);
    const bool too_large =
        value->is_number_unsigned() && value->get<std::uint64_t>() > std::uint64_t{1} << 62;
    if (!value->is_number_integer() || too_large) refuse(key, "a whole number, of 62 bits at most");
    return value->get<std::int64_t>();
  }

  std::int64_t integer(const std::string& key, std::int64_t otherwise) const {
    return find(key) ? integer(key) : otherwise;
  }

  double number(const std::string& key, double otherwise) const {
    const json* value = find(key);
    if (value && !value->is_number()) refuse(key, "a number");
    return value ? value->get<double>() : otherwise;
  }

  bool boolean(const std::string& key, bool otherwise) const {
    const json* value = find(key);
    if (value && !value->is_boolean()) refuse(key, "true or false");
    return value ? value->get<bool>() : otherwise;
  }

  // A member with which Ridge computes what it says only if it has one of these values.
  void require(const std::string& key, std::initializer_list<json> supported) const {
    const json* value = find(key);
    if (value && std::ranges::find(supported, *value) == supported.end())
      refuse(key, fmt::format("{}, nothing else is supported", supported.begin()->dump()));
  }

  [[noreturn]] void refuse(const std::string& key, std::string_view expected) const {
    std::string have = object_.at(key).dump(-1, ' ', true, json::error_handler_t::replace);
    if (have.size() > 60) have = have.substr(0, 60) + "..";
    throw FormatError("{}: '{}' is {}; it must be {}", path_.string(), key, have, expected);
  }

 private:
  const json& object_;
  const fs::path& path_;
};

// Transformers 5 has rope_parameters; before, there were rope_theta and, for the interpolated
// kinds, rope_scaling, whose kind was first called type.
double read_rope_theta(const Members& config, const fs::path& path) {
  double theta = config.number("rope_theta", 10000.0);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json* value = config.find(key);
    if (!value) continue;
    if (!value->is_object()) config.refuse(key, "an object");
    const Members rope(*value, path);
    rope.require("rope_type", {"default"});
    rope.require("type", {"default"});
    rope.require("partial_rotary_factor", {1.0});
    theta = rope.number("rope_theta", theta);
  }
  return theta;
}

// Only the options of the model's sizes are the folder's.
RunOptions read_sizes(const fs::path& folder) {
  const fs::path path = folder / config_name;
  const json object = read_json(path);
  const Members config(object, path);
  if (!config.find("model_type")) throw FormatError("{}: 'model_type' is missing", path.string());
  config.require("model_type", {"llama"});
  config.require("hidden_act", {"silu", "swish"});
  config.require("attention_bias", {false});
  config.require("mlp_bias", {false});
  config.require("attention_dropout", {0.0});
  if (config.find("quantization_config")) config.refuse("quantization_config", "absent");

  RunOptions sizes;
  sizes.vocab_size = config.integer("vocab_size");
  sizes.hidden_dim = config.integer("hidden_size");
  sizes.n_layers = config.integer("num_hidden_layers");
  sizes.n_heads = config.integer("num_attention_heads");
  sizes.n_kv_heads = config.integer("num_key_value_heads", sizes.n_heads);
  sizes.intermediate_dim = config.integer("intermediate_size");
  sizes.norm_eps = config.number("rms_norm_eps", 1e-6);
  sizes.rope_theta = read_rope_theta(config, path);
  sizes.tie_embeddings = config.boolean("tie_word_embeddings", false);
  try {
    llama_config(sizes).check();
  } catch (const UsageError& error) {
    throw FormatError("{}: {}", path.string(), error.what());
  }
  config.require("head_dim", {llama_config(sizes).head_dim()});
  return sizes;
}

json config_of(const LlamaConfig& config, const RunOptions& options) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", config.vocab_size},
          {"hidden_size", config.hidden_dim},
          {"intermediate_size", config.intermediate_dim},
          {"num_hidden_layers", config.n_layers},
          {"num_attention_heads", config.n_heads},
          {"num_key_value_heads", config.n_kv_heads},
          {"head_dim", config.head_dim()},
          {"hidden_act", "silu"},
          {"max_position_embeddings", options.seq_len},
          {"rms_norm_eps", options.norm_eps},
          // Where transformers 5 looks for it, and where those before do.
          {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", options.rope_theta}}},
          {"rope_theta", options.rope_theta},
          {"rope_scaling", nullptr},
          {"tie_word_embeddings", config.tie_embeddings},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"mlp_bias", false},
          // The vocabulary is whatever the data were tokenized with: it has no special tokens here.
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr},
          {"pad_token_id", nullptr},
          {"use_cache", true},
          {"dtype", "float32"},
          {"torch_dtype", "float32"}};
}

// Weights ---------------------------------------------------------------------------------------

// A parameter on both sides.
struct Weight {
  Value value;
  std::string hf_name;
  std::int64_t rotary_heads = 0;  // heads whose rows are in another order; 0 if rows are the same
};

std::string hf_name_of(std::string_view name) {
  if (name == "output.weight") return "lm_head.weight";
  std::string result = fmt::format("model.{}", name);
  constexpr std::pair<std::string_view, std::string_view> renamed[] = {
      {"model.embedding.", "model.embed_tokens."},
      {".attention.", ".self_attn."},
      {".feed_forward.", ".mlp."},
      {".attention_norm.", ".input_layernorm."},
      {".ffn_norm.", ".post_attention_layernorm."}};
  for (const auto& [ours, theirs] : renamed)
    if (const std::size_t at = result.find(ours); at != result.npos)
      result.replace(at, ours.size(), theirs);
  return result;
}

std::vector<Weight> weights_of(Graph& graph, const LlamaConfig& config) {
  std::vector<Weight> weights;
  for (const Value& value : graph.parameters()) {
    const std::string& name = graph.info(value.id).name;
    const std::int64_t heads = name.ends_with("q_proj.weight")   ? config.n_heads
                               : name.ends_with("k_proj.weight") ? config.n_kv_heads
                                                                 : 0;
    weights.push_back({value, hf_name_of(name), heads});
  }
  return weights;
}

enum class Layout { halves, pairs };  // of the elements of a head that are rotated together

// The rows of a [heads * d, columns] matrix in the other order: row i of a head's halves is row 2i
// of its pairs, and row i + d/2 is row 2i + 1.
std::vector<float> reorder_heads(std::span<const float> from, const Shape& shape,
                                 std::int64_t heads, Layout to) {
  std::vector<float> result(from.size());
  const std::int64_t d = shape[0] / heads, columns = shape[1];
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    const std::int64_t head = row / d, i = row % d;
    const std::int64_t in_pairs = head * d + (i < d / 2 ? 2 * i : 2 * (i - d / 2) + 1);
    const std::int64_t source = to == Layout::pairs ? row : in_pairs;
    const std::int64_t target = to == Layout::pairs ? in_pairs : row;
    std::copy_n(from.begin() + source * columns, columns, result.begin() + target * columns);
  }
  return result;
}

// The weights' files of a folder: one, or those that the index lists.
std::vector<fs::path> weight_files(const fs::path& folder) {
  const fs::path index_path = folder / index_name;
  std::error_code absent;
  if (fs::exists(folder / weights_name, absent) || !fs::exists(index_path, absent))
    return {folder / weights_name};
  const json index = read_json(index_path);
  const Members members(index, index_path);
  const json* map = members.find("weight_map");
  if (!map || !map->is_object())
    throw FormatError("{}: it has no object 'weight_map'", index_path.string());
  std::set<fs::path> files;
  for (const json& file : *map) {
    // Nothing outside the folder is ever opened.
    const fs::path name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name == ".." || name != name.filename())
      throw FormatError("{}: {} is no name of a file in the folder", index_path.string(),
                        file.dump(-1, ' ', true, json::error_handler_t::replace));
    files.insert(folder / name);
  }
  return {files.begin(), files.end()};
}

using TensorsByName = std::map<std::string, StoredTensor>;

// Tensors that tell nothing new: tables of angles, and the tied output projection.
bool is_redundant(const std::string& name, const LlamaConfig& config) {
  return name.ends_with(".rotary_emb.inv_freq") ||
         (config.tie_embeddings && name == "lm_head.weight");
}

TensorsByName tensors_of(const std::vector<SafetensorsFile>& files, const LlamaConfig& config) {
  TensorsByName tensors;
  for (const SafetensorsFile& file : files)
    for (std::size_t i = 0; i < file.size(); ++i) {
      StoredTensor tensor = file.tensor(i);
      const std::string name = tensor.name;
      if (!is_redundant(name, config)) tensors.insert_or_assign(name, std::move(tensor));
    }
  return tensors;
}

const StoredTensor& matching_tensor(const TensorsByName& tensors, const Weight& weight,
                                    const fs::path& folder) {
  const auto it = tensors.find(weight.hf_name);
  if (it == tensors.end())
    throw FormatError("{}: its weights lack {}", folder.string(), weight.hf_name);
  const StoredTensor& tensor = it->second;
  if (!std::ranges::equal(tensor.shape, weight.value.shape().dims()))
    throw FormatError("{}: {} has the shape [{}], but by {} it has {}", folder.string(),
                      weight.hf_name, fmt::join(tensor.shape, ", "), config_name,
                      weight.value.shape().to_string());
  if (!tensor.is_floating())
    throw FormatError("{}: {} is {}; it must be F32, F16, BF16 or F64", folder.string(),
                      weight.hf_name, tensor.dtype);
  return tensor;
}

}  // namespace

void apply_hf_config(RunOptions& options, const fs::path& folder,
                     const std::vector<std::string>& given) {
  const RunOptions sizes = read_sizes(folder), defaults;
  const auto apply = [&](std::string_view name, auto& option, const auto& unset, const auto& size) {
    const bool is_given = option != unset || std::ranges::find(given, name) != given.end();
    // In f32, as the model has it: 1e-5 may have come as a float.
    if (is_given && static_cast<float>(option) != static_cast<float>(size))
      throw UsageError("--{} is {}, but the model in {} has {}: leave the option out", name, option,
                       folder.string(), size);
    option = size;
  };
  apply("vocab-size", options.vocab_size, defaults.vocab_size, sizes.vocab_size);
  apply("hidden-dim", options.hidden_dim, defaults.hidden_dim, sizes.hidden_dim);
  apply("n-layers", options.n_layers, defaults.n_layers, sizes.n_layers);
  apply("n-heads", options.n_heads, defaults.n_heads, sizes.n_heads);
  apply("n-kv-heads", options.n_kv_heads, defaults.n_kv_heads, sizes.n_kv_heads);
  apply("intermediate-dim", options.intermediate_dim, defaults.intermediate_dim,
        sizes.intermediate_dim);
  apply("norm-eps", options.norm_eps, defaults.norm_eps, sizes.norm_eps);
  apply("rope-theta", options.rope_theta, defaults.rope_theta, sizes.rope_theta);
  apply("tie-embeddings", options.tie_embeddings, defaults.tie_embeddings, sizes.tie_embeddings);
}

void initialize_from_hf(const fs::path& folder, const LlamaConfig& config, Graph& graph) {
  std::vector<SafetensorsFile> files;
  for (const fs::path& path : weight_files(folder)) files.emplace_back(path);
  TensorsByName tensors = tensors_of(files, config);
  const std::vector<Weight> weights = weights_of(graph, config);
  std::vector<const StoredTensor*> found;
  for (const Weight& weight : weights) found.push_back(&matching_tensor(tensors, weight, folder));
  if (tensors.size() > weights.size()) {
    for (const Weight& weight : weights) tensors.erase(weight.hf_name);
    throw FormatError("{}: the model has a tensor {}, which Ridge's has not", folder.string(),
                      tensors.begin()->first);
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Shape& shape = weights[i].value.shape();
    std::vector<float> floats = found[i]->floats();
    if (weights[i].rotary_heads > 0)
      floats = reorder_heads(floats, shape, weights[i].rotary_heads, Layout::pairs);
    graph.set_init(weights[i].value, Init::of(std::move(floats)));
  }
}

void export_hf(const fs::path& checkpoint, const fs::path& folder) {
  const RunOptions options = options_of_checkpoint(checkpoint);
  if (options.network != language_network)
    throw UsageError("{} is a checkpoint of {}; only those of {} can be exported",
                     checkpoint.string(), options.network, language_network);
  const SafetensorsFile file(checkpoint);
  Graph graph;
  build_llama(graph, llama_config(options), 1, 1);  // for the names and shapes of its parameters
  const std::vector<Weight> weights = weights_of(graph, llama_config(options));

  std::vector<StoredTensor> stored;
  std::vector<NamedType> types;
  for (const Weight& weight : weights) {
    const std::string& name = graph.info(weight.value.id).name;
    const auto tensor = file.find(name);
    if (!tensor || tensor->type() != weight.value.type())
      throw FormatError("{} is damaged: it has no tensor {} of {}", checkpoint.string(), name,
                        weight.value.type().to_string());
    stored.push_back(*tensor);
    types.push_back({weight.hf_name, weight.value.type()});
  }

  make_directories(folder);
  std::vector<float> floats;
  write_safetensors(folder / weights_name, types, {{"format", "pt"}}, [&](std::size_t i) {
    const Weight& weight = weights[i];
    const Shape& shape = weight.value.shape();
    floats = stored[i].floats();
    if (weight.rotary_heads > 0)
      floats = reorder_heads(floats, shape, weight.rotary_heads, Layout::halves);
    return std::as_bytes(std::span<const float>(floats));
  });
  write_text_file(folder / config_name, config_of(llama_config(options), options).dump(2) + "\n");
}

}  // namespace ridge
