#include "ridge/cli/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ridge/base/error.h"
#include "ridge/base/version.h"

namespace ridge {
namespace {

std::string replaced(std::string text, char what, std::string_view by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, 1, by);
  return text;
}

// Text for groff: no line of it is a request, and dashes stay dashes.
std::string roff(std::string text) {
  text = replaced(replaced(std::move(text), '\\', "\\e"), '-', "\\-");
  for (std::size_t at = 0; at < text.size();
       at = text.find('\n', at), at += at != std::string::npos) {
    if (at == std::string::npos) break;
    if (text[at] == '.' || text[at] == '\'') text.insert(at, "\\&");
  }
  return text;
}

std::vector<Command> shown_subcommands(Command command) {
  std::vector<Command> all = command.subcommands();
  std::erase_if(all, &Command::is_hidden);
  return all;
}

std::vector<Flag> shown_flags(Command command) {
  std::vector<Flag> all = command.flags();
  std::erase_if(all, [](const Flag& flag) { return flag.heading().empty(); });
  return all;
}

std::string dashed(std::string name) { return replaced(std::move(name), ' ', "-"); }

std::string synopsis(Command command) {
  std::string text = fmt::format(".B {}\n", roff(command.full_name()));
  if (!shown_subcommands(command).empty()) return text + ".I COMMAND\n[\\fIOPTION\\fR]...\n";
  text += "[\\fIOPTION\\fR]...\n";
  for (const Flag& flag : shown_flags(command))
    if (flag.is_argument()) text += fmt::format("[\\fI{}\\fR]...\n", roff(flag.name()));
  return text;
}

std::string flag_text(const Flag& flag) {
  std::string names;
  for (const std::string& name : flag.names_in_full())
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", roff(name));
  std::string value = flag.value_name();
  if (!value.empty()) value = fmt::format(" \\fI{}\\fR", roff(value));
  std::string help = roff(flag.help());
  if (!flag.default_value().empty())
    help += fmt::format(" ({} unless given)", roff(flag.default_value()));
  return fmt::format(".TP\n{}{}\n{}\n", names, value, help);
}

// The flags by headings, in the order in which --help has those.
std::string options_text(Command command) {
  std::vector<std::string> headings;
  std::string text;
  const std::vector<Flag> flags = shown_flags(command);
  for (const Flag& flag : flags)
    if (std::ranges::find(headings, flag.heading()) == headings.end())
      headings.push_back(flag.heading());
  for (const std::string& heading : headings) {
    std::string upper = heading;
    std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
    text += fmt::format(".SH {}\n", roff(upper));
    for (const Flag& flag : flags)
      if (flag.heading() == heading) text += flag_text(flag);
  }
  return text;
}

}  // namespace

std::string man_page(Command command) {
  std::string upper = dashed(command.full_name());
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string text = fmt::format(".TH {} 1 \"\" \"ridge {}\" \"Ridge\"\n", upper, version());
  text +=
      fmt::format(".SH NAME\n{} \\- {}\n", roff(dashed(command.full_name())), roff(command.help()));
  text += ".SH SYNOPSIS\n" + synopsis(command);
  const std::vector<Command> subcommands = shown_subcommands(command);
  if (!subcommands.empty()) text += ".SH COMMANDS\n";
  for (const Command& sub : subcommands)
    text += fmt::format(".TP\n\\fB{}\\fR\n{}; see\n.BR {} (1).\n", roff(sub.name()),
                        roff(sub.help()), roff(dashed(sub.full_name())));
  text += options_text(command);
  if (!command.footer_text().empty())
    text += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", roff(command.footer_text()));
  return text;
}

std::vector<std::pair<std::string, std::string>> man_pages(Command program) {
  std::vector<std::pair<std::string, std::string>> pages = {
      {dashed(program.full_name()) + ".1", man_page(program)}};
  for (const Command& sub : shown_subcommands(program)) {
    auto below = man_pages(sub);
    pages.insert(pages.end(), std::make_move_iterator(below.begin()),
                 std::make_move_iterator(below.end()));
  }
  return pages;
}

}  // namespace ridge
