# What a build of Ridge itself chooses; a project that embeds Ridge makes these choices for itself.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# Kernels ask for -O3 themselves; elsewhere it buys compile time, not speed. Assertions stay on.
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
find_program(CCACHE ccache)
if(CCACHE)
  # Without these two it would not keep what is compiled with a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
    ${CCACHE})
endif()
