# What all targets of Hinge have in common: include directories, warnings, sanitizers, and the precompiled header of torch.

set(HINGE_SANITIZER_FLAGS "")
if(HINGE_SANITIZE)
  set(HINGE_SANITIZER_FLAGS -fsanitize=${HINGE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
endif()

# Our own code sees include/ (public) and src/ (private, as "kernels/reference.h"), and compiles without warnings.
function(hinge_target target)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${target} PRIVATE -Wall -Wextra $<$<BOOL:${HINGE_WERROR}>:-Werror> ${HINGE_SANITIZER_FLAGS})
  target_link_options(${target} PRIVATE ${HINGE_SANITIZER_FLAGS})
  # -fPIC everywhere, executables too: the library can go into a shared object, and all can share one precompiled header.
  # __FILE__ is told from the root of the sources: what is shipped names no folder of the machine that built it.
  target_compile_options(${target} PRIVATE -fPIC -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
endfunction()

# What parses and glues, and the tests: no loop in them is hot, and -O1 compiles twice as fast as -O3.
function(hinge_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# Compiles the sources of a target in a few batches, which spares most of the time that their headers take. For targets in which no two files
# have a private thing of the same name. Off in the preset debug, so that each file is seen alone there.
function(hinge_unite target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${HINGE_UNITE} UNITY_BUILD_BATCH_SIZE 6)
endfunction()

# A library that is nothing but a precompiled header, to be shared: hinge_precompile(NAME LIBRARIES... HEADERS <a.h> <b.h>)
function(hinge_precompile name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;LIBRARIES")
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.cc CONTENT "")
  add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/${name}.cc)
  hinge_target(${name})
  hinge_compile_quickly(${name})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES})
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
endfunction()

# torch's headers take 11 to 29 s in every file that includes them, and 2 to 5 s with this header, made once in 20 s.
# A header as large as this one costs every file that uses it: only torch's are in it.
# OpenMP comes along because at::parallel_for is an OpenMP loop in a header: a file compiled without -fopenmp would silently run it on
# one thread.
# LibTorch 1.13 has a std::vector of the incomplete IValue in List.h, which Clang in C++20 mode refuses unless ivalue.h comes first.
function(hinge_precompile_torch)
  hinge_precompile(hinge_torch_headers LIBRARIES torch OpenMP::OpenMP_CXX
    HEADERS <ATen/core/ivalue.h> <ATen/ATen.h> <torch/csrc/autograd/custom_function.h> <torch/library.h>)
endfunction()

# For a target whose sources include torch, but for those named, which do not and are spared its header.
function(hinge_use_torch target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "EXCEPT")
  hinge_compile_quickly(${target})
  target_link_libraries(${target} PRIVATE torch OpenMP::OpenMP_CXX)
  target_precompile_headers(${target} REUSE_FROM hinge_torch_headers)
  set_source_files_properties(${arg_EXCEPT} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # GCC would walk the whole precompiled header each time it looks for garbage; without, a file takes 0.8 GB and an eighth less time.
    target_compile_options(${target} PRIVATE "SHELL:--param ggc-min-heapsize=2000000")
  elseif(CMAKE_DISABLE_PRECOMPILE_HEADERS)
    target_compile_options(${target} PRIVATE "SHELL:-include ATen/core/ivalue.h")
  endif()
endfunction()

# For the other tests: GoogleTest's headers take 2 s in every file, and a fourth of that with this header.
function(hinge_precompile_gtest)
  hinge_precompile(hinge_test_headers LIBRARIES GTest::gtest fmt::fmt HEADERS <gtest/gtest.h> <fmt/format.h> <filesystem> <random>)
endfunction()

function(hinge_use_gtest target)
  hinge_compile_quickly(${target})
  target_link_libraries(${target} PRIVATE GTest::gtest fmt::fmt)
  target_precompile_headers(${target} REUSE_FROM hinge_test_headers)
endfunction()
