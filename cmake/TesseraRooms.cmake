# A room is a folder of tessera/ and a static library tessera_<name>. It may use the rooms named after USES and
# what those use; tests/rooms_test.sh checks the includes against the order in tessera/README.md.
add_library(tessera_options INTERFACE)
target_compile_features(tessera_options INTERFACE cxx_std_20)
target_include_directories(tessera_options INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>"
                                                     "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_compile_options(tessera_options INTERFACE
  "$<BUILD_INTERFACE:-Wall;-Wextra;-Wshadow;-Wconversion;-Wno-sign-conversion;-Werror>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # Its -Wrestrict warns of "literal" + std::string (GCC bug 105651).
  target_compile_options(tessera_options INTERFACE "$<BUILD_INTERFACE:-Wno-restrict>")
endif()
if(TESSERA_SANITIZE)
  # With its checks added, GCC 12 takes parts of std::function in std::regex for uninitialised.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(tessera_options INTERFACE "$<BUILD_INTERFACE:-Wno-maybe-uninitialized>")
  endif()
  target_compile_options(tessera_options INTERFACE -fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer
                                                   -fno-sanitize-recover=all)
  target_link_options(tessera_options INTERFACE -fsanitize=${TESSERA_SANITIZE})
endif()

add_library(tessera INTERFACE)
add_library(tessera::tessera ALIAS tessera)
set_property(GLOBAL APPEND PROPERTY TESSERA_TARGETS tessera tessera_options)

function(tessera_room name)
  cmake_parse_arguments(ARG "" "" "USES;LIBRARIES;INCLUDES;DEFINITIONS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc")
  if(NOT sources)
    add_library(tessera_${name} INTERFACE)
    set(scope INTERFACE)
  else()
    add_library(tessera_${name} STATIC ${sources})
    set(scope PUBLIC)
  endif()
  target_link_libraries(tessera_${name} ${scope} tessera_options ${ARG_LIBRARIES})
  if(ARG_INCLUDES)
    foreach(folder IN LISTS ARG_INCLUDES)
      target_include_directories(tessera_${name} SYSTEM ${scope} "$<BUILD_INTERFACE:${folder}>")
    endforeach()
  endif()
  if(ARG_DEFINITIONS AND sources)
    target_compile_definitions(tessera_${name} PRIVATE ${ARG_DEFINITIONS})
  endif()
  foreach(used IN LISTS ARG_USES)
    target_link_libraries(tessera_${name} ${scope} tessera_${used})
  endforeach()
  target_link_libraries(tessera INTERFACE tessera_${name})
  set_property(GLOBAL APPEND PROPERTY TESSERA_TARGETS tessera_${name})
endfunction()

# The tests of a room: tests/<name>/*_test.cc in one program, one ctest entry a suite, so that a plugin is loaded
# once for the suite.
function(tessera_room_test name)
  cmake_parse_arguments(ARG "" "LABEL" "LIBRARIES" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc")
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_test ${sources})
  target_link_libraries(${name}_test PRIVATE tessera_${name} tessera_testing ${ARG_LIBRARIES})
  set(suites "")
  foreach(source IN LISTS sources)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
    file(STRINGS "${source}" lines REGEX "^(TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\\(")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^[A-Z_]*TEST[_FP]*\\(([A-Za-z0-9_]+),.*" "\\1" suite "${line}")
      list(APPEND suites "${suite}")
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES suites)
  foreach(suite IN LISTS suites)
    # Suites whose name begins with Reference read ../shared/reference; Slow ones take minutes
    # and are run by `make test-all`.
    set(label ${ARG_LABEL})
    if(suite MATCHES "^Reference")
      set(label reference)
    elseif(suite MATCHES "^Slow")
      set(label slow)
    endif()
    # A suite counts as skipped only when every test in it was (a failure beside a skipped test is a failure), and a
    # filter that finds no test is a failure.
    add_test(NAME ${name}.${suite} COMMAND ${name}_test "--gtest_filter=${suite}.*:*/${suite}.*:${suite}/*.*:*/${suite}/*.*")
    set_tests_properties(${name}.${suite} PROPERTIES LABELS ${label} TIMEOUT 1200
      SKIP_REGULAR_EXPRESSION "\\[  PASSED  \\] 0 tests\\.\n\\[  SKIPPED \\][^\n]*\n(\\[  SKIPPED \\][^\n]*\n?)+$"
      FAIL_REGULAR_EXPRESSION "Running 0 tests from")
    tessera_test_environment(${name}.${suite})
  endforeach()
endfunction()
