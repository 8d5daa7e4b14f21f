#pragma once

#include <string>

namespace ridge {

// All networks with their parameters and the work of one image.
std::string network_list_text();
std::string network_list_json();

}  // namespace ridge
