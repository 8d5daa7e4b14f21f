#pragma once

// How threads are grouped, which all kernels for sm90 share.

namespace ridge::gpu::sm90 {

inline constexpr int warp_threads = 32;
inline constexpr int warpgroup_threads = 128, warpgroup_warps = 4;
inline constexpr int warpgroup_rows = 64;  // rows of one wgmma
inline constexpr int warp_rows = 16;       // of which each warp holds so many
inline constexpr float log2e = 1.4426950408889634f;
inline constexpr float ln2 = 0.6931471805599453f;

}  // namespace ridge::gpu::sm90
