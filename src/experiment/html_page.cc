#include "experiment/html_page.h"

#include <fmt/format.h>

#include "experiment/markup.h"

namespace hinge::experiment {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --page: #fff; --text: #1b1b1b; --quiet: #666; --rule: #ddd; --stripe: #f6f6f6; }
@media (prefers-color-scheme: dark) { :root { --page: #16181b; --text: #e6e6e6; --quiet: #9a9a9a; --rule: #363a40; --stripe: #1e2125; } }
body { margin: 2rem auto; max-width: 70rem; padding: 0 1rem; background: var(--page); color: var(--text);
       font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; } .quiet { color: var(--quiet); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; } th, td { padding: .3rem .8rem; text-align: left; border-bottom: 1px solid var(--rule); white-space: nowrap; }
tbody tr:nth-child(odd) { background: var(--stripe); } td { font-variant-numeric: tabular-nums; }
figure { display: inline-block; margin: .5rem 1rem .5rem 0; vertical-align: top; } figcaption { color: var(--quiet); max-width: 30rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1rem; } .charts figure { margin: 0; }
pre { padding: .8rem 1rem; background: var(--stripe); overflow-x: auto; font-size: 13px; }
svg, img { max-width: 100%; height: auto; border-radius: 4px; }
)";

}  // namespace

std::string html_page(std::string_view title, std::string_view subtitle, std::string_view body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{0}</title>\n<style>{2}</style>\n</head>\n<body>\n"
      "<h1>{0}</h1>\n<p class=\"quiet\">{1}</p>\n{3}</body>\n</html>\n",
      escaped(title), escaped(subtitle), kStyle, body);
}

}  // namespace hinge::experiment
