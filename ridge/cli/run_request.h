#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/cli/command.h"
#include "ridge/cli/flags.h"
#include "ridge/session/options.h"

namespace ridge {

// The options of the run that a configuration file describes, over the defaults of its network; not
// resolved. IoError, or FormatError that names the file.
RunOptions options_in_file(const std::string& path);

// The flags that describe a run of any workload, on one command. Outlives its parsing.
class RunRequest {
 public:
  // What a command takes for granted of a network: default_options() or some variation of it.
  using Defaults = std::function<RunOptions(std::string_view network)>;

  struct Config {
    std::string network = "tiny_llama";  // unless another is named
    Defaults defaults = default_options;
    OptionFilter has = {};  // which options the command has; null: all
    // What a command makes of the options that stand below the flags: of the defaults with the
    // configuration file over them, or the checkpoint's. Null: nothing.
    std::function<RunOptions(RunOptions)> adapt = {};
  };

  explicit RunRequest(Command command) : RunRequest(command, Config{}) {}
  RunRequest(Command command, Config config);

  // What the run will use: the flags over the configuration file, over the checkpoint's or Hugging
  // Face folder's options where one is named, over the defaults of the network that these name;
  // resolved, unless `finish` is to be called on what comes before that.
  RunOptions options(const std::function<void(RunOptions&)>& finish = {}) const {
    return options_of_network("", finish);
  }
  // The same of another network than the flags name: its defaults lie below them. Of theirs if
  // `network` is empty.
  RunOptions options_of_network(std::string_view network,
                                const std::function<void(RunOptions&)>& finish = {}) const;
  // Names of the flags that were given, --config among them.
  std::vector<std::string> given() const;
  bool was_given(std::string_view name) const;
  // Names of the options that a flag or the configuration file sets; whether it is one of them.
  std::vector<std::string> set_options() const;
  bool was_set(std::string_view name) const;

 private:
  RunOptions lay_over(RunOptions base) const;

  Config settings_;
  OptionFlags flags_;
  std::string config_file_;
};

}  // namespace ridge
