#include "ridge/cli/run_request.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/cli/command.h"
#include "ridge/session/checkpoint.h"
#include "ridge/session/devices.h"
#include "ridge/session/hf.h"

namespace ridge {
namespace {

constexpr std::size_t max_config_bytes = std::size_t{1} << 16;

// Returns the names of the options that the file sets.
std::vector<std::string> apply_config_file(RunOptions& options, const std::string& path) {
  if (path.empty()) return {};
  try {
    return apply_json(options, read_text_file(path, max_config_bytes));
  } catch (const FormatError& error) {
    throw FormatError("{}: {}", path, error.what());
  }
}

}  // namespace

RunOptions options_in_file(const std::string& path) {
  RunOptions options;
  apply_config_file(options, path);  // which network it is decides what lies below the rest
  options = default_options(options.network);
  apply_config_file(options, path);
  return options;
}

RunRequest::RunRequest(Command command, Config config)
    : settings_(std::move(config)),
      flags_(command, settings_.defaults(settings_.network), settings_.has) {
  command.add_option("--config", config_file_, "Read options from this JSON file; flags win")
      .type_name("FILE")
      .group("Output");
}

RunOptions RunRequest::lay_over(RunOptions base) const {
  apply_config_file(base, config_file_);
  if (settings_.adapt) base = settings_.adapt(std::move(base));
  flags_.apply(base);
  return base;
}

std::vector<std::string> RunRequest::given() const {
  std::vector<std::string> names = flags_.given();
  if (!config_file_.empty()) names.emplace_back("config");
  return names;
}

bool RunRequest::was_given(std::string_view name) const {
  const std::vector<std::string> names = flags_.given();
  return std::ranges::find(names, name) != names.end();
}

std::vector<std::string> RunRequest::set_options() const {
  RunOptions scratch;
  std::vector<std::string> names = apply_config_file(scratch, config_file_);
  for (std::string& name : flags_.given()) names.push_back(std::move(name));
  return names;
}

bool RunRequest::was_set(std::string_view name) const {
  const std::vector<std::string> names = set_options();
  return std::ranges::find(names, name) != names.end();
}

RunOptions RunRequest::options_of_network(std::string_view named,
                                          const std::function<void(RunOptions&)>& finish) const {
  // Which network it is decides the defaults, under which the rest is laid once more.
  const std::string network =
      named.empty() ? lay_over(settings_.defaults(settings_.network)).network : std::string(named);
  RunOptions options = lay_over(settings_.defaults(network));
  if (!named.empty()) options.network = network;
  if (!options.resume.empty()) {
    RunOptions base = options_of_checkpoint(options.resume);
    // The run goes on where it was: beside its checkpoint.
    const std::filesystem::path home = std::filesystem::path(options.resume).parent_path();
    base.output_dir = home.empty() ? "." : home.string();
    options = lay_over(base);
  }
  if (!options.init_from.empty()) apply_hf_config(options, options.init_from, flags_.given());
  if (finish) finish(options);
  options.resolve();
  if (options.device == "auto" && has_gpu()) options.device = gpu_name();
  return options;
}

}  // namespace ridge
