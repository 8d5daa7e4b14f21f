# Whether the GPU code is built: sets RIDGE_HAS_CUDA, and the language CUDA if so.
set(RIDGE_HAS_CUDA OFF)
if(NOT RIDGE_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  find_program(RIDGE_NVCC nvcc PATHS /usr/local/cuda/bin ENV CUDA_PATH PATH_SUFFIXES bin)
  if(RIDGE_NVCC AND NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${RIDGE_NVCC})
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # The kernels that a card needs to run the rest have a portable form; those for Hopper alone are
    # compiled for it alone.
    set(CMAKE_CUDA_ARCHITECTURES 90a-real CACHE STRING "Architectures to build GPU code for")
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
      message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} is too old for Ridge's GPU code (13.0)")
    else()
      set(RIDGE_HAS_CUDA ON)
    endif()
  endif()
  if(RIDGE_CUDA STREQUAL "ON" AND NOT RIDGE_HAS_CUDA)
    message(FATAL_ERROR "RIDGE_CUDA=ON, but no CUDA toolkit of version 13.0 or later was found. "
      "Install one and put nvcc on the PATH, or configure with -DRIDGE_CUDA=OFF for a CPU build.")
  endif()
endif()
if(RIDGE_HAS_CUDA)
  find_package(CUDAToolkit REQUIRED)
  # NVIDIA's installer keeps CUPTI in a folder of its own, its packages among all other headers.
  find_path(CUPTI_INCLUDE_DIR cupti_range_profiler.h HINTS ${CUDAToolkit_INCLUDE_DIRS}
    ${CUDAToolkit_TARGET_DIR}/extras/CUPTI/include ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI/include
    REQUIRED)
  # CMake 3.25 does not know that nvcc has C++20.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA_COMPILE_FEATURES ${CMAKE_CUDA_COMPILE_FEATURES} cuda_std_20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
endif()
