#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "ridge/report/dashboard/dashboard.h"

namespace ridge {

// What a server has beside its answers: "/", "/app.js" and "/style.css". None at any other path.
struct DashboardPart {
  std::string_view type, text;
};
std::optional<DashboardPart> dashboard_part(std::string_view path);

// The page as one file that needs no server: `replies` has under the names of the answers what they
// would be.
std::string dashboard_file(const nlohmann::ordered_json& replies);

struct DashboardExport {
  std::string filter;
  std::int64_t limit = 500;  // runs: the newest
};
struct DashboardExported {
  std::int64_t runs = 0, total = 0;                // written; that the filter finds
  std::size_t bytes = 0;                           // of index.html
  std::int64_t reports = 0, reports_left_out = 0;  // of profiles: written; beyond a bound
};
// Writes the dashboard of a store into a directory, as index.html and, of each profile of its runs,
// profile-RUN.html; index.html comes last. IoError for a directory that has other files in it,
// which are somebody else's.
DashboardExported export_dashboard(Dashboard& dashboard, const std::filesystem::path& directory,
                                   const DashboardExport& request);

}  // namespace ridge
