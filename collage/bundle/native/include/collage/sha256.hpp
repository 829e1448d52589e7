// SHA-256 (FIPS 180-4) of a file: whether it is the one that was written. Needs nothing but C++17.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace collage {

class Sha256 {
 public:
  void update(const unsigned char* data, size_t size) {
    total_ += size;
    while (size > 0) {
      if (fill_ == 0 && size >= kBlock) {
        digest_block(data);
        data += kBlock;
        size -= kBlock;
        continue;
      }
      size_t part = size < kBlock - fill_ ? size : kBlock - fill_;
      std::memcpy(block_.data() + fill_, data, part);
      fill_ += part;
      data += part;
      size -= part;
      if (fill_ == kBlock) {
        digest_block(block_.data());
        fill_ = 0;
      }
    }
  }

  std::string hex() {
    const uint64_t bits = total_ * 8;
    const unsigned char one = 0x80, zero = 0;
    update(&one, 1);
    while (fill_ != kBlock - 8) update(&zero, 1);
    unsigned char length[8];
    for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(bits >> (56 - 8 * i));
    update(length, 8);
    static const char digits[] = "0123456789abcdef";
    std::string text;
    for (uint32_t word : state_)
      for (int shift = 28; shift >= 0; shift -= 4) text += digits[word >> shift & 15];
    return text;
  }

 private:
  static constexpr size_t kBlock = 64;

  static uint32_t turn(uint32_t x, int by) { return x >> by | x << (32 - by); }

  void digest_block(const unsigned char* data) {
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    uint32_t w[64];
    for (int i = 0; i < 16; ++i)
      w[i] = static_cast<uint32_t>(data[4 * i]) << 24 | static_cast<uint32_t>(data[4 * i + 1]) << 16 |
             static_cast<uint32_t>(data[4 * i + 2]) << 8 | data[4 * i + 3];
    for (int i = 16; i < 64; ++i) {
      uint32_t a = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
      uint32_t b = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    std::array<uint32_t, 8> s = state_;
    for (int i = 0; i < 64; ++i) {
      uint32_t high = turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25);
      uint32_t first = s[7] + high + ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
      uint32_t low = turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22);
      uint32_t second = low + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
      s = {first + second, s[0], s[1], s[2], s[3] + first, s[4], s[5], s[6]};
    }
    for (size_t i = 0; i < 8; ++i) state_[i] += s[i];
  }

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, kBlock> block_{};
  size_t fill_ = 0;
  uint64_t total_ = 0;
};

inline std::string sha256_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read '" + path + "'");
  std::vector<char> buffer(size_t(1) << 20);
  Sha256 sum;
  while (file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    sum.update(reinterpret_cast<const unsigned char*>(buffer.data()),
               static_cast<size_t>(file.gcount()));
  }
  return sum.hex();
}

}  // namespace collage
