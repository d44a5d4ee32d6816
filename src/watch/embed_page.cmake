# Writes a C++ file that holds the files of the page as they are: cmake -DFILES=... -DOUT=... -P embed_page.cmake
set(rows "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  get_filename_component(ending ${file} LAST_EXT)
  if(ending STREQUAL ".html")
    set(type "text/html; charset=utf-8")
  elseif(ending STREQUAL ".css")
    set(type "text/css; charset=utf-8")
  elseif(ending STREQUAL ".js")
    set(type "text/javascript; charset=utf-8")
  elseif(ending STREQUAL ".svg")
    set(type "image/svg+xml")
  else()
    message(FATAL_ERROR "${file}: no type is known for files of this ending")
  endif()
  file(READ ${file} content)
  string(APPEND rows "    {\"/${name}\", \"${type}\", R\"~page~(${content})~page~\"},\n")
endforeach()
file(WRITE ${OUT} "// Made by embed_page.cmake from src/watch/page.
#include \"watch/web_app.h\"

namespace hinge::watch {

const PageFile* find_page_file(std::string_view path) {
  static constexpr PageFile kFiles[] = {
${rows}  };
  for (const PageFile& file : kFiles)
    if (file.path == path) return &file;
  return nullptr;
}

}  // namespace hinge::watch
")
