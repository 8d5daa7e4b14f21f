#pragma once

#include <string_view>

// The files of this folder, as the build embeds them; see ridge/report/page/assets.h.
namespace ridge {

extern const std::string_view dashboard_template, dashboard_style;
extern const std::string_view dashboard_backend, dashboard_columns, dashboard_charts,
    dashboard_runs, dashboard_run, dashboard_compare, dashboard_trends, dashboard_studies,
    dashboard_live, dashboard_app;

}  // namespace ridge
