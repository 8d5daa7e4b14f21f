// `ridge study`: many runs of one question, in turn, and the laws that they follow.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/ranges.h"
#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/cli/bench_request.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/cli/run_request.h"
#include "ridge/cli/study_rounds.h"
#include "ridge/cli/terminal.h"
#include "ridge/report/study_svg.h"
#include "ridge/session/devices.h"
#include "ridge/study/definition.h"
#include "ridge/study/store.h"
#include "ridge/study/store_file.h"
#include "ridge/study/store_schema.h"
#include "ridge/study/study_result.h"
#include "ridge/study/study_text.h"
#include "ridge/study/utc.h"
#include "ridge/study/variant_plan.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t max_rounds = 1000;
constexpr double longest_limit = 30.0 * 24 * 3600;

// Training as ridge train has it, but for fewer steps, since there are rounds of them; networks as
// ridge bench has them.
RunOptions study_defaults(std::string_view network) {
  if (network != RunOptions{}.network) return bench_defaults(network);
  RunOptions options = default_options(network);
  options.num_steps = 20;
  return options;
}

// Where a study writes, and what it goes on with, are its own flags.
const OptionFilter is_study_option =
    all_but({"resume", "save-every", "output-dir", "profile-dir", "log-interval", "flops"});

struct StudyRequest {
  std::optional<RunRequest> run;
  std::vector<std::string> sizes, vary;
  std::string name, resume, store, output, json_file, markdown_file;
  std::int64_t rounds = 3;
  double time_limit = 3600;
  bool profilers = false, force = false, retry = false;
};

std::string printed(const fs::path& path) { return fs::proximate(path).string(); }

// The store to write: it is made where there is none.
fs::path store_for(const StudyRequest& request) {
  const auto found = find_store_file(request.store);
  const fs::path file = found ? found->path : default_store_file();
  if (!found) make_directories(file.parent_path());
  if (!found || found->named) make_store(file);
  if (Store(file).read_only())
    throw IoError("cannot write {}: the file or its directory is read-only", file.string());
  return file;
}

void make_absolute(std::string& path) {
  if (!path.empty()) path = fs::absolute(path).string();
}

StudyDefinition definition_of(const StudyRequest& request) {
  std::vector<StudyAxis> axes;
  for (const std::string& axis : request.vary) axes.push_back(parse_axis(axis));
  const std::vector<std::string> set = request.run->set_options();
  StudyDefinition definition{
      .rounds = request.rounds, .profiles = request.profilers, .time_limit = request.time_limit};
  // The options as given, before anything is derived from what a variant may change.
  RunOptions base;
  const RunOptions resolved = request.run->options([&](RunOptions& options) {
    base = options;
    if (options.profiling() && !request.profilers)
      throw UsageError("profiles are for a run after the rounds: give --enable-profilers too");
    if (!request.sizes.empty() && options.network != RunOptions{}.network)
      throw UsageError("sizes are those of tiny_llama: leave out {}, or --network {}",
                       fmt::join(request.sizes, " "), options.network);
    for (const std::string& size : request.sizes) study_size(size);
    // Any value will do for what varies: each variant is checked for itself.
    RunOptions plain = study_defaults(options.network);
    const std::vector<OptionInfo> fields = options_of(options), defaults = options_of(plain);
    for (const StudyAxis& axis : axes)
      for (std::size_t i = 0; i < fields.size(); ++i)
        if (fields[i].name == axis.option)
          std::visit([&]<class T>(T* field) { *field = *std::get<T*>(defaults[i].target); },
                     fields[i].target);
  });
  base.device = resolved.device;
  for (std::string* path : {&base.data, &base.weights, &base.init_from}) make_absolute(*path);
  definition.seed = static_cast<std::uint64_t>(base.seed);
  definition.variants = variants_of(base, request.sizes, axes, set);
  for (StudyVariant& variant : definition.variants)
    if (variant.options.device == "auto") variant.options.device = resolved.device;
  definition.profile = base;
  return definition;
}

