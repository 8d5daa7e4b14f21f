#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "ridge/analyze/ceilings.h"

namespace ridge {

// What a profile directory holds, as one JSON document for the page of `ridge report`: the content
// of each of its files under the file's name, null where there is none, and what their names do not
// say. Each file is as its schema in ridge/report/schemas says. IoError for a directory that is no
// profile; FormatError, naming the file and the place, for a file that is not so.
nlohmann::ordered_json profile_document(const std::filesystem::path& profile);

// The same for a store: without the path, which says nothing where the store may have gone.
nlohmann::ordered_json kept_profile(const std::filesystem::path& profile);

// FormatError, naming the place, unless a document from elsewhere is as these two make it.
void check_profile_document(const nlohmann::ordered_json& document);

// Draws the roofline of a document in place of the one that the profile was analyzed with.
void set_roof(nlohmann::ordered_json& document, const Roof& roof);

// The CPU and the threads of a profiled run, as far as its files say.
struct ProfiledMachine {
  std::string device = "cpu", hardware;
  int threads = 0;  // 0: not known
  bool has_roof = false;
};
ProfiledMachine profiled_machine(const nlohmann::ordered_json& document);

// The page of a profile.
std::string report_page(const nlohmann::ordered_json& document);

}  // namespace ridge
