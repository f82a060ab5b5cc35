# What the sanitizers' runtimes are told when a test runs. TESSERA_TEST_ENVIRONMENT is the ENVIRONMENT of every test.
#
# The plugin is not instrumented. Thread sanitizer therefore has to leave out what is done inside it
# (ignore_noninstrumented_modules; without it thousands of suppressed reports make a run 50 times slower) and reports
# that pass through it (tests/tsan.supp).
#
# Compiled programs are kept in the build folder, never in the home of whoever runs the tests.
set(TESSERA_TEST_ENVIRONMENT "TESSERA_CACHE_DIR=${PROJECT_BINARY_DIR}/program-cache")
if(TESSERA_SANITIZE)
  set(supp "${PROJECT_SOURCE_DIR}/tests")
  list(APPEND TESSERA_TEST_ENVIRONMENT
    # A test asks for more memory than there can be, and wants to be refused.
    "ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1:check_initialization_order=1:strict_init_order=1"
    "LSAN_OPTIONS=suppressions=${supp}/lsan.supp:print_suppressions=0"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=suppressions=${supp}/tsan.supp:ignore_noninstrumented_modules=1:second_deadlock_stack=1")
endif()

# Registers the environment of the named tests.
function(tessera_test_environment)
  if(TESSERA_TEST_ENVIRONMENT)
    set_property(TEST ${ARGN} APPEND PROPERTY ENVIRONMENT ${TESSERA_TEST_ENVIRONMENT})
  endif()
endfunction()
