// Each question that the workshop puts to its learners is answered outright by a command. The
// questions stand in the tables questions_*.tsv, of which docs/workshop/questions.py makes a page.
//
// Lines of a table, fields separated by tabs:
//   @NAME  TEXT  PAGE            $NAME in a command stands for TEXT here and for PAGE on the page
//   NUMBER  MARK  QUESTION  COMMANDS  ANSWER
// COMMANDS are words separated by spaces, commands separated by " && ". All rows share one
// directory, in which each command runs once, in the order of the table. ANSWER is a regular
// expression (ECMAScript) that is found in what the last command prints; it may span lines by \n.
// MARK is empty; "gpu" for what only a machine with a card shows, which is not run here; or "none"
// for a question that nothing answers, where ANSWER says why, in words.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/measured_machine.h"
#include "tests/cli/program.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

struct Question {
  int number = 0;
  std::string mark, text;
  std::vector<std::string> commands;
  std::string answer;
};

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  for (std::size_t at; (at = text.find(separator, from)) != std::string::npos;
       from = at + separator.size())
    parts.push_back(text.substr(from, at - from));
  parts.push_back(text.substr(from));
  return parts;
}

std::string expanded(std::string command, const std::map<std::string, std::string>& names) {
  for (std::size_t at; (at = command.find('$')) != std::string::npos;) {
    const std::size_t end =
        std::min(command.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ", at + 1), command.size());
    command.replace(at, end - at, names.at(command.substr(at + 1, end - at - 1)));
  }
  return command;
}

std::vector<Question> read_questions(const fs::path& table) {
  std::vector<Question> questions;
  std::map<std::string, std::string> names;
  std::ifstream file(table);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = split(line, "\t");
    if (line.starts_with('@')) {
      names[fields.at(0).substr(1)] = expanded(fields.at(1), names);
      continue;
    }
    if (line.empty() || line.starts_with('#')) continue;
    if (fields.size() != 5) throw std::runtime_error(fmt::format("not five fields: {}", line));
    questions.push_back({std::stoi(fields[0]), fields[1], fields[2],
                         split(expanded(fields[3], names), " && "), fields[4]});
  }
  return questions;
}

std::vector<fs::path> tables() {
  std::vector<fs::path> tables;
  for (const auto& entry : fs::directory_iterator(RIDGE_SOURCE_DIR "/tests/cli"))
    if (const std::string name = entry.path().filename();
        name.starts_with("questions_") && entry.path().extension() == ".tsv")
      tables.push_back(entry.path());
  std::ranges::sort(tables);
  return tables;
}

class Questions : public ::testing::TestWithParam<fs::path> {};

TEST_P(Questions, AreAnsweredByACommand) {
  const MeasuredMachine machine;
  const Sandbox sandbox;
  std::map<std::string, std::string> outputs;  // by command
  const auto output = [&](const std::string& command) -> const std::string& {
    const auto [at, is_new] = outputs.try_emplace(command);
    if (is_new) {
      const ProgramResult result = sandbox.run(words_of(command));
      EXPECT_TRUE(result.exit_code >= 0 && result.exit_code != 2)  // 1: the answer is no
          << command << ": " << result.err;
      at->second = result.out;
    }
    return at->second;
  };
  for (const Question& question : read_questions(GetParam())) {
    SCOPED_TRACE(fmt::format("{}. {}", question.number, question.text));
    EXPECT_TRUE(question.mark.empty() || question.mark == "gpu" || question.mark == "none")
        << question.mark;
    EXPECT_FALSE(question.answer.empty());
    if (!question.mark.empty()) continue;
    std::string printed;
    for (const std::string& command : question.commands) printed = output(command);
    EXPECT_TRUE(std::regex_search(printed, std::regex(question.answer)))
        << question.answer << "\nis not in what " << question.commands.back() << " prints:\n"
        << printed;
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, Questions, ::testing::ValuesIn(tables()),
                         [](const auto& table) { return table.param.stem().string(); });

TEST(QuestionTables, HaveEachNumberOnce) {
  int last = 0;
  for (const fs::path& table : tables()) {
    const std::vector<Question> questions = read_questions(table);
    ASSERT_FALSE(questions.empty()) << table;
    for (std::size_t i = 0; i < questions.size(); ++i)
      EXPECT_EQ(questions[i].number, questions[0].number + static_cast<int>(i)) << table;
    last = std::max(last, questions.back().number);
  }
  std::set<int> seen;
  for (const fs::path& table : tables())
    for (const Question& question : read_questions(table))
      EXPECT_TRUE(seen.insert(question.number).second) << question.number;
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(last));
}

}  // namespace
}  // namespace ridge
