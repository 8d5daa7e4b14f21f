// The scripts by which shells complete the command line, made of the commands themselves.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "ridge/base/error.h"
#include "ridge/base/file.h"
#include "ridge/base/gzip.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/manual.h"
#include "ridge/cli/terminal.h"

namespace ridge {
namespace {

// A command, and what may follow its words.
struct CompletedCommand {
  std::string words;  // "trace report"; empty for the program
  std::vector<Command> commands;
  std::vector<Flag> flags;
};

void add_places(Command command, const std::string& words, std::vector<CompletedCommand>& places) {
  CompletedCommand place{words, command.subcommands(), command.flags()};
  std::erase_if(place.commands, &Command::is_hidden);
  std::erase_if(place.flags,
                [](const Flag& flag) { return flag.heading().empty() || flag.is_argument(); });
  const std::vector<Command> below = place.commands;
  places.push_back(std::move(place));
  for (const Command& sub : below)
    add_places(sub, words.empty() ? sub.name() : words + " " + sub.name(), places);
}

// The words that may follow at a place.
std::string choices_of(const CompletedCommand& place) {
  std::vector<std::string> choices;
  for (const Command& command : place.commands) choices.push_back(command.name());
  for (const Flag& flag : place.flags) {
    const std::vector<std::string> names = flag.names_in_full();
    choices.insert(choices.end(), names.begin(), names.end());
  }
  return fmt::format("{}", fmt::join(choices, " "));
}

// A case of the shell for each place. Both bash and zsh read it.
std::string cases_of(const std::vector<CompletedCommand>& places) {
  std::string text;
  for (const CompletedCommand& place : places)
    text += fmt::format("    '{}') choices='{}' ;;\n", place.words, choices_of(place));
  return text;
}

// The function that finds out at which place a command line is: its words that are commands, up to
// the first that is none.
constexpr std::string_view place_function = R"sh(_ridge_place() {
  local place='' word next choices=''
  for word in "$@"; do
    case "$word" in -*) continue ;; esac
    next="${place:+$place }$word"
    case " $(_ridge_choices "$place") " in *" $word "*) place="$next" ;; *) break ;; esac
  done
  printf '%s' "$place"
}
)sh";

std::string choices_function(const std::vector<CompletedCommand>& places) {
  return fmt::format(
      "_ridge_choices() {{\n  local choices=''\n  case \"$1\" in\n{}  esac\n  printf '%s' "
      "\"$choices\"\n}}\n",
      cases_of(places));
}

std::string bash_script(const std::vector<CompletedCommand>& places) {
  return "# Completes ridge in bash.\n" + choices_function(places) + std::string(place_function) +
         R"sh(_ridge() {
  local current="${COMP_WORDS[COMP_CWORD]}"
  local place
  place="$(_ridge_place "${COMP_WORDS[@]:1:COMP_CWORD-1}")"
  mapfile -t COMPREPLY < <(compgen -W "$(_ridge_choices "$place")" -- "$current")
  [ ${#COMPREPLY[@]} -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- "$current")
}
complete -o filenames -F _ridge ridge
)sh";
}

std::string zsh_script(const std::vector<CompletedCommand>& places) {
  return "#compdef ridge\n" + choices_function(places) + std::string(place_function) +
         R"sh(_ridge() {
  local place
  place="$(_ridge_place "${(@)words[2,CURRENT-1]}")" compadd-- ${(s
                                                                  :
                                                                  :) "$(_ridge_choices " $place
                                                                     ")"} _files
}
if
  ["$funcstack[1]" = _ridge];
then _ridge "$@";
else compdef _ridge ridge; fi
)sh";
}

std::string in_single_quotes(std::string text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    if (c != '\n')
      out += c;
    else
      out += ' ';
  }
  return out + "'";
}

std::string fish_script(const std::vector<CompletedCommand>& places) {
  std::string text = R"sh(# Completes ridge in fish.
# Whether the words so far are these, and more only where no command may follow.
function __ridge_at
  set -l words
  for word in (commandline -opc)[2..]
    string match -q -- '-*' $word; or set -a words $word
  end
  set -l exactly $argv[1]
  set -l wanted $argv[2..]
  test (count $words) -ge (count $wanted); or return 1
  test $exactly = no; or test (count $words) -eq (count $wanted); or return 1
  test (count $wanted) -eq 0; and return 0
  for i in (seq (count $wanted))
    test "$words[$i]" = "$wanted[$i]"; or return 1
  end
end
)sh";
  for (const CompletedCommand& place : places) {
    const std::string at = fmt::format("complete -c ridge -n '__ridge_at {} {}'",
                                       place.commands.empty() ? "no" : "yes", place.words);
    for (const Command& command : place.commands)
      text +=
          fmt::format("{} -f -a {} -d {}\n", at, command.name(), in_single_quotes(command.help()));
    for (const Flag& flag : place.flags) {
      std::string names;
      for (const std::string& name : flag.names_in_full())
        names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      text += fmt::format("{}{}{} -d {}\n", at, names, flag.value_name().empty() ? "" : " -r",
                          in_single_quotes(flag.help()));
    }
  }
  return text;
}

int write_man_pages(Command program, const std::string& directory) {
  Terminal terminal;
  std::filesystem::create_directories(directory);
  for (const auto& [name, page] : man_pages(program))
    write_text_file(std::filesystem::path(directory) / (name + ".gz"), gzipped(page));
  return 0;
}

}  // namespace

std::string completion_script(Command program, std::string_view shell) {
  std::vector<CompletedCommand> places;
  add_places(program, "", places);
  if (shell == "bash") return bash_script(places);
  if (shell == "zsh") return zsh_script(places);
  if (shell == "fish") return fish_script(places);
  throw UsageError("there is no completion for {}: there is one for bash, zsh and fish", shell);
}

void add_completion_command(Command program, Action& action) {
  const Command command =
      program.add_subcommand("completion", "Print the script that completes ridge in a shell");
  const auto shell = std::make_shared<std::string>();
  command.add_option("shell", *shell, "bash, zsh or fish").type_name("SHELL");
  command.footer(R"(Examples:
  source <(ridge completion bash)
  ridge completion zsh > "${fpath[1]}/_ridge"
  ridge completion fish > ~/.config/fish/completions/ridge.fish)");
  command.callback([program, shell, &action] {
    action = [program, shell] {
      if (shell->empty()) throw UsageError("completion for which shell? bash, zsh or fish");
      Terminal().lines(completion_script(program, *shell));
      return 0;
    };
  });
  // For packages.
  const Command pages = program.add_subcommand("man-pages", "Write the manual's pages");
  pages.hide();
  const auto directory = std::make_shared<std::string>();
  pages.add_option("directory", *directory, "Write them here").type_name("DIR");
  pages.callback([program, directory, &action] {
    action = [program, directory] {
      if (directory->empty()) throw UsageError("write the pages where? give a directory");
      return write_man_pages(program, *directory);
    };
  });
}

}  // namespace ridge
