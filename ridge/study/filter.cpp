#include "ridge/study/filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"
#include "ridge/session/options.h"
#include "ridge/study/run_row.h"
#include "ridge/study/utc.h"

namespace ridge {
namespace {

// SQLite bounds the depth of an expression, and so is the stack of the parser.
constexpr int max_nesting = 100;
constexpr std::size_t max_comparisons = 500;
// The parts of a context: a path that begins with one leads into it, any other into the record.
constexpr std::array<std::string_view, 5> context_parts{"machine", "program", "conditions",
                                                        "ceilings", "operators"};

enum class Comparison : std::uint8_t {
  equal,
  unequal,
  less,
  at_most,
  more,
  at_least,
  has,
  has_not
};
// The longer of two that begin alike comes first.
constexpr std::pair<std::string_view, Comparison> operators[] = {
    {"==", Comparison::equal},    {"=", Comparison::equal},    {"!=", Comparison::unequal},
    {"!~", Comparison::has_not},  {"<=", Comparison::at_most}, {"<", Comparison::less},
    {">=", Comparison::at_least}, {">", Comparison::more},     {"~", Comparison::has}};

bool is_negative(Comparison c) { return c == Comparison::unequal || c == Comparison::has_not; }
// The one that a negative comparison denies.
Comparison positive(Comparison c) {
  return c == Comparison::unequal   ? Comparison::equal
         : c == Comparison::has_not ? Comparison::has
                                    : c;
}
std::string_view sign_of(Comparison c) {
  return c == Comparison::less      ? "<"
         : c == Comparison::at_most ? "<="
         : c == Comparison::more    ? ">"
                                    : ">=";
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool ends_word(char c) {
  return is_space(c) || std::string_view("()'\"=<>~!").find(c) != std::string_view::npos;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return out;
}

std::optional<double> number_from(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, value);
  const bool whole = fault == std::errc() && stop == end && std::isfinite(value);
  return whole ? std::optional(value) : std::nullopt;
}

// A pattern of LIKE ... ESCAPE '\' for a text that contains another.
std::string containing(const std::string& text) {
  std::string pattern = "%";
  for (const char c : text) {
    if (c == '%' || c == '_' || c == '\\') pattern += '\\';
    pattern += c;
  }
  return pattern + "%";
}

struct Term {
  std::string name;
  Comparison comparison = Comparison::equal;
  std::string value;
};

// Writes the SQL of comparisons.
class Compiler {
 public:
  explicit Compiler(const FilterNames& names) : names_(names) {}

  std::string of(const Term& term) {
    if (is_negative(term.comparison)) {
      Term denied = term;
      denied.comparison = positive(term.comparison);
      return "NOT " + of(denied);
    }
    if (term.name == "tag") return of_tag(term);
    if (const RunColumn* column = find_run_column(term.name)) return of_column(*column, term);
    if (term.name.find('.') != std::string::npos) return of_path(term);
    return of_option(term);
  }
  std::vector<SqlValue> values;

 private:
  template <class T>
  std::string parameter(T value) {
    values.emplace_back(std::in_place_type<T>, std::move(value));
    return fmt::format("?{}", values.size());
  }

  std::string of_text(const std::string& sql, const Term& term) {
    const std::string value = stored_text(term.value);
    if (term.comparison == Comparison::equal) return fmt::format("{} = {}", sql, parameter(value));
    if (term.comparison == Comparison::has)
      return fmt::format("{} LIKE {} ESCAPE '\\'", sql, parameter(containing(value)));
    return fmt::format("{} {} {}", sql, sign_of(term.comparison), parameter(value));
  }

  // A unary plus keeps SQLite from an index: see store_schema.cpp.
  std::string of_number(const std::string& sql, const Term& term) {
    const std::optional<double> value = number_from(term.value);
    if (!value)
      throw UsageError("{} is a number; the filter compares it with {}", term.name,
                       shown(term.value));
    if (term.comparison == Comparison::has)
      throw UsageError("{} is a number, which contains nothing: compare it by = < or >", term.name);
    if (term.comparison == Comparison::equal)
      return fmt::format("+{} IS {}", sql, parameter(*value));
    return fmt::format("({0} IS NOT NULL AND +{0} {1} {2})", sql, sign_of(term.comparison),
                       parameter(*value));
  }

