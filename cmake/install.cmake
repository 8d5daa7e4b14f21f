# `cmake --install`: the headers, the library, the program with its other names, and the package
# that find_package(ridge) finds.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ridge)

install(TARGETS ridge ridge_session ridge_engine EXPORT ridge_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(CODE "set(source \"${PROJECT_SOURCE_DIR}\")\nset(destination \"${CMAKE_INSTALL_INCLUDEDIR}\")")
install(SCRIPT cmake/install_headers.cmake)
install(EXPORT ridge_targets NAMESPACE ridge:: DESTINATION ${package_dir})

configure_package_config_file(cmake/ridgeConfig.cmake.in ${PROJECT_BINARY_DIR}/ridgeConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ridgeConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ridgeConfig.cmake ${PROJECT_BINARY_DIR}/ridgeConfigVersion.cmake
  cmake/FindTurboJPEG.cmake
  DESTINATION ${package_dir})

if(TARGET ridge_program)
  install(TARGETS ridge_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  get_target_property(other_names ridge_program OTHER_NAMES)
  foreach(name ${other_names})
    install(PROGRAMS $<TARGET_FILE_DIR:ridge_program>/${name} DESTINATION ${CMAKE_INSTALL_BINDIR})
  endforeach()
endif()
