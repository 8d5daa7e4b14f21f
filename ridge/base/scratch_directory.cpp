#include "ridge/base/scratch_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "ridge/base/error.h"

namespace ridge {

namespace fs = std::filesystem;

ScratchDirectory::ScratchDirectory(std::string_view prefix) {
  std::error_code fault;
  const fs::path parent = fs::temp_directory_path(fault);
  if (fault)
    throw IoError("there is no temporary directory: {}; set TMPDIR to one", fault.message());
  std::string name = (parent / (std::string(prefix) + "-XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr)
    throw IoError("cannot make a directory in {}: {}; set TMPDIR to another", parent.string(),
                  std::strerror(errno));
  path_ = name;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace ridge
