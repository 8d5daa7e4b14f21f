# `cmake --install`: the headers, the library, the program with its other names, its manual, what completes
# its command line, and the package that find_package(ridge) finds.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ridge)

install(TARGETS ridge ridge_session ridge_engine EXPORT ridge_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(CODE "set(source \"${PROJECT_SOURCE_DIR}\")\nset(destination \"${CMAKE_INSTALL_INCLUDEDIR}\")")
install(SCRIPT cmake/install_headers.cmake)
install(EXPORT ridge_targets NAMESPACE ridge:: DESTINATION ${package_dir})

set(RIDGE_NEEDS_TOOLKIT ${RIDGE_HAS_CUDA})
if(RIDGE_HAS_NVCC)
  set(RIDGE_NEEDS_TOOLKIT ON)
endif()
configure_package_config_file(cmake/ridgeConfig.cmake.in ${PROJECT_BINARY_DIR}/ridgeConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ridgeConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ridgeConfig.cmake ${PROJECT_BINARY_DIR}/ridgeConfigVersion.cmake
  cmake/FindTurboJPEG.cmake
  DESTINATION ${package_dir})

if(TARGET ridge_program)
  install(TARGETS ridge_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # The workshop's names for it, such as torchrun, stand in a folder of their own: other packages have
  # programs of these names.
  set(workshop_dir ${CMAKE_INSTALL_LIBEXECDIR}/ridge)
  file(RELATIVE_PATH program_from_workshop /${workshop_dir} /${CMAKE_INSTALL_BINDIR}/ridge)
  get_target_property(other_names ridge_program OTHER_NAMES)
  install(CODE "set(directory \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${workshop_dir})
file(MAKE_DIRECTORY \${directory})
foreach(name ${other_names})
  file(CREATE_LINK ${program_from_workshop} \${directory}/\${name} SYMBOLIC)
endforeach()")

  # The manual's pages and what completes the command line are made by the program.
  install(CODE "set(program \"$<TARGET_FILE:ridge_program>\")
set(man \"${CMAKE_INSTALL_MANDIR}/man1\")
set(data \"${CMAKE_INSTALL_DATADIR}\")")
  install(SCRIPT cmake/install_manual.cmake)
endif()
