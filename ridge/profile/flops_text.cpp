// The FLOPs report as text, in the layout of DeepSpeed's FLOPs profiler.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "ridge/base/text_table.h"
#include "ridge/base/units.h"
#include "ridge/profile/flops_report.h"

namespace ridge {
namespace {

constexpr std::size_t line_width = 90;

std::string heading(std::string_view title) {
  return fmt::format("{:-^{}}\n", fmt::format(" {} ", title), line_width);
}

// "2.87 M", and nothing but "0" for nothing.
std::string si(double value) {
  constexpr std::string_view units[] = {"", " k", " M", " G", " T", " P"};
  if (value == 0) return "0";
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(units)) value /= 1000, ++unit;
  return unit == 0 ? fmt::format("{:.0f}", value) : fmt::format("{:.2f}{}", value, units[unit]);
}

std::string si_unit(double value, std::string_view unit) {
  const std::string number = si(value);
  return number.find(' ') == std::string::npos ? fmt::format("{} {}", number, unit)
                                               : number + std::string(unit);
}

// Figures of one step.
class PerStep {
 public:
  explicit PerStep(const FlopsReport& report)
      : steps_(static_cast<double>(std::max<std::int64_t>(report.steps, 1))) {}
  double operator()(std::int64_t sum) const { return static_cast<double>(sum) / steps_; }
  std::string time(std::int64_t ns) const { return format_duration((*this)(ns)*1e-9); }

 private:
  double steps_;
};

// Whether anything ran after the forward pass: of inference there is nothing to say of the rest.
bool trains(const FlopsReport& r) {
  return r.root().backward().flops + r.root().optimizer().flops > 0;
}

std::string summary(const FlopsReport& r, const FlopsText& options) {
  const PerStep step(r);
  const ModuleWork& root = r.root();
  const bool training = trains(r);
  std::string text;
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("{:<62}{}\n", fmt::format("{}:", label), value);
  };
  const auto rate = [&](std::int64_t flops, std::int64_t ns) {
    const double seconds = step(ns) * 1e-9;
    return si_unit(seconds > 0 ? step(flops) / seconds : 0, "FLOPS");
  };
  // Where a step is run as several batches whose gradients add up, a phase is all of them.
  const auto [fwd, bwd, opt] = r.phase_ns;
  line("world size", "1");
  line("data parallel size", "1");
  line("model parallel size", "1");
  if (options.samples_per_step > 0)
    line("batch size (samples a step)", fmt::format("{}", options.samples_per_step));
  line("params", si(static_cast<double>(root.parameters)));
  line("fwd MACs", si_unit(step(root.forward().macs), "MACs"));
  line("fwd flops", si(step(root.forward().flops)));
  if (training) {
    line("bwd flops (counted)", si(step(root.backward().flops)));
    line("step flops", si(step(root.optimizer().flops)));
    line("fwd+bwd+step flops", si(step(root.all().flops)));
    line("bwd flops / fwd flops",
         root.forward().flops > 0
             ? fmt::format("{:.3f}", step(root.backward().flops) / step(root.forward().flops))
             : "-");
  }
  line("fwd latency", step.time(fwd));
  if (training) line("bwd latency", step.time(bwd));
  line("fwd FLOPS = fwd flops / fwd latency", rate(root.forward().flops, fwd));
  if (training) {
    line("bwd FLOPS = bwd flops / bwd latency", rate(root.backward().flops, bwd));
    line("fwd+bwd FLOPS = fwd+bwd flops / (fwd+bwd latency)",
         rate(root.forward().flops + root.backward().flops, fwd + bwd));
    line("step latency", step.time(opt));
  }
  line("iter latency", step.time(r.step_ns));
  line(training ? "FLOPS = fwd+bwd+step flops / iter latency" : "FLOPS = fwd flops / iter latency",
       rate(root.all().flops, r.step_ns));
  if (options.samples_per_step > 0 && r.step_ns > 0)
    line("samples/second", fmt::format("{:.2f}", static_cast<double>(options.samples_per_step) /
                                                     (step(r.step_ns) * 1e-9)));
  return text;
}

std::string aggregated(const FlopsReport& r, const FlopsText& options) {
  const PerStep step(r);
  std::map<std::size_t, std::map<std::string, ModuleWork>> depths;
  for (std::size_t m = 0; m < r.tree.modules.size(); ++m) {
    const Module& module = r.tree.modules[m];
    if (module.depth <= options.max_depth)
      depths[module.depth][m == 0 ? std::string(options.model) : kind_of(module.path)] +=
          r.total[m];
  }
  using Measure = std::function<std::int64_t(const ModuleWork&)>;
  using Show = std::function<std::string(std::int64_t)>;
  const auto top = [&](const std::map<std::string, ModuleWork>& kinds, std::string_view label,
                       const Measure& measure, const Show& show) {
    std::vector<std::pair<std::int64_t, std::string>> sorted;
    for (const auto& [name, work] : kinds)
      if (const std::int64_t amount = measure(work); amount > 0) sorted.emplace_back(amount, name);
    std::ranges::stable_sort(sorted, std::greater{}, [](const auto& s) { return s.first; });
    std::string line = fmt::format("    {:<11} - {{", label);
    for (std::size_t i = 0; i < std::min(options.top_modules, sorted.size()); ++i)
      line += fmt::format("{}'{}': '{}'", i > 0 ? ", " : "",
                          shortened(printable(sorted[i].second), 60), show(sorted[i].first));
    return line + "}\n";
  };
  std::string text;
  for (const auto& [depth, kinds] : depths) {
    text += fmt::format("depth {}:\n", depth);
    text += top(
        kinds, "params", [](const ModuleWork& w) { return w.parameters; },
        [](std::int64_t n) { return si(static_cast<double>(n)); });
    text += top(
        kinds, "MACs", [](const ModuleWork& w) { return w.forward().macs; },
        [&](std::int64_t n) { return si_unit(step(n), "MACs"); });
    text += top(
        kinds, "flops", [](const ModuleWork& w) { return w.all().flops; },
        [&](std::int64_t n) { return si(step(n)); });
    text += top(
        kinds, "fwd latency", [](const ModuleWork& w) { return w.forward().ns; },
        [&](std::int64_t n) { return step.time(n); });
    if (!trains(r)) continue;
    text += top(
        kinds, "bwd latency", [](const ModuleWork& w) { return w.backward().ns; },
        [&](std::int64_t n) { return step.time(n); });
  }
  return text;
}

