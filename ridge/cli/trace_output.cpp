#include "ridge/cli/trace_output.h"

#include <filesystem>
#include <system_error>

#include "ridge/base/error.h"
#include "ridge/base/file.h"

namespace ridge {

void check_output(const std::string& flag, const std::string& file,
                  std::span<const std::string> traces) {
  std::error_code ignored;
  for (const std::string& trace : traces)
    if (std::filesystem::equivalent(trace, file, ignored))
      throw UsageError("{} {} is the trace itself; give another file", flag, file);
  probe_writing(file);
}

}  // namespace ridge
