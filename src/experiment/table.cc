#include "experiment/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "experiment/markup.h"

namespace hinge::experiment {
namespace {

std::string html_row(const std::vector<std::string>& cells, const char* tag) {
  std::string html = "<tr>";
  for (const std::string& cell : cells) html += fmt::format("<{0}>{1}</{0}>", tag, escaped(cell));
  return html + "</tr>\n";
}

std::string markdown_row(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) {
    line += ' ';
    for (const char c : cell) {
      if (c == '|' || c == '\\' || c == '<' || c == '*' || c == '_') line += '\\';
      line += c == '\n' ? ' ' : c;
    }
    line += " |";
  }
  return line + "\n";
}

}  // namespace

std::string table_text(const Table& table) {
  std::vector<size_t> widths;
  for (const std::string& title : table.header) widths.push_back(letter_count(title));
  for (const auto& row : table.rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], letter_count(row[i]));
  std::string text;
  const auto add = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) line += cells[i] + std::string(widths[i] - letter_count(cells[i]) + 2, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add(table.header);
  for (const auto& row : table.rows) add(row);
  return text;
}

std::string table_markdown(const Table& table, size_t labels) {
  std::string text = markdown_row(table.header) + "|";
  for (size_t i = 0; i < table.header.size(); ++i) text += i < labels ? "---|" : "---:|";
  text += '\n';
  for (const auto& row : table.rows) text += markdown_row(row);
  return text;
}

std::string table_html(const Table& table) {
  std::string html = "<div class=\"wide\"><table><thead>" + html_row(table.header, "th") + "</thead><tbody>\n";
  for (const auto& row : table.rows) html += html_row(row, "td");
  return html + "</tbody></table></div>\n";
}

}  // namespace hinge::experiment
