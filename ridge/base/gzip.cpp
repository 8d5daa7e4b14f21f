#include "ridge/base/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <new>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"

namespace ridge {
namespace {

constexpr int gzip_window = MAX_WBITS + 16;  // zlib's way to ask for gzip's header and check
constexpr std::size_t chunk_bytes = 1 << 16;

// zlib counts in 32 bits.
uInt at_most_a_gigabyte(std::size_t bytes) {
  return static_cast<uInt>(std::min<std::size_t>(bytes, 1 << 30));
}

// Takes the next piece of `rest` as zlib's input.
template <class Bytes>
void feed(z_stream& stream, Bytes& rest) {
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(
      reinterpret_cast<const char*>(rest.data())));  // which zlib does not write to
  stream.avail_in = at_most_a_gigabyte(rest.size());
  rest = {rest.data() + stream.avail_in, rest.size() - stream.avail_in};
}

void begin_deflating(z_stream& stream) {
  // zlib's own choice is 6, which makes traces an eighth smaller and takes half as long again.
  constexpr int level = 4, memory = 8;
  if (::deflateInit2(&stream, level, Z_DEFLATED, gzip_window, memory, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
}

}  // namespace

GzipWriter::GzipWriter(AtomicFile& file) : file_(file), stream_(std::make_unique<z_stream>()) {
  begin_deflating(*stream_);
}

GzipWriter::~GzipWriter() { ::deflateEnd(stream_.get()); }

void GzipWriter::write(std::string_view text) {
  while (!text.empty()) {
    feed(*stream_, text);
    drain(Z_NO_FLUSH);
  }
}

void GzipWriter::finish() { drain(Z_FINISH); }

// Has zlib take its input, and writes what it gives. It is done when it leaves room in the output.
void GzipWriter::drain(int flush) {
  Bytef out[chunk_bytes];
  do {
    stream_->next_out = out;
    stream_->avail_out = chunk_bytes;
    ::deflate(stream_.get(), flush);
    file_.write(std::as_bytes(std::span(out, chunk_bytes - stream_->avail_out)));
  } while (stream_->avail_out == 0);
}

std::string gzipped(std::string_view text) {
  z_stream stream{};
  begin_deflating(stream);
  std::string out;
  int state = Z_OK;
  while (state != Z_STREAM_END) {
    if (stream.avail_in == 0) feed(stream, text);
    const std::size_t before = out.size();
    out.resize(before + chunk_bytes);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + before);
    stream.avail_out = chunk_bytes;
    state = ::deflate(&stream, text.empty() ? Z_FINISH : Z_NO_FLUSH);
    out.resize(out.size() - stream.avail_out);
  }
  ::deflateEnd(&stream);
  return out;
}

GzipReader::GzipReader(Source more)
    : more_(std::move(more)), stream_(std::make_unique<z_stream>()), packed_(1 << 18) {
  if (::inflateInit2(stream_.get(), gzip_window) != Z_OK) throw std::bad_alloc();
}

GzipReader::~GzipReader() { ::inflateEnd(stream_.get()); }

// False if the file has no more.
bool GzipReader::refill() {
  if (at_end_) return false;
  const std::size_t got = more_(packed_);
  at_end_ = got < packed_.size();
  stream_->next_in = reinterpret_cast<Bytef*>(packed_.data());
  stream_->avail_in = static_cast<uInt>(got);
  return got > 0;
}

std::size_t GzipReader::read(std::span<char> into) {
  std::size_t filled = 0;
  while (filled < into.size() && damage_.empty()) {
    if (stream_->avail_in == 0 && !refill()) {
      if (in_member_) damage_ = "cut short";
      break;
    }
    if (!in_member_) {
      ::inflateReset(stream_.get());  // another member follows: "cat a.gz b.gz" is a file too
      in_member_ = true;
    }
    const uInt room = at_most_a_gigabyte(into.size() - filled);
    stream_->next_out = reinterpret_cast<Bytef*>(into.data() + filled);
    stream_->avail_out = room;
    const int state = ::inflate(stream_.get(), Z_NO_FLUSH);
    filled += room - stream_->avail_out;
    if (state == Z_MEM_ERROR) throw std::bad_alloc();
    if (state == Z_STREAM_END)
      in_member_ = false;
    else if (state != Z_OK && state != Z_BUF_ERROR)
      damage_ = "damaged";
  }
  return filled;
}

bool is_gzip(std::span<const std::byte> file) {
  return file.size() >= 2 && file[0] == std::byte{0x1f} && file[1] == std::byte{0x8b};
}

std::string gunzip(std::span<const std::byte> file, std::size_t max_bytes, std::string_view name) {
  GzipReader reader([&](std::span<char> into) {
    const std::size_t bytes = std::min(into.size(), file.size());
    std::copy_n(reinterpret_cast<const char*>(file.data()), bytes, into.data());
    file = file.subspan(bytes);
    return bytes;
  });
  std::string text;
  for (std::size_t got = chunk_bytes; got == chunk_bytes;) {
    const std::size_t before = text.size();
    text.resize(before + chunk_bytes);
    got = reader.read(std::span(text).subspan(before));
    text.resize(before + got);
    if (text.size() > max_bytes)
      throw FormatError("{} has more than {} bytes when unpacked", shown(name), max_bytes);
  }
  if (!reader.damage().empty())
    throw FormatError("{} is a gzip file that is {}", shown(name), reader.damage());
  return text;
}

}  // namespace ridge
