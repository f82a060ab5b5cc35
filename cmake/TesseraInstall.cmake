# `cmake --install`: the program, the rooms as static libraries, their headers and a package, so that another project can
# say find_package(tessera) and link tessera::tessera. tests/install_test.sh does that.
include(CMakePackageConfigHelpers)

get_property(targets GLOBAL PROPERTY TESSERA_TARGETS)
foreach(target IN LISTS targets)
  string(REGEX REPLACE "^tessera_" "" name "${target}")
  set_target_properties(${target} PROPERTIES EXPORT_NAME "${name}")
endforeach()
install(TARGETS ${targets} EXPORT tessera)
install(EXPORT tessera FILE tessera-targets.cmake NAMESPACE tessera:: DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/tessera")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/tessera" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h")
install(FILES "${TESSERA_THIRD_PARTY}/include/pjrt_c_api.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
if(TARGET tessera_cli)
  install(TARGETS tessera_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/tessera-config.cmake.in"
  "${PROJECT_BINARY_DIR}/tessera-config.cmake" INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/tessera")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/tessera-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/tessera-config.cmake" "${PROJECT_BINARY_DIR}/tessera-config-version.cmake"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/tessera")
