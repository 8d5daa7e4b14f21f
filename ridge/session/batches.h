#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace ridge {

enum class Split : std::uint8_t { train, validation };

// The data of a workload. Nothing is remembered between calls that a caller could notice: a batch
// is a function of its split and number alone, so that a run that goes on from a checkpoint needs
// only the number of batches done to see what an undisturbed one would.
class Batches {
 public:
  virtual ~Batches() = default;

  // Fills the input and the targets of batch number `index`, as the model's input and targets have
  // them.
  virtual void fill(Split split, std::uint64_t index, std::span<std::byte> input,
                    std::span<std::byte> targets) = 0;

  // Whether every batch is the same, so that it need be written to the device only once.
  virtual bool always_same() const { return false; }
  // Samples of validation until the first one comes again; none if they never do.
  virtual std::optional<std::int64_t> validation_samples() const { return std::nullopt; }
  // Whether targets are labels, so that the share of right ones says something.
  virtual bool has_labels() const { return false; }

  virtual std::string description() const = 0;  // one line for people
};

// Which of the batches that ranks share are one rank's: so many in a row, then as many are each
// other rank's.
struct ShareOfRank {
  std::uint64_t rank = 0, ranks = 1;
  std::uint64_t in_a_row = 1;

  // Of its own batch number `index`, that among all.
  constexpr std::uint64_t number_of(std::uint64_t index) const {
    return (index / in_a_row * ranks + rank) * in_a_row + index % in_a_row;
  }
};

// What one rank sees of batches that several share. Of validation they take turns.
class BatchesOfRank final : public Batches {
 public:
  BatchesOfRank(std::unique_ptr<Batches> parts, const ShareOfRank& share)
      : parts_(std::move(parts)), share_(share) {}

  void fill(Split split, std::uint64_t index, std::span<std::byte> input,
            std::span<std::byte> targets) override {
    ShareOfRank share = share_;
    if (split == Split::validation) share.in_a_row = 1;
    parts_->fill(split, share.number_of(index), input, targets);
  }
  bool always_same() const override { return parts_->always_same(); }
  std::optional<std::int64_t> validation_samples() const override {
    return parts_->validation_samples();
  }
  bool has_labels() const override { return parts_->has_labels(); }
  std::string description() const override { return parts_->description(); }

 private:
  std::unique_ptr<Batches> parts_;
  ShareOfRank share_;
};

}  // namespace ridge
