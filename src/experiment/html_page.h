// The frame of our HTML pages: one file that loads nothing from elsewhere, for light and dark screens.
#pragma once

#include <string>
#include <string_view>

namespace hinge::experiment {

// `body` is HTML; title and subtitle are texts and escaped here.
std::string html_page(std::string_view title, std::string_view subtitle, std::string_view body);

}  // namespace hinge::experiment
