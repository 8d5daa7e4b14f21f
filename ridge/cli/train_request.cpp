#include "ridge/cli/train_request.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/cli/system.h"
#include "ridge/session/checkpoint.h"
#include "ridge/session/hf.h"

namespace ridge {
namespace {

constexpr std::size_t max_config_bytes = std::size_t{1} << 16;

void apply_config_file(TrainOptions& options, const std::string& path) {
  try {
    apply_json(options, read_text_file(path, max_config_bytes));
  } catch (const FormatError& error) {
    throw FormatError("{}: {}", path, error.what());
  }
}

}  // namespace

TrainRequest::TrainRequest(CLI::App& command, std::string version, const TrainOptions& defaults)
    : defaults_(defaults), flags_(command, {}, defaults), version_(std::move(version)) {
  command.add_option("--config", config_, "Options from this JSON file; flags win")
      ->type_name("FILE")
      ->group("Output");
}

TrainOptions TrainRequest::lay_over(TrainOptions base) const {
  if (!config_.empty()) apply_config_file(base, config_);
  if (!version_.empty()) base.version = version_;
  flags_.apply(base);
  return base;
}

std::vector<std::string> TrainRequest::given() const {
  std::vector<std::string> names = flags_.given();
  if (!config_.empty()) names.emplace_back("config");
  return names;
}

TrainOptions TrainRequest::options(const TrainOptions& defaults) const {
  TrainOptions options = lay_over(defaults);
  if (!options.resume.empty()) {
    TrainOptions base = options_of_checkpoint(options.resume);
    // The run goes on where it was: beside its checkpoint.
    const std::filesystem::path home = std::filesystem::path(options.resume).parent_path();
    base.output_dir = home.empty() ? "." : home.string();
    options = lay_over(base);
  }
  if (!options.init_from.empty()) apply_hf_config(options, options.init_from, flags_.given());
  options.resolve();
  if (options.device == "auto" && has_gpu()) options.device = "cuda";
  return options;
}

}  // namespace ridge