void check(const StudyRequest& request) {
  if (request.retry && request.resume.empty())
    throw UsageError("--retry is for a study that there is: name it with --resume");
  if (!request.name.empty()) checked_study_name(request.name);
  check_range("rounds", request.rounds, 1, max_rounds);
  check_real("time-limit", request.time_limit, 1, longest_limit);
  for (const std::string& file : {request.json_file, request.markdown_file})
    if (!file.empty()) probe_writing(file);
}

// Notes the variants that do not fit; OutOfMemoryError if none does.
void refuse_variants(Store& store, const std::string& name, const StudyDefinition& definition,
                     const std::vector<VariantPlan>& plans, Terminal& terminal) {
  for (std::size_t v = 0; v < plans.size(); ++v) {
    if (plans[v].fits()) continue;
    const std::string why = shortage_text(definition.variants[v], plans[v]);
    store.add_fault(name, {.variant = static_cast<std::int64_t>(v), .round = 0}, why);
    terminal.line(fmt::format("{} is not run: it {}", name_of(definition.variants[v]), why));
  }
}

void require_one_that_fits(const StudyDefinition& definition,
                           const std::vector<VariantPlan>& plans) {
  if (std::ranges::any_of(plans, &VariantPlan::fits)) return;
  const auto least = std::ranges::min_element(plans, {}, &VariantPlan::needed_bytes);
  const StudyVariant& variant =
      definition.variants[static_cast<std::size_t>(least - plans.begin())];
  const std::vector<std::string> changes =
      fitting_changes(variant.options, *open_device(variant.options));
  throw OutOfMemoryError(
      "no variant fits: {}, the smallest, {}{}", name_of(variant), shortage_text(variant, *least),
      changes.empty() ? ""
                      : fmt::format("; it would fit with {}", fmt::join(changes, ", or with ")));
}

std::vector<VariantPlan> plans_of(const StudyDefinition& definition, Terminal& terminal) {
  const auto all = std::ssize(definition.variants);
  terminal.busy("Planning the variants...");
  return plan_variants(definition.variants, [&](std::int64_t done) {
    terminal.busy(fmt::format("Planned {} of {} variants...", done, all));
  });
}

// Begins the study of a command line, or goes on with the one of that definition; its name.
std::string begin(StudyDefinition definition, const StudyRequest& request, Store& store,
                  Terminal& terminal) {
  const std::string name =
      checked_study_name(request.name.empty() ? default_study_name(definition) : request.name);
  if (const auto there = store.find_study(name)) {
    if (!study_from_json(there->definition).measures_as(definition))
      throw UsageError(
          "there is a study {} of other variants or rounds already: go on with it by ridge study "
          "--resume {}, or give this one another --name",
          name, name);
    return name;
  }
  definition.output =
      fs::absolute(request.output.empty() ? fs::path("studies") / name : fs::path(request.output))
          .lexically_normal()
          .string();
  const std::vector<VariantPlan> plans = plans_of(definition, terminal);
  if (!request.force) require_one_that_fits(definition, plans);
  make_directories(definition.output);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  store.add_study({.name = name,
                   .created = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
                   .definition = to_json(definition),
                   .plans = to_json(plans)});
  if (!request.force) refuse_variants(store, name, definition, plans, terminal);
  return name;
}

std::string resume(const StudyRequest& request, Store& store, Terminal& terminal) {
  std::vector<std::string> given = request.run->given();
  if (!request.sizes.empty()) given.push_back("a size");
  if (!request.vary.empty()) given.emplace_back("vary");
  if (!request.name.empty()) given.emplace_back("name");
  if (!given.empty())
    throw UsageError("--resume goes on with a study as it was defined: leave out {}{}",
                     given.front() == "a size" ? "" : "--", given.front());
  const StudyDefinition definition = study_from_json(store.study(request.resume).definition);
  if (request.retry) {
    store.forget_faults(request.resume);
    if (!request.force)
      refuse_variants(store, request.resume, definition, plans_of(definition, terminal), terminal);
  }
  return request.resume;
}