  std::string of_date(const std::string& sql, const Term& term) {
    const std::optional<UtcSpan> span = utc_from(term.value);
    if (!span || term.comparison == Comparison::has)
      throw UsageError(
          "{} is a date such as 2026, 2026-01, 2026-01-31 or 2026-01-31T12:30; the filter has {}",
          term.name, shown(term.value));
    const bool before = term.comparison == Comparison::less,
               until = term.comparison == Comparison::at_most;
    if (before || until)
      return fmt::format("+{} < {}", sql, parameter(before ? span->begin : span->end));
    if (term.comparison == Comparison::more)
      return fmt::format("+{} >= {}", sql, parameter(span->end));
    std::string from = fmt::format("+{} >= {}", sql, parameter(span->begin));
    if (term.comparison == Comparison::at_least) return from;
    return fmt::format("({} AND +{} < {})", from, sql, parameter(span->end));
  }

  std::string of_uuid(const std::string& sql, const Term& term) {
    const auto range = uuids_with_prefix(term.value, 1);
    if (!range || term.comparison != Comparison::equal)
      throw UsageError("{} is compared by = with its first hexadecimal digits; the filter has {}",
                       term.name, shown(term.value));
    std::string from = fmt::format("{} >= {}", sql, parameter(range->first));
    return fmt::format("({} AND {} <= {})", from, sql, parameter(range->second));
  }

  std::string of_tag(const Term& term) {
    return fmt::format("runs.id IN (SELECT run_id FROM tags WHERE {})", of_text("tag", term));
  }

  std::string of_column(const RunColumn& column, const Term& term) {
    const auto compare = [&](const std::string& sql) {
      return std::holds_alternative<Uuid RunRow::*>(column.field) ? of_uuid(sql, term)
             : column.is_date()                                   ? of_date(sql, term)
             : column.is_text()                                   ? of_text(sql, term)
                                                                  : of_number(sql, term);
    };
    if (column.table == RunColumn::Table::runs) return compare(fmt::format("runs.{}", column.sql));
    const bool machine = column.table == RunColumn::Table::machines;
    return fmt::format("runs.{}_id IN (SELECT id FROM {}s WHERE {})",
                       machine ? "machine" : "program", machine ? "machine" : "program",
                       compare(std::string(column.sql)));
  }

  // A value in JSON may be of any type: a number is compared with numbers, and by = with a text of
  // the same digits too.
  std::string of_json(const std::string& text, const std::string& path, const Term& term) {
    const auto extract = [&] { return fmt::format("json_extract({}, {})", text, parameter(path)); };
    const std::string value = stored_text(term.value);
    std::optional<double> number = number_from(value);
    if (value == "true" || value == "false") number = value == "true";
    if (term.comparison == Comparison::has) {
      std::string what = extract();
      return fmt::format("coalesce({} LIKE {} ESCAPE '\\', 0)", what, parameter(containing(value)));
    }
    if (term.comparison == Comparison::equal) {
      std::string as_text = extract();
      as_text += fmt::format(" IS {}", parameter(value));
      if (!number) return as_text;
      std::string as_number = extract();
      return fmt::format("({} OR {} IS {})", as_text, as_number, parameter(*number));
    }
    const std::string typed = fmt::format("json_type({}, {}) IN ({})", text, parameter(path),
                                          number ? "'integer', 'real'" : "'text'");
    std::string what = extract();
    return fmt::format("coalesce({} AND {} {} {}, 0)", typed, what, sign_of(term.comparison),
                       number ? parameter(*number) : parameter(value));
  }

  std::string of_option(const Term& term) {
    std::string name = term.name;
    std::ranges::replace(name, '_', '-');
    if (std::ranges::find(names_.options, name) == names_.options.end()) refuse(term.name);
    return fmt::format("runs.options_id IN (SELECT id FROM options WHERE {})",
                       of_json("json", fmt::format("$.\"{}\"", name), term));
  }

  std::string of_path(const Term& term) {
    const std::string first = term.name.substr(0, term.name.find('.'));
    const bool context = std::ranges::find(context_parts, first) != context_parts.end();
    std::string path = "$";
    for (std::string_view rest = term.name; !rest.empty();) {
      const std::string_view key = rest.substr(0, rest.find('.'));
      path += fmt::format(".\"{}\"", key);
      rest.remove_prefix(std::min(key.size() + 1, rest.size()));
    }
    if (!names_.has_path || !names_.has_path(context, path))
      throw UsageError("no run has {} in its record; ridge runs show --json ID prints one",
                       shown(term.name));
    const std::string text = fmt::format("(SELECT {} FROM records WHERE run_id = runs.id)",
                                         context ? "context" : "record");
    return of_json(text, path, term);
  }