// A projection that was fused with others has left a module with nothing in it.
bool is_idle(const ModuleWork& w) {
  return w.parameters == 0 && w.all().flops == 0 && w.all().bytes == 0;
}

std::string detailed(const FlopsReport& r, const FlopsText& options) {
  const PerStep step(r);
  const ModuleWork& root = r.root();
  const auto share = [](std::int64_t part, std::int64_t whole) {
    return part > 0 ? fmt::format("{:.1f}",
                                  100.0 * static_cast<double>(part) / static_cast<double>(whole))
                    : "-";
  };
  const auto amount = [&](double value) { return value > 0 ? si(value) : "-"; };
  const auto milliseconds = [&](std::int64_t ns) {
    return ns > 0 ? fmt::format("{:.3f}", step(ns) * 1e-6) : "-";
  };
  const auto rate = [](const PhaseWork& work) {
    return work.flops > 0 ? fmt::format("{:.1f}", work.flops_per_second() * 1e-9) : "-";
  };
  const bool training = trains(r);
  std::vector<TextRow> rows;
  for (std::size_t m = 0; m < r.tree.modules.size(); ++m) {
    const Module& module = r.tree.modules[m];
    const ModuleWork& w = r.total[m];
    if (module.depth > options.max_depth || is_idle(w)) continue;
    TextRow& row = rows.emplace_back();
    row = {std::string(2 * std::min<std::size_t>(module.depth, 16), ' ') +
               (m == 0 ? std::string(options.model) : "(" + module.name + ")"),
           amount(static_cast<double>(w.parameters)),
           share(w.parameters, root.parameters),
           amount(step(w.forward().macs)),
           share(w.forward().macs, root.forward().macs),
           amount(step(w.forward().flops))};
    if (training) row.push_back(amount(step(w.backward().flops)));
    for (std::string cell : {share(w.all().flops, root.all().flops), milliseconds(w.forward().ns),
                             share(w.forward().ns, root.forward().ns), rate(w.forward())})
      row.push_back(std::move(cell));
    if (!training) continue;
    for (std::string cell : {milliseconds(w.backward().ns),
                             share(w.backward().ns, root.backward().ns), rate(w.backward())})
      row.push_back(std::move(cell));
  }
  std::vector<TextColumn> columns{{"Module", true, 40}, {"Params"}, {"%"}, {"MACs"}, {"%"},
                                  {"fwd flops"}};
  if (training) columns.push_back({"bwd flops"});
  for (const char* header : {"%", "fwd ms", "% fwd", "GFLOPS"}) columns.push_back({header});
  if (training)
    for (const char* header : {"bwd ms", "% bwd", "GFLOPS"}) columns.push_back({header});
  return text_table(columns, rows);
}

}  // namespace

std::string flops_report_text(const FlopsReport& report, const FlopsText& options) {
  std::string text = heading("Ridge FLOPs Profiler");
  text += report.steps > 1 ? fmt::format("Profile Summary at steps {} to {} (means of a step):\n",
                                         report.first_step, report.last_step)
                           : fmt::format("Profile Summary at step {}:\n", report.last_step);
  text +=
      "Notations:\n"
      "number of parameters (params), number of multiply-accumulate operations (MACs; only "
      "products\n"
      "and convolutions have them), number of floating-point operations (flops; of every operator, "
      "one\n"
      "MAC being two), floating-point operations per second (FLOPS), fwd latency (forward pass), "
      "bwd\n"
      "latency (backward pass), step (weight update), iter latency (the whole step)\n\n";
  text += summary(report, options);
  text += "\n" + heading("Aggregated Profile");
  text +=
      "Top modules in terms of params, MACs, flops or latency at different model depths, those "
      "that\n"
      "differ by their numbers alone taken together:\n";
  text += aggregated(report, options);
  text += "\n" + heading("Detailed Profile");
  text +=
      trains(report)
          ? "Each module with its submodules: params, forward MACs, forward and backward flops, "
            "forward\n"
            "and backward latency (of kernels alone) with the achieved GFLOPS. Every % is a "
            "share of the\n"
            "model's; that of flops is of forward, backward and optimizer together. Backward "
            "work is\n"
            "counted from the backward operators that ran, not derived from the forward ones.\n"
          : "Each module with its submodules: params, MACs, flops, and latency (of kernels "
            "alone) with the\n"
            "achieved GFLOPS. Every % is a share of the model's.\n";
  text += detailed(report, options);
  if (report.dropped > 0)
    text += fmt::format("Records that had no room: {}; every figure here is too small.\n",
                        format_count(static_cast<std::int64_t>(report.dropped)));
  return text + std::string(line_width, '-') + "\n";
}

}  // namespace ridge
