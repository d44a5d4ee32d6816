# What `cmake --install` and `cpack` write: the libraries for find_package(Hinge), and the hinge command with what belongs to it.
#   cmake --install build/release --prefix DIR [--component library | command]
#   cpack --config build/release/CPackConfig.cmake        the command as a .deb, in build/release/package
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The libraries. Headers are installed by folder, so that a new one needs no line here.
set(HINGE_COMPONENTS kernels)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Hinge)

function(hinge_install_library component export)
  set(target hinge_${component})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${component})
  target_compile_features(${target} PUBLIC cxx_std_20)
  install(TARGETS ${target} EXPORT ${export} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT ${export} NAMESPACE Hinge:: DESTINATION ${package_dir} COMPONENT library)
endfunction()

hinge_install_library(kernels HingeKernelsTargets)
install(DIRECTORY include/hinge DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library PATTERN ops EXCLUDE)
if(HINGE_TORCH)
  list(APPEND HINGE_COMPONENTS ops)
  hinge_install_library(ops HingeOpsTargets)
  # Its headers show tensors. In this build, what uses them links torch itself, with the precompiled header.
  target_link_libraries(hinge_ops PUBLIC $<INSTALL_INTERFACE:torch>)
  install(DIRECTORY include/hinge/ops DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/hinge COMPONENT library)
  install(FILES cmake/FindOneDNN.cmake DESTINATION ${package_dir} COMPONENT library)
endif()

configure_package_config_file(cmake/HingeConfig.cmake.in ${PROJECT_BINARY_DIR}/HingeConfig.cmake INSTALL_DESTINATION ${package_dir}
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/HingeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/HingeConfig.cmake ${PROJECT_BINARY_DIR}/HingeConfigVersion.cmake DESTINATION ${package_dir} COMPONENT library)

# The command; its manual page and completion are its own words.
if(HINGE_TORCH)
  set(manual ${PROJECT_BINARY_DIR}/hinge.1)
  set(completion ${PROJECT_BINARY_DIR}/completion/hinge)
  add_custom_command(OUTPUT ${manual} ${completion} DEPENDS hinge VERBATIM
    COMMAND hinge manual > ${manual}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/completion
    COMMAND hinge completion bash > ${completion})
  add_custom_target(hinge_manual ALL DEPENDS ${manual} ${completion})

  set_target_properties(hinge hinge_sentencepiece PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)  # finds a LibTorch outside of the system's folders
  install(TARGETS hinge RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
  install(TARGETS hinge_sentencepiece LIBRARY DESTINATION lib/hinge COMPONENT command)  # text/pieces.cc looks there
  install(FILES ${manual} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT command)
  install(FILES ${completion} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT command)
  install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/hinge COMPONENT command)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT command RENAME copyright)
  install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT command)
  install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT command)

  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_NAME hinge)
  set(CPACK_PACKAGE_CONTACT "The Hinge developers <hinge@localhost>")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "transformers without softmax: train, evaluate, translate on CPUs")
  set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/package)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_COMPONENTS_ALL command)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME hinge)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  # LibTorch calls whatever BLAS is there, and Debian's default is the slow reference one. The images are those of configs/vit/fashion.toml.
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libopenblas0-openmp, dataset-fashion-mnist")
  include(CPack)
endif()
