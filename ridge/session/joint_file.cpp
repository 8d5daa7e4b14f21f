#include "ridge/session/joint_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "ridge/base/error.h"
#include "ridge/device/gathered.h"

namespace ridge {
namespace {

// What a rank tells the others of how it fared: empty if all went well.
class Attempt {
 public:
  void fail(const IoError& error) {
    const std::string_view text = error.what();
    if (text_[0] == 0) std::ranges::copy(text.substr(0, text_.size() - 1), text_.begin());
  }
  bool is_good() const { return text_[0] == 0; }
  std::string text() const { return text_.data(); }

 private:
  std::array<char, 512> text_{};
};

// What the first rank says of the first that failed; empty if none did.
std::string fault_of(std::span<const Attempt> attempts) {
  const auto bad = std::ranges::find(attempts, false, &Attempt::is_good);
  if (bad == attempts.end()) return {};
  const auto rank = bad - attempts.begin();
  return rank == 0 ? bad->text() : fmt::format("rank {}: {}", rank, bad->text());
}

// Does what may fail on one rank alone, and keeps what it throws for the others.
template <class Action>
void attempt(Attempt& outcome, const Action& action) {
  if (!outcome.is_good()) return;
  try {
    action();
  } catch (const IoError& error) {
    outcome.fail(error);
  }
}

class Writer {
 public:
  Writer(const std::filesystem::path& path, std::span<const NamedType> tensors,
         const std::map<std::string, std::string>& metadata, Communicator& ranks)
      : path_(path),
        tensors_(tensors),
        layout_(lay_out_safetensors(path, tensors, metadata)),
        ranks_(ranks) {}

  void write(const JointContent& content) {
    const FileKey key = begin();
    if (key.bytes > 0) everyone_sees(key) ? write_pieces(content) : write_whole_tensors(content);
    end();
  }

 private:
  bool leads() const { return ranks_.rank() == 0; }

  // The first rank makes the file. The others learn its key, which is no file's where that failed.
  FileKey begin() {
    FileKey key;
    if (leads())
      attempt(outcome_, [&] {
        file_.emplace(path_);
        file_->write(layout_.head);
        key = file_->reserve(layout_.bytes);
      });
    return gathered(ranks_, key).front();
  }

  // Opens the file; true if all ranks have done so, and expect their tensors where the first does.
  bool everyone_sees(const FileKey& key) {
    if (!leads() && key.bytes == layout_.bytes) part_ = FilePart::open(path_, key);
    const std::vector<char> seen = gathered<char>(ranks_, file_ || part_);
    return std::ranges::find(seen, 0) == seen.end();
  }

  void write_pieces(const JointContent& content) {
    std::vector<std::byte> bytes;
    attempt(outcome_, [&] {
      for (const TensorPiece& piece : content.pieces) {
        bytes.resize(piece.bytes);
        content.read(piece, bytes);
        put(layout_.begin[piece.tensor] + piece.begin, bytes);
      }
      if (part_) part_->finish();
    });
  }

  // Whatever the first one meets: the others go on reading with it.
  void write_whole_tensors(const JointContent& content) {
    std::vector<std::byte> bytes;
    for (const std::size_t i : layout_.order) {
      bytes.resize(tensors_[i].type.bytes());
      content.read_whole(i, bytes);
      if (leads()) attempt(outcome_, [&] { put(layout_.begin[i], bytes); });
    }
  }

  void put(std::uint64_t offset, std::span<const std::byte> bytes) {
    part_ ? part_->write_at(offset, bytes) : file_->write_at(offset, bytes);
  }

  // They go on together, whatever one of them met.
  void end() {
    ranks_.wait_for_all();  // disks may take minutes
    const std::string fault = fault_of(gathered(ranks_, outcome_));
    if (leads() && fault.empty()) attempt(outcome_, [&] { file_->commit(); });
    file_.reset();
    ranks_.wait_for_all();
    if (leads() && !fault.empty()) throw IoError("{}", fault);
    if (leads() && !outcome_.is_good()) throw IoError("{}", outcome_.text());
  }

  const std::filesystem::path& path_;
  std::span<const NamedType> tensors_;
  SafetensorsLayout layout_;
  Communicator& ranks_;
  std::optional<AtomicFile> file_;  // of the first rank
  std::optional<FilePart> part_;    // of the others
  Attempt outcome_;
};

}  // namespace

void write_together(const std::filesystem::path& path, std::span<const NamedType> tensors,
                    const std::map<std::string, std::string>& metadata, Communicator& ranks,
                    const JointContent& content) {
  Writer(path, tensors, metadata, ranks).write(content);
}

}  // namespace ridge