void write(const fs::path& file, const std::string& text, Terminal& terminal) {
  write_text_file(file, text);
  terminal.line(fmt::format("Wrote {}", printed(file)));
}

void write_asked(const StudyResult& result, const StudyRequest& request, Terminal& terminal) {
  if (!request.json_file.empty()) write(request.json_file, study_json(result), terminal);
  if (!request.markdown_file.empty())
    write(request.markdown_file, study_markdown(result, {}), terminal);
}

void write_results(const StudyResult& result, Terminal& terminal) {
  const fs::path output = result.definition.output;
  std::vector<StudyPicture> pictures = study_pictures(result);
  std::vector<std::string> names;
  for (const StudyPicture& picture : pictures) {
    write_text_file(output / picture.file, picture.svg);
    names.push_back(picture.file);
  }
  write_text_file(output / "results.json", study_json(result));
  write_text_file(output / "results.md", study_markdown(result, names));
  terminal.line("");
  terminal.line(fmt::format("Wrote results.md, results.json and {} to {}",
                            counted(std::ssize(pictures), "picture"), printed(output)));
}

int study(const StudyRequest& request) {
  check(request);
  Terminal terminal;
  // Mistakes in a command line come before a store that it makes.
  std::optional<StudyDefinition> definition;
  if (request.resume.empty()) definition = definition_of(request);
  const fs::path file = definition ? store_for(request) : existing_store_file(request.store);
  Store store(file);
  const std::string name = definition ? begin(*std::move(definition), request, store, terminal)
                                      : resume(request, store, terminal);
  const StudyResult before = read_study(store, name);
  terminal.line(fmt::format("Study {}: {} in {}, {} of {} measurements done", name,
                            counted(std::ssize(before.variants), "variant"),
                            counted(before.definition.rounds, "round"), before.measured,
                            before.measured + before.left));
  if (const int signal = measure_study(file, name, terminal)) {
    const StudyResult now = read_study(store, name);
    const auto usual = find_store_file("");
    const bool must_be_named = !usual || usual->path != file;
    terminal.line(fmt::format(
        "Interrupted: {} of {} measurements are kept. Go on with: ridge study --resume {}{}",
        now.measured, now.measured + now.left, name,
        must_be_named ? " --store " + file.string() : ""));
    return 128 + signal;
  }
  const StudyResult result = read_study(store, name);
  if (result.measured == 0)
    throw Error(
        "no variant of the study {} could be measured. {}: {}; ridge study --resume {} "
        "--retry tries again",
        name, name_of(result.definition.variants.front()), result.variants.front().outcome, name);
  terminal.line("");
  terminal.lines(study_text(result));
  write_results(result, terminal);
  write_asked(result, request, terminal);
  return 0;
}

int show(const StudyRequest& request) {
  if (request.name.empty())
    throw UsageError("show which study? ridge study list names those that there are");
  Store store(existing_store_file(request.store));
  const StudyResult result = read_study(store, request.name);
  Terminal terminal;
  terminal.lines(study_text(result));
  write_asked(result, request, terminal);
  return 0;
}

int list(const StudyRequest& request) {
  Store store(existing_store_file(request.store));
  Terminal terminal;
  std::vector<TextRow> rows;
  for (const StudyRow& row : store.studies()) {
    const StudyResult result = result_of(row, store.study_entries(row.name));
    rows.push_back({row.name, utc_text(row.created).substr(0, 10),
                    std::to_string(result.definition.variants.size()),
                    std::to_string(result.definition.rounds),
                    fmt::format("{} of {}", result.measured, result.measured + result.left)});
  }
  if (rows.empty()) {
    terminal.line("No studies");
    return 0;
  }
  const TextColumn columns[] = {{.header = "Study", .left = true},
                                {.header = "Begun (UTC)", .left = true},
                                {.header = "Variants"},
                                {.header = "Rounds"},
                                {.header = "Measured"}};
  terminal.lines(text_table(columns, rows));
  return 0;
}

void add_store_flag(Command command, StudyRequest& request, const char* help) {
  add_value(command, "--store", request.store, help).type_name("FILE").group("Study");
}

