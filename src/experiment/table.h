// A table of texts, for a terminal, a Markdown file or an HTML page.
#pragma once

#include <string>
#include <vector>

namespace hinge::experiment {

struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // each as long as the header
};

// Columns aligned by spaces, for a terminal.
std::string table_text(const Table& table);

// In Markdown; the first `labels` columns are aligned left, the others right.
std::string table_markdown(const Table& table, size_t labels);

// In HTML, escaped.
std::string table_html(const Table& table);

}  // namespace hinge::experiment
