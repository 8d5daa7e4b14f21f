# `cpack`, which `make deb` calls: a package for Debian and Ubuntu of what `cmake --install` installs. The
# libraries that it needs are those that the program is linked with; those of NVIDIA are opened at run
# time where there are any.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ridge)
set(CPACK_PACKAGE_VENDOR "Ridge")
set(CPACK_PACKAGE_CONTACT "The Ridge developers <maintainers@ridge.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains a small LLaMA, runs vision networks, reads traces, shows where time goes")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "Ridge trains a small LLaMA, runs more than eighty vision networks on CPUs and
 NVIDIA's GPUs, and shows where every microsecond and every byte goes. ridge trace report reads the
 traces of PyTorch's profiler. The library and its headers are in the package.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/ridge
  RENAME copyright)
include(CPack)