  [[noreturn]] void refuse(const std::string& name) const {
    std::vector<std::string> known{"tag"};
    for (const RunColumn& column : run_columns()) {
      known.emplace_back(column.name);
      if (!column.alias.empty()) known.emplace_back(column.alias);
    }
    for (std::string option : names_.options) {
      std::ranges::replace(option, '-', '_');
      known.push_back(std::move(option));
    }
    const std::string near = nearest_name(name, known);
    throw UsageError(
        "runs have no {}{}", shown(name),
        near.empty() ? ": filters name columns, options and paths of a record (ridge runs --help)"
                     : "; did you mean " + near + "?");
  }

  const FilterNames& names_;
};

class Parser {
 public:
  Parser(std::string_view text, Compiler& compiler) : text_(text), compiler_(compiler) {}

  std::string parse() {
    std::string sql = either();
    if (!at_end()) refuse("and, or, or its end");
    return sql;
  }

 private:
  bool at_end() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    return at_ == text_.size();
  }

  [[noreturn]] void refuse(std::string_view expected) {
    if (at_end()) throw UsageError("the filter ends where {} should be", expected);
    throw UsageError("the filter has {} at character {}, where {} should be",
                     shown(text_.substr(at_, 20)), at_ + 1, expected);
  }

  bool take(std::string_view sign) {
    if (at_end() || !text_.substr(at_).starts_with(sign)) return false;
    at_ += sign.size();
    return true;
  }

  std::string_view peek_word() {
    if (at_end()) return {};
    std::size_t end = at_;
    while (end < text_.size() && !ends_word(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }

  // A keyword, unless it is the name of a comparison.
  bool take_keyword(std::string_view keyword) {
    const std::string_view word = peek_word();
    if (lower(word) != keyword) return false;
    at_ += word.size();
    return true;
  }

  std::string either() {
    std::string sql = both();
    while (take_keyword("or")) sql = fmt::format("{} OR {}", sql, both());
    return fmt::format("({})", sql);
  }

  std::string both() {
    std::string sql = one();
    while (take_keyword("and")) sql += " AND " + one();
    return sql;
  }

  std::string one() {
    const int depth = ++depth_;
    if (depth > max_nesting)
      throw UsageError("the filter is nested more than {} deep", max_nesting);
    std::string sql;
    if (take_keyword("not")) {
      sql = "NOT " + one();
    } else if (take("(")) {
      sql = either();
      if (!take(")")) refuse("and, or, or )");
    } else {
      sql = comparison();
    }
    --depth_;
    return sql;
  }

  std::string comparison() {
    if (++comparisons_ > max_comparisons)
      throw UsageError("the filter has more than {} comparisons", max_comparisons);
    Term term{.name = std::string(peek_word())};
    const bool is_name = std::ranges::all_of(term.name, [](unsigned char c) {
      return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'
                 ? true
                 : (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
    });
    if (term.name.empty() || !is_name) refuse("the name of a column or an option");
    at_ += term.name.size();
    if (term.name.find('.') == std::string::npos) term.name = lower(term.name);
    const auto sign =
        std::ranges::find_if(operators, [&](const auto& entry) { return take(entry.first); });
    if (sign == std::end(operators)) refuse("one of = != < <= > >= ~ !~");
    term.comparison = sign->second;
    term.value = value();
    return compiler_.of(term);
  }

  std::string value() {
    if (at_end()) refuse("a value");
    const char quote = text_[at_];
    if (quote != '\'' && quote != '"') {
      const std::string_view word = peek_word();
      if (word.empty()) refuse("a value, in quotes if it has signs in it,");
      at_ += word.size();
      return std::string(word);
    }
    std::string out;
    const std::size_t begin = at_;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == quote) {
        ++at_;
        if (at_ == text_.size() || text_[at_] != quote) return out;
      }
      out += text_[at_];
    }
    at_ = begin;
    refuse("a value whose quotes are closed");
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::size_t comparisons_ = 0;
  Compiler& compiler_;
};

}  // namespace

std::string filter_value(std::string_view text) {
  std::string value = "'";
  for (const char c : text) value += c == '\'' ? "''" : std::string(1, c);
  return value + "'";
}

SqlCondition condition_of(std::string_view filter, const FilterNames& names) {
  if (std::ranges::all_of(filter, is_space)) return {};
  Compiler compiler(names);
  std::string sql = Parser(filter, compiler).parse();
  return {std::move(sql), std::move(compiler.values)};
}

}  // namespace ridge
