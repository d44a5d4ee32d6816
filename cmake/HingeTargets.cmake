# What all targets of Hinge have in common: include directories, warnings, sanitizers, and the precompiled header of torch.

set(HINGE_SANITIZER_FLAGS "")
if(HINGE_SANITIZE)
  set(HINGE_SANITIZER_FLAGS -fsanitize=${HINGE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
endif()

# Our own code sees include/ (public) and src/ (private, as "kernels/reference.h"), and compiles without warnings.
function(hinge_target target)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/include PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${target} PRIVATE -Wall -Wextra $<$<BOOL:${HINGE_WERROR}>:-Werror> ${HINGE_SANITIZER_FLAGS})
  target_link_options(${target} PRIVATE ${HINGE_SANITIZER_FLAGS})
  # -fPIC everywhere, executables too: the library can go into a shared object, and all can share one precompiled header.
  target_compile_options(${target} PRIVATE -fPIC)
endfunction()

# For a target whose sources include torch.
# OpenMP comes along because at::parallel_for is an OpenMP loop in a header: a file compiled without -fopenmp would silently run it on
# one thread.
function(hinge_link_torch target)
  target_link_libraries(${target} PRIVATE torch OpenMP::OpenMP_CXX)
  # LibTorch 1.13 has a std::vector of the incomplete IValue in List.h, which Clang in C++20 mode refuses unless ivalue.h comes first.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:Clang>:SHELL:-include ATen/core/ivalue.h>)
endfunction()

# What parses and glues, and the tests: no loop in them is hot, and -O1 compiles twice as fast as -O3.
function(hinge_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# torch's headers take 11 to 29 s in every file that includes them, and 2 to 5 s with this header, made once in 20 s.
# A header as large as this one costs every file that uses it: only torch's are in it.
function(hinge_precompile_torch)
  file(WRITE ${PROJECT_BINARY_DIR}/torch_headers.cc "")
  add_library(hinge_torch_headers OBJECT ${PROJECT_BINARY_DIR}/torch_headers.cc)
  hinge_target(hinge_torch_headers)
  hinge_link_torch(hinge_torch_headers)
  hinge_compile_quickly(hinge_torch_headers)
  target_precompile_headers(hinge_torch_headers PRIVATE <ATen/ATen.h> <torch/csrc/autograd/custom_function.h> <torch/library.h>)
endfunction()

function(hinge_use_torch target)
  hinge_link_torch(${target})
  hinge_compile_quickly(${target})
  target_precompile_headers(${target} REUSE_FROM hinge_torch_headers)
endfunction()
