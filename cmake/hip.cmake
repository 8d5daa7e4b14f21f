# The target `hip_kernels` compiles the portable GPU kernels for an AMD card, where hipcc is found:
# they are written once for CUDA and HIP, and this holds them to it. What surrounds them (memory,
# streams, libraries: files named *_cuda.cpp and the folder vendor/) has no HIP counterpart yet, so
# nothing is linked. Nothing is optimized either, which saves time.
find_program(RIDGE_HIPCC hipcc)
set(RIDGE_HIP_ARCHITECTURE gfx90a CACHE STRING "AMD architecture to compile the portable kernels for")
if(RIDGE_HIPCC)
  file(GLOB_RECURSE portable_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ridge/gpu/*.cu)
  list(FILTER portable_kernels EXCLUDE REGEX "/(sm90|vendor)/")
  set(hip_objects)
  foreach(source ${portable_kernels})
    get_filename_component(name ${source} NAME_WE)
    set(object ${PROJECT_BINARY_DIR}/hip/${name}.o)
    add_custom_command(OUTPUT ${object} VERBATIM
      COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/hip
      COMMAND ${RIDGE_HIPCC} -x hip -std=c++20 -O0 --offload-arch=${RIDGE_HIP_ARCHITECTURE}
        -DFMT_HEADER_ONLY -I${PROJECT_SOURCE_DIR} -MD -MF ${object}.d -c ${source} -o ${object}
      DEPFILE ${object}.d DEPENDS ${source}
      COMMENT "Compiling ${name}.cu for ${RIDGE_HIP_ARCHITECTURE}")
    list(APPEND hip_objects ${object})
  endforeach()
  add_custom_target(hip_kernels DEPENDS ${hip_objects})
endif()
