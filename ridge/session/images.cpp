#include "ridge/session/images.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "ridge/base/error.h"
#include "ridge/base/random.h"
#include "ridge/base/safetensors.h"
#include "ridge/base/units.h"
#include "ridge/session/image_folder.h"

namespace ridge {
namespace {

constexpr std::int64_t most_label = 1 << 20;
constexpr int most_threads = 16;

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

std::vector<std::int32_t> labels_of(const SafetensorsFile& file,
                                    const std::filesystem::path& path) {
  const StoredTensor labels = required(file, path, "labels");
  std::vector<std::int64_t> numbers;
  if (labels.dtype == "U8")
    numbers = integers<std::uint8_t>(labels.bytes);
  else if (labels.dtype == "I32")
    numbers = integers<std::int32_t>(labels.bytes);
  else if (labels.dtype == "I64")
    numbers = integers<std::int64_t>(labels.bytes);
  else
    throw FormatError("{}: labels is {}; it must be U8, I32 or I64", path.string(), labels.dtype);
  for (const std::int64_t label : numbers)
    if (label < 0 || label >= most_label)
      throw FormatError("{}: {} is no label", path.string(), label);
  return {numbers.begin(), numbers.end()};
}

std::int64_t classes_in(std::span<const std::int32_t> labels) {
  const auto most = std::ranges::max_element(labels);
  return most == labels.end() ? 0 : *most + std::int64_t{1};
}

class ImageFile final : public ImageSet {
 public:
  explicit ImageFile(const std::filesystem::path& path) : path_(path) {
    const SafetensorsFile file(path);
    const StoredTensor images = required(file, path, "images");
    const std::vector<std::int64_t>& shape = images.shape;
    const std::size_t rank = shape.size();
    if (rank < 3 || rank > 4 || std::ranges::find(shape, 0) != shape.end() ||
        (rank == 4 && shape[1] != 1 && shape[1] != 3))
      throw FormatError("{}: images is not [count, (1 or 3 channels,) rows, columns]",
                        path.string());
    if (rank == 4) image_.planes = shape[1];
    image_.rows = shape[rank - 2], image_.columns = shape[rank - 1];
    image_.row_stride = image_.columns;
    image_.plane_stride = image_.rows * image_.columns;
    labels_ = labels_of(file, path);
    if (count() != shape[0])
      throw FormatError("{}: there must be a label for each of {} images", path.string(), shape[0]);
    classes_ = classes_in(labels_);
    read_pixels(images);
  }

  void scaled(std::int64_t image, std::int64_t size, float* to) const override {
    scale_image(pixels_.data() + image * image_.planes * image_.plane_stride, image_, size,
                std::array{mean_, mean_, mean_}, std::array{factor_, factor_, factor_}, to);
  }
  std::string description() const override {
    return fmt::format("{}: {} images of {} classes", path_.string(), format_count(count()),
                       classes_);
  }

 private:
  void read_pixels(const StoredTensor& images) {
    if (images.dtype == "U8") {
      for (const std::byte x : images.bytes) pixels_.push_back(static_cast<float>(x));
    } else if (images.dtype == "F32") {
      pixels_ = images.floats();
    } else {
      throw FormatError("{}: images is {}; it must be U8 or F32", path_.string(), images.dtype);
    }
    double sum = 0, squares = 0;
    for (const float x : pixels_) sum += x, squares += static_cast<double>(x) * x;
    const double n = static_cast<double>(pixels_.size()), mean = sum / n;
    const double deviation = std::sqrt(squares / n - mean * mean);
    if (!(deviation > 0))
      throw FormatError("{}: the pixels of its images are all alike, or no numbers",
                        path_.string());
    mean_ = static_cast<float>(mean);
    factor_ = static_cast<float>(1 / deviation);
  }