void add_output_flags(Command command, StudyRequest& request) {
  add_value(command, "--json", request.json_file, "Write all of it to this JSON file")
      .type_name("FILE")
      .group("Study");
  add_value(command, "--markdown", request.markdown_file, "Write tables and laws to this file")
      .type_name("FILE")
      .group("Study");
}

void add_study_flags(Command command, StudyRequest& request) {
  command
      .add_option("sizes", request.sizes, "Measure these: tiny, small, medium, large, very_large")
      .type_name("SIZE");
  command.add_option("--vary", request.vary, "Measure with each of these values of an option")
      .type_name("OPTION=V1,V2")
      .take_one_each_time()
      .group("Study");
  const auto add = [&](const char* flag, auto& field, const char* help, const char* type) {
    add_value(command, flag, field, help).type_name(type).group("Study");
  };
  add("--rounds", request.rounds, "Measure each variant so many times, in turn", "N");
  add("--name", request.name, "Name the study; default: by what it measures", "NAME");
  add("--resume", request.resume, "Go on with this study where it stopped", "NAME");
  command.add_flag("--retry", request.retry, "With --resume: run again what failed or did not fit")
      .group("Study");
  command.add_flag("--force", request.force, "Run also what does not fit in memory by its plan")
      .group("Study");
  add("--time-limit", request.time_limit, "Stop a measurement after so many seconds", "SECONDS");
  command
      .add_flag("--enable-profilers", request.profilers,
                "Profile each variant in one more run after the rounds")
      .group("Study");
  add_store_flag(command, request,
                 "Keep the runs in this store (default: $RIDGE_STORE, else .ridge/runs.db here or "
                 "above, which is made if there is none)");
  add("--output-dir", request.output,
      "Write results, pictures and logs here (default: studies/NAME)", "DIR");
  add_output_flags(command, request);
}

constexpr const char* study_footer =
    R"(Each measurement is a process of its own and is kept in the store of runs. The variants take turns
in rounds, so that what disturbs the machine disturbs all of them. A study that was stopped, even by
a power cut, goes on with the same command line, or with --resume.

Examples:
  ridge study tiny small medium
  ridge study tiny --vary batch-size=1,2,4,8,16,32 --vary version=v1,v4
  ridge study --vary seq-len=64,128,256,512 --num-steps 10 --rounds 6
  ridge study --network resnet18 --vary batch-size=1,4,16 --vary dtype=fp32,bf16
  ridge study medium large --version v4 --dtype bf16 --enable-profilers --name cards
  ridge study --resume cards
  ridge study list
  ridge study show cards --markdown cards.md)";

}  // namespace

void add_study_command(Command program, Action& action) {
  const Command command =
      program.add_subcommand("study", "Measure many variants in turn, and find how they scale");
  const auto request = std::make_shared<StudyRequest>();
  add_study_flags(command, *request);
  request->run.emplace(command,
                       RunRequest::Config{.defaults = study_defaults, .has = is_study_option});
  command.footer(study_footer);
  command.take_one_subcommand();
  const auto add = [&](const char* name, const char* help, int (*run)(const StudyRequest&)) {
    const Command sub = command.add_subcommand(name, help);
    add_store_flag(sub, *request,
                   "Read this store (default: $RIDGE_STORE, else .ridge/runs.db here or above)");
    sub.callback([run, request, &action] { action = [run, request] { return run(*request); }; });
    return sub;
  };
  const Command show_command = add("show", "Print a study that is in the store", show);
  show_command.add_option("name", request->name, "Print this study").type_name("NAME");
  add_output_flags(show_command, *request);
  add("list", "List the studies of a store", list);
  command.callback([request, command, &action] {
    if (!command.chosen_subcommands().empty()) return;
    action = [request] {
      if (request->sizes.empty() && request->vary.empty() && request->resume.empty())
        throw UsageError(
            "a study of what? name sizes (tiny, small, ..), or values with --vary "
            "batch-size=4,8; see ridge study --help");
      return study(*request);
    };
  });
}

}  // namespace ridge
