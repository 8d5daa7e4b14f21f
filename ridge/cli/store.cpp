// `ridge store`: the file that runs are kept in.

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/units.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/cli/terminal.h"
#include "ridge/study/store.h"
#include "ridge/study/store_file.h"
#include "ridge/study/store_schema.h"
#include "ridge/study/utc.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

int init(const std::string& named) {
  const fs::path file = named.empty() ? default_store_file() : fs::path(named);
  if (!file.parent_path().empty()) make_directories(file.parent_path());
  const bool made = make_store(file);
  if (!made) Store{file};  // which may be refused
  Terminal().line(fmt::format(
      "{} {}", made ? "Made an empty store of runs:" : "There is a store already:", file.string()));
  return 0;
}

int check(const std::string& named) {
  const fs::path file = existing_store_file(named);
  Terminal terminal;
  terminal.busy("Checking the store...");
  Store store(file);
  const std::vector<std::string> faults = store.faults();
  const StoreStats stats = store.stats();
  terminal.line(fmt::format("{}: version {}, {} runs in {}", file.string(), stats.version,
                            format_count(stats.runs), format_bytes(stats.bytes)));
  if (stats.runs > 0)
    terminal.line(fmt::format("From {} to {}; machines: {}, programs: {}, studies: {}",
                              utc_text(stats.first), utc_text(stats.last), stats.machines,
                              stats.programs, stats.studies));
  for (const std::string& fault : faults) terminal.line(fault);
  if (!faults.empty())
    throw FormatError("{} is damaged; save what can be read with: ridge runs export FILE",
                      file.string());
  terminal.line("Nothing is damaged");
  return 0;
}

}  // namespace

void add_store_command(Command program, Action& action) {
  const Command store = program.add_subcommand("store", "Make and check the store of runs");
  store.take_one_subcommand();
  store.callback([store, &action] {
    if (store.chosen_subcommands().empty())
      action = []() -> int { throw UsageError("ridge store does what? there are: init, check"); };
  });
  const auto add = [&](const char* name, const char* help, int (*run)(const std::string&),
                       const char* file_help) {
    const Command command = store.add_subcommand(name, help);
    const auto file = std::make_shared<std::string>();
    add_value(command, "--store", *file, file_help).type_name("FILE");
    command.callback([run, file, &action] { action = [run, file] { return run(*file); }; });
  };
  add("init", "Make a store for this directory and those below it", init,
      "Make this file (default: .ridge/runs.db)");
  add("check", "Look for damage", check,
      "Check this store (default: $RIDGE_STORE, else .ridge/runs.db here or above)");
}

}  // namespace ridge