  std::filesystem::path path_;
  PlanarImage image_;
  std::vector<float> pixels_;
  float mean_ = 0, factor_ = 1;
};

// By pixel after scaling: the pixels before that it is a weighted mean of.
struct Taps {
  std::int64_t first = 0;
  std::vector<float> weights;
};

std::vector<Taps> taps_of(std::int64_t from, std::int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double width = std::max(1.0, scale);
  std::vector<Taps> all(static_cast<std::size_t>(to));
  for (std::int64_t i = 0; i < to; ++i) {
    // Pixel centers lie at halves; beyond the outermost ones it is their color.
    const double center = (static_cast<double>(i) + 0.5) * scale - 0.5;
    const auto first = static_cast<std::int64_t>(std::floor(center - width)) + 1;
    const auto last = static_cast<std::int64_t>(std::ceil(center + width)) - 1;
    Taps& taps = all[static_cast<std::size_t>(i)];
    taps.first = std::clamp<std::int64_t>(first, 0, from - 1);
    taps.weights.assign(
        static_cast<std::size_t>(std::clamp<std::int64_t>(last, 0, from - 1) - taps.first + 1), 0);
    double sum = 0;
    for (std::int64_t k = first; k <= last; ++k) {
      const double weight = 1 - std::abs(static_cast<double>(k) - center) / width;
      const std::int64_t inside = std::clamp<std::int64_t>(k, 0, from - 1);
      taps.weights[static_cast<std::size_t>(inside - taps.first)] += static_cast<float>(weight);
      sum += weight;
    }
    for (float& weight : taps.weights) weight = static_cast<float>(weight / sum);
  }
  return all;
}

}  // namespace

template <class T>
void scale_image(const T* pixels, const PlanarImage& from, std::int64_t size,
                 std::span<const float> shift, std::span<const float> factor, float* to) {
  const std::vector<Taps> rows = taps_of(from.rows, size), columns = taps_of(from.columns, size);
  std::vector<float> narrow(static_cast<std::size_t>(from.rows * size));  // columns scaled
  for (std::int64_t plane = 0; plane < 3; ++plane) {
    float* const result = to + plane * size * size;
    if (plane > 0 && from.planes == 1) {
      std::copy_n(to, size * size, result);
      continue;
    }
    for (std::int64_t r = 0; r < from.rows; ++r) {
      const T* const line = pixels + plane * from.plane_stride + r * from.row_stride;
      for (std::int64_t c = 0; c < size; ++c) {
        const Taps& taps = columns[static_cast<std::size_t>(c)];
        float sum = 0;
        for (std::size_t k = 0; k < taps.weights.size(); ++k)
          sum += taps.weights[k] *
                 static_cast<float>(
                     line[(taps.first + static_cast<std::int64_t>(k)) * from.pixel_stride]);
        narrow[static_cast<std::size_t>(r * size + c)] = sum;
      }
    }
    const auto p = static_cast<std::size_t>(plane);
    for (std::int64_t r = 0; r < size; ++r) {
      const Taps& taps = rows[static_cast<std::size_t>(r)];
      for (std::int64_t c = 0; c < size; ++c) {
        float sum = 0;
        for (std::size_t k = 0; k < taps.weights.size(); ++k)
          sum += taps.weights[k] * narrow[static_cast<std::size_t>(
                                       (taps.first + static_cast<std::int64_t>(k)) * size + c)];
        result[r * size + c] = (sum - shift[p]) * factor[p];
      }
    }
  }
}
template void scale_image(const float*, const PlanarImage&, std::int64_t, std::span<const float>,
                          std::span<const float>, float*);
template void scale_image(const std::uint8_t*, const PlanarImage&, std::int64_t,
                          std::span<const float>, std::span<const float>, float*);

std::unique_ptr<ImageSet> open_images(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return open_image_folder(path);
  return std::make_unique<ImageFile>(path);
}

std::int64_t classes_of_images(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path))
    return static_cast<std::int64_t>(class_folders(path).size());
  return classes_in(labels_of(SafetensorsFile(path), path));
}

ImageData::ImageData(std::unique_ptr<ImageSet> images, std::uint64_t seed,
                     double validation_fraction)
    : images_(std::move(images)),
      seed_(seed),
      pool_(std::min(available_processors(), most_threads)) {
  const bool holds_out = validation_fraction > 0;
  const auto one_of =
      static_cast<std::uint32_t>(holds_out ? std::lround(1 / validation_fraction) : 1);
  const std::uint64_t stream = stream_of("held out");
  for (std::int64_t i = 0; i < images_->count(); ++i) {
    const bool held =
        holds_out && uniform_integer(one_of, seed, stream, static_cast<std::uint64_t>(i)) == 0;
    (held ? validation_ : train_).push_back(i);
  }
  if (validation_fraction == 1) train_ = validation_;
  if (classes() < 2 || train_.empty() || (holds_out && validation_.empty()))
    throw FormatError("{} are too few", images_->description());
}

std::int64_t ImageData::image_at(Split split, std::int64_t place) {
  if (split == Split::validation) return validation_[static_cast<std::size_t>(place % size(split))];
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

void ImageData::batch(Split split, std::int64_t first, std::int64_t size, std::span<float> images,
                      std::span<std::int32_t> labels) {
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    numbers.push_back(image_at(split, first + static_cast<std::int64_t>(i)));
    labels[i] = images_->label(numbers.back());
  }
  pool_.run(static_cast<std::int64_t>(numbers.size()), [&](std::int64_t i) {
    images_->scaled(numbers[static_cast<std::size_t>(i)], size,
                    images.data() + i * 3 * size * size);
  });
}

}  // namespace ridge
