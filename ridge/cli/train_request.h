#pragma once

#include <string>
#include <vector>

#include "ridge/cli/flags.h"
#include "ridge/session/options.h"

namespace ridge {

// The flags that describe a training run, on one command. Outlives its parsing.
class TrainRequest {
 public:
  // `version` is what the program's own name asks for; empty if it says nothing.
  explicit TrainRequest(CLI::App& command, std::string version = "",
                        const TrainOptions& defaults = {});

  // What the run will use: the flags over the configuration file, over the checkpoint's or Hugging
  // Face folder's options where one is named, over the defaults; resolved.
  TrainOptions options() const { return options(defaults_); }
  TrainOptions options(const TrainOptions& defaults) const;
  std::vector<std::string> given()
      const;  // names of the flags that were given, --config among them

 private:
  TrainOptions lay_over(TrainOptions base) const;

  TrainOptions defaults_;
  OptionFlags flags_;
  std::string version_;
  std::string config_;
};

}  // namespace ridge
