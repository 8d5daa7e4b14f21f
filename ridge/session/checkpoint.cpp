#include "ridge/session/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/part.h"
#include "ridge/base/safetensors.h"
#include "ridge/session/joint_file.h"

namespace ridge {
namespace {

constexpr std::string_view format_name = "ridge-checkpoint-1";

// What a run goes on with: parameters, buffers and optimizer state, in the order of the file.
// Inputs are fed anew and accumulated gradients are zero between steps.
std::vector<Value> checkpointed(Graph& graph) {
  std::vector<Value> values;
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    const ValueInfo& info = graph.info(id);
    // Packed values are written by part, and copies with what they repeat.
    if (!graph.outlives_runs(id) || !info.parts.empty() || info.copy_of != no_value) continue;
    if (info.role == Role::parameter || info.role == Role::buffer ||
        info.role == Role::optimizer_state)
      values.push_back(graph.value(id));
  }
  std::ranges::stable_sort(values, std::greater{},
                           [](const Value& value) { return size_of(value.dtype()); });
  return values;
}

// What a rank writes of the values: of one that is shared out, its part; of those that all ranks
// have alike, those that begin in its part of the file. Buffers may differ, as statistics of a part
// of each batch do: the first rank's are kept.
std::vector<TensorPiece> pieces_of(Graph& graph, const Executor& executor,
                                   std::span<const Value> values, const Communicator& ranks) {
  std::size_t all = 0, before = 0;
  for (const Value& value : values) all += value.type().bytes();
  const auto part = part_of(static_cast<std::int64_t>(all), ranks.rank(), ranks.count());
  std::vector<TensorPiece> pieces;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t bytes = values[i].type().bytes();
    const auto place = static_cast<std::int64_t>(std::exchange(before, before + bytes));
    if (const auto own = executor.own_bytes(values[i])) {
      if (own->bytes > 0) pieces.push_back({i, own->begin, own->bytes});
    } else if (graph.info(values[i].id).role == Role::buffer
                   ? ranks.rank() == 0
                   : place >= part.first && place < part.first + part.count) {
      pieces.push_back({i, 0, bytes});
    }
  }
  return pieces;
}

JointContent content_of(Graph& graph, Executor& executor, std::span<const Value> values,
                        const Communicator& ranks) {
  return {.pieces = pieces_of(graph, executor, values, ranks),
          .read =
              [&executor, values](const TensorPiece& piece, std::span<std::byte> bytes) {
                executor.own_bytes(values[piece.tensor])
                    ? executor.read_own(values[piece.tensor], bytes)
                    : executor.read(values[piece.tensor], bytes);
              },
          .read_whole = [&executor, values](
                            std::size_t i,
                            std::span<std::byte> bytes) { executor.read(values[i], bytes); }};
}

std::string required_metadata(const SafetensorsFile& file, const std::filesystem::path& path,
                              std::string_view key) {
  if (file.metadata("format") != format_name)
    throw FormatError("{} is no Ridge checkpoint: its metadata do not say {}", path.string(),
                      format_name);
  auto text = file.metadata(key);
  if (!text) throw FormatError("{} is damaged: its metadata lack '{}'", path.string(), key);
  return *std::move(text);
}

RunOptions stored_options(const SafetensorsFile& file, const std::filesystem::path& path) {
  RunOptions options;
  try {
    apply_json(options, required_metadata(file, path, "options"));
    options.resolve();
  } catch (const UsageError& error) {
    throw FormatError("{} is damaged: its options are not valid: {}", path.string(), error.what());
  }
  return options;
}

std::int64_t stored_step(const SafetensorsFile& file, const std::filesystem::path& path) {
  const std::string text = required_metadata(file, path, "step");
  std::int64_t step = -1;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (fault != std::errc() || end != text.data() + text.size() || step < 0)
    throw FormatError("{} is damaged: its step is '{}'", path.string(), text);
  return step;
}

// The tensor of that name and exactly that type.
StoredTensor matching_tensor(const SafetensorsFile& file, const std::filesystem::path& path,
                             const ValueInfo& info) {
  const auto tensor = file.find(info.name);
  if (!tensor)
    throw FormatError("{} has no tensor {}: it belongs to another model", path.string(), info.name);
  if (tensor->type() != info.type)
    throw FormatError("{}: tensor {} is {}[{}] where this model has {}: it belongs to another one",
                      path.string(), info.name, tensor->dtype, fmt::join(tensor->shape, ", "),
                      info.type.to_string());
  return *tensor;
}

