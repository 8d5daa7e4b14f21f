#pragma once

#include "ridge/study/store.h"
#include "ridge/study/store_schema.h"
#include "tests/base/temporary_directory.h"
#include "tests/study/made_runs.h"

namespace ridge::testing {

// An empty store, which goes with its owner.
struct MadeStore {
  TemporaryDirectory directory;
  std::filesystem::path file = directory.path / "runs.db";
  bool made = make_store(file);
  Store store{file};
};

}  // namespace ridge::testing
