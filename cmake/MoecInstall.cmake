# What `cmake --install` puts under a prefix for C and C++ (docs/use/c-api.md): libraries, headers, commands, and what
# find_package(moec) and pkg-config read. The Python package is a component of its own.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Commands look for libmoec.so in ../lib.
set(CMAKE_INSTALL_LIBDIR lib)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/moec)
get_property(tools GLOBAL PROPERTY MOEC_TOOLS)
get_property(verify_tools GLOBAL PROPERTY MOEC_VERIFY_TOOLS)
install(TARGETS moec_shared moert_shared EXPORT moec-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(TARGETS moec_verify
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development NAMELINK_SKIP)
install(TARGETS ${tools} ${verify_tools} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT development)
# Cases and rows of the verify tools, which look for them in ../share/moec.
install(DIRECTORY ${CMAKE_BINARY_DIR}/share/moec DESTINATION share COMPONENT development)
install(FILES
  runtime/include/moert/moert.h runtime/include/moert/moert.hpp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/moert COMPONENT development)
install(FILES include/moejit/moejit.h include/moejit/moejit.hpp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/moejit COMPONENT development)

install(EXPORT moec-targets NAMESPACE moec:: DESTINATION ${package} COMPONENT development)
configure_package_config_file(cmake/moec-config.cmake.in ${CMAKE_BINARY_DIR}/cmake/moec-config.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cmake/moec-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cmake/moec-config.cmake ${CMAKE_BINARY_DIR}/cmake/moec-config-version.cmake
  DESTINATION ${package} COMPONENT development)

foreach(library moec moert)
  configure_file(cmake/${library}.pc.in ${CMAKE_BINARY_DIR}/cmake/${library}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/cmake/${library}.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endforeach()
