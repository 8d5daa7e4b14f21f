#include "ridge/trace/pieces.h"

#include "ridge/base/error.h"
#include "ridge/base/units.h"
#include "ridge/trace/piece.h"

namespace ridge::trace {

void PieceText::close(std::string_view closing) {
  text.resize(opening + body);
  text += closing;
  text.reserve(text.size() + PieceParser::padding);
}

void PieceText::join(const PieceText& following, const Form& form) {
  text.resize(opening + body);
  text += gap;
  text += following.body_text();
  body = text.size() - opening;
  gap = following.gap;
  last = following.last;
  close(last ? "" : form.closing());
}

// Reads as much again as there is, so that a text without a cut is looked through a few times only.
// False at the file's end.
bool PieceCutter::read_more(std::string& text) {
  const std::size_t before = text.size();
  const std::size_t wanted = std::max(piece_bytes_, before);
  text.resize(before + wanted);
  const std::size_t got = source_.read(std::span(text).subspan(before));
  text.resize(before + got);
  bytes_read_ += got;
  at_end_ = got < wanted;
  return got > 0;
}

std::optional<PieceText> PieceCutter::next() {
  if (at_end_ && rest_.empty()) return std::nullopt;
  PieceText piece;
  piece.first = !begun_;
  const std::string_view opening = piece.first ? "" : form_.opening();
  piece.opening = opening.size();
  piece.at = rest_at_;
  piece.text.reserve(opening.size() + rest_.size() + piece_bytes_ + 2 * PieceParser::padding);
  piece.text = opening;
  piece.text += rest_;
  rest_.clear();
  constexpr std::size_t most_pieces = 8;  // in which a likely cut is looked for
  std::size_t events = begun_ ? piece.opening : std::string::npos;
  Cut cut;
  while (!cut && !at_end_ && read_more(piece.text)) {
    if (events == std::string::npos) events = begin_of_events(piece.text, form_);
    if (events == std::string::npos && piece.text.size() < most_bytes) continue;
    if (events == std::string::npos) break;
    cut = last_cut(piece.text, events, piece.text.size());
    if (!cut && piece.text.size() > most_pieces * piece_bytes_)
      cut = last_cut(piece.text, events, piece.text.size(), CutKind::any);
    if (!cut && !at_end_ && piece.text.size() >= most_bytes)
      throw FormatError("no event ends within {} from byte {}", format_bytes(piece.text.size()),
                        piece.at);
  }
  begun_ = true;
  if (events == std::string::npos && !damage().empty())
    throw FormatError("the gzip file is {} before its list of events", damage());
  if (events == std::string::npos) throw FormatError("there is no list of events");
  if (piece.text.size() == piece.opening) return std::nullopt;
  piece.last = !cut || at_end_;
  if (piece.last) cut = {piece.text.size(), piece.text.size()};
  rest_.assign(piece.text, cut.next);
  piece.gap.assign(piece.text, cut.end, cut.next - cut.end);
  piece.body = cut.end - piece.opening;
  rest_at_ = piece.at + (cut.next - piece.opening);
  piece.close(piece.last ? "" : form_.closing());
  return piece;
}

}  // namespace ridge::trace
