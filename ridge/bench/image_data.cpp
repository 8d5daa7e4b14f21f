#include "ridge/bench/image_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/random.h"
#include "ridge/base/safetensors.h"

namespace ridge {
namespace {

constexpr std::uint32_t held_out_of = 5;

StoredTensor required(const SafetensorsFile& file, const std::filesystem::path& path,
                      std::string_view name) {
  auto tensor = file.find(name);
  if (!tensor) throw FormatError("{} has no tensor {}", path.string(), name);
  return *std::move(tensor);
}

template <class T>
std::vector<std::int64_t> integers(std::span<const std::byte> bytes) {
  std::vector<std::int64_t> values(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    T stored;  // copied out, because a file need not align its tensors
    std::memcpy(&stored, bytes.data() + i * sizeof stored, sizeof stored);
    values[i] = static_cast<std::int64_t>(stored);
  }
  return values;
}

std::optional<std::vector<std::int64_t>> integers_of(const StoredTensor& tensor) {
  if (tensor.dtype == "U8") return integers<std::uint8_t>(tensor.bytes);
  if (tensor.dtype == "I32") return integers<std::int32_t>(tensor.bytes);
  if (tensor.dtype == "I64") return integers<std::int64_t>(tensor.bytes);
  return std::nullopt;
}

std::vector<float> normalised(const StoredTensor& images, const std::filesystem::path& path) {
  std::vector<float> pixels;
  if (images.dtype == "U8") {
    for (const std::byte x : images.bytes) pixels.push_back(static_cast<float>(x));
  } else if (images.dtype == "F32") {
    pixels = images.floats();
  } else {
    throw FormatError("{}: images is {}; it must be U8 or F32", path.string(), images.dtype);
  }
  double sum = 0, squares = 0;
  for (const float x : pixels) sum += x, squares += static_cast<double>(x) * x;
  const double count = static_cast<double>(pixels.size()), mean = sum / count;
  const double deviation = std::sqrt(squares / count - mean * mean);
  if (!(deviation > 0))
    throw FormatError("{}: the pixels of its images are all alike, or no numbers", path.string());
  for (float& x : pixels) x = static_cast<float>((x - mean) / deviation);
  return pixels;
}

}  // namespace

ImageData::ImageData(const std::filesystem::path& path, std::uint64_t seed) : seed_(seed) {
  const SafetensorsFile file(path);
  const StoredTensor images = required(file, path, "images"),
                     labels = required(file, path, "labels");
  const std::vector<std::int64_t>& shape = images.shape;
  const std::size_t rank = shape.size();
  if (rank < 3 || rank > 4 || std::ranges::find(shape, 0) != shape.end() ||
      (rank == 4 && shape[1] != 1 && shape[1] != 3))
    throw FormatError("{}: images is not [count, (1 or 3 channels,) rows, columns]", path.string());
  if (rank == 4) channels_ = shape[1];
  rows_ = shape[rank - 2], columns_ = shape[rank - 1];
  const auto numbers = integers_of(labels);
  if (!numbers)
    throw FormatError("{}: labels is {}; it must be U8, I32 or I64", path.string(), labels.dtype);
  if (labels.shape != std::vector{shape[0]})
    throw FormatError("{}: there must be a label for each of {} images", path.string(), shape[0]);
  for (const std::int64_t label : *numbers) {
    if (label < 0 || label >= 1 << 20)
      throw FormatError("{}: {} is no label", path.string(), label);
    labels_.push_back(static_cast<std::int32_t>(label));
    classes_ = std::max(classes_, label + 1);
  }
  pixels_ = normalised(images, path);
  const std::uint64_t stream = stream_of("held out");
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    const bool held =
        uniform_integer(held_out_of, seed, stream, static_cast<std::uint64_t>(i)) == 0;
    (held ? held_out_ : train_).push_back(i);
  }
  if (classes_ < 2 || train_.empty() || held_out_.empty())
    throw FormatError("{}: its {} images of {} classes are too few", path.string(), shape[0],
                      classes_);
}

std::int64_t ImageData::image_at(Split split, std::int64_t place) {
  if (split == Split::held_out) return held_out_[static_cast<std::size_t>(place % size(split))];
  if (const std::int64_t epoch = place / size(split); epoch != epoch_) {
    epoch_ = epoch;
    order_ = train_;
    const std::uint64_t stream = stream_of("order") + static_cast<std::uint64_t>(epoch);
    for (std::size_t i = order_.size(); i-- > 1;)
      std::swap(order_[i],
                order_[uniform_integer(static_cast<std::uint32_t>(i + 1), seed_, stream, i)]);
  }
  return order_[static_cast<std::size_t>(place % size(split))];
}

// Pixel centres lie at halves; beyond the outermost ones it is their colour.
void ImageData::scale(std::int64_t image, std::int64_t size, float* to) const {
  struct Between {
    std::int64_t low, high;
    float share;  // of high
  };
  const auto between = [size](std::int64_t i, std::int64_t extent) {
    const double at =
        (static_cast<double>(i) + 0.5) * static_cast<double>(extent) / static_cast<double>(size) -
        0.5;
    const double low = std::floor(at);
    const auto inside = [&](double x) {
      return std::clamp<std::int64_t>(static_cast<std::int64_t>(x), 0, extent - 1);
    };
    return Between{inside(low), inside(low + 1), static_cast<float>(at - low)};
  };
  for (std::int64_t c = 0; c < 3; ++c) {
    const float* const from =
        pixels_.data() + (image * channels_ + (channels_ == 3 ? c : 0)) * rows_ * columns_;
    for (std::int64_t r = 0; r < size; ++r) {
      const Between row = between(r, rows_);
      for (std::int64_t k = 0; k < size; ++k) {
        const Between column = between(k, columns_);
        const auto along = [&](std::int64_t y) {
          const float* const line = from + y * columns_;
          return std::lerp(line[column.low], line[column.high], column.share);
        };
        *to++ = std::lerp(along(row.low), along(row.high), row.share);
      }
    }
  }
}

void ImageData::batch(Split split, std::int64_t first, std::int64_t size, std::span<float> images,
                      std::span<std::int32_t> labels) {
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::int64_t image = image_at(split, first + static_cast<std::int64_t>(i));
    labels[i] = labels_[static_cast<std::size_t>(image)];
    scale(image, size, images.data() + static_cast<std::int64_t>(i) * 3 * size * size);
  }
}

}  // namespace ridge
