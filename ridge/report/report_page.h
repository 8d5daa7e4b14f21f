#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "ridge/analyze/ceilings.h"

namespace ridge {

// What a profile directory holds, as one JSON document for the page of `ridge report`: the content
// of each of its files under the file's name, null where there is none, and what their names do not
// say. `roof` draws the roofline in place of the one that the profile was analyzed with.
// IoError for a directory that is no profile; FormatError, naming the file and the member, for a
// file that does not hold what the page reads.
std::string profile_document(const std::filesystem::path& profile,
                             const std::optional<Roof>& roof = {});

// The CPU and the threads of a profiled run, as far as its files say.
struct ProfiledMachine {
  std::string device = "cpu", hardware;
  int threads = 0;  // 0: not known
  bool has_roof = false;
};
ProfiledMachine profiled_machine(std::string_view document);

// One HTML file that needs no other and no network. Nothing in the document can break it or become
// part of its code.
std::string report_page(std::string_view document);

}  // namespace ridge