// Everything is checked before anything is written, so that a refusal leaves the model as it was.
void restore(const SafetensorsFile& file, const std::filesystem::path& path, Graph& graph,
             Executor& executor, const std::vector<Value>& values) {
  std::vector<StoredTensor> tensors;
  for (const Value& value : values)
    tensors.push_back(matching_tensor(file, path, graph.info(value.id)));
  for (std::size_t i = 0; i < values.size(); ++i) executor.write(values[i], tensors[i].bytes);
}

template <class T>
void require_same(std::string_view name, const T& stored, const T& asked) {
  if (stored != asked)
    throw UsageError(
        "the checkpoint was written with {} {}, not {}: resuming would not continue that run", name,
        stored, asked);
}

// The options that two runs must share to be one, beside those of the model: the others may change
// on the way.
bool decides_course(std::string_view name) {
  static constexpr std::string_view names[] = {
      "seed", "batch-size",          "seq-len",   "gradient-accumulation-steps",
      "data", "validation-fraction", "optimizer", "network"};
  return std::ranges::find(names, name) != std::end(names);
}

// What a resumed run must share with the first for both to be one run.
void check_same_course(RunOptions stored, RunOptions asked) {
  require_same("network", stored.network, asked.network);
  const std::vector<OptionInfo> before = options_of(stored), now = options_of(asked);
  for (std::size_t i = 0; i < before.size(); ++i) {
    const OptionInfo& option = before[i];
    const bool of_model = option.group == "Model";
    if (!of_model && !decides_course(option.name)) continue;
    std::visit(
        [&]<class T>(const T* value) {
          const T& other = *std::get<T*>(now[i].target);
          if (of_model && *value != other)
            throw FormatError("the checkpoint belongs to a model of other sizes: {} is {}, not {}",
                              option.name, *value, other);
          require_same(option.name, *value, other);
        },
        option.target);
  }
  // Loss scaling has state of its own, and counts the updates done.
  if (stored.precision().loss_scaling || asked.precision().loss_scaling)
    require_same("dtype", stored.dtype, asked.dtype);
}

}  // namespace

void write_checkpoint(const std::filesystem::path& path, const RunOptions& options,
                      std::int64_t step, Graph& graph, Executor& executor, Communicator* ranks) {
  const std::vector<Value> values = checkpointed(graph);
  std::vector<NamedType> tensors;
  for (const Value& value : values) tensors.push_back({graph.info(value.id).name, value.type()});
  const std::map<std::string, std::string> metadata{{"format", std::string(format_name)},
                                                    {"step", std::to_string(step)},
                                                    {"options", to_json(course_of(options))}};
  if (ranks)
    return write_together(path, tensors, metadata, *ranks,
                          content_of(graph, executor, values, *ranks));
  std::vector<std::byte> host;
  write_safetensors(path, tensors, metadata, [&](std::size_t i) {
    host.resize(values[i].type().bytes());
    executor.read(values[i], std::span<std::byte>(host));
    return std::span<const std::byte>(host);
  });
}

std::int64_t read_checkpoint(const std::filesystem::path& path, const RunOptions& options,
                             Graph& graph, Executor& executor) {
  const SafetensorsFile file(path);
  const std::int64_t step = stored_step(file, path);
  check_same_course(stored_options(file, path), options);
  const std::vector<Value> values = checkpointed(graph);
  if (file.size() != values.size())
    throw FormatError("{} has {} tensors where this model has {}: it belongs to another one",
                      path.string(), file.size(), values.size());
  restore(file, path, graph, executor, values);
  return step;
}

void initialize_from_checkpoint(const std::filesystem::path& path, Graph& graph) {
  const SafetensorsFile file(path);
  stored_step(file, path);
  for (const Value& value : checkpointed(graph)) {
    const ValueInfo& info = graph.info(value.id);
    graph.set_init(value, Init::of(matching_tensor(file, path, info).floats()));
  }
}

RunOptions options_of_checkpoint(const std::filesystem::path& path) {
  // Resolved they have values, too, that follow from what is not of the course.
  return course_of(stored_options(SafetensorsFile(path), path));
}

}  // namespace ridge
