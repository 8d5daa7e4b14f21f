#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ridge {

// `ridge ops --space`: the operators of workloads, as their steps run them, against their floors.
struct SpaceRequest {
  std::vector<std::string> networks;  // empty: all
  std::vector<std::string> configs;   // files of options of further runs
  std::string mode = "both", version = "v4", dtype = "fp32", device = "auto", json_file;
  std::int64_t batch_size = 0;  // 0: that of `ridge bench`
  std::int64_t threads = 0, top = 30;
  double least_share = 3;  // percent of a step from which a slow operator counts
};

int ops_space(const SpaceRequest& request);

}  // namespace ridge
