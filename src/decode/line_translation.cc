#include "decode/line_translation.h"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "text/error.h"
#include "text/files.h"
#include "text/unicode.h"

namespace hinge::decode {
namespace {

constexpr size_t kMostWaiting = 16 << 20;

}  // namespace

LineTranslation::LineTranslation(const Translator& translator, std::optional<int64_t> part_tokens) : translator_(translator) {
  if (part_tokens) cutter_.emplace(std::min(*part_tokens, translator.max_tokens()));
}

void LineTranslation::add(std::string_view line) {
  if (cutter_ && text::strip(line).empty()) {
    end_document();
    ++lines_;
    return;
  }
  Source source = translator_.encode(line);
  if (!cutter_) {
    parts_.push_back({lines_, std::move(source)});
  } else if (cutter_->begins_part(static_cast<int64_t>(source.size()) - 1)) {
    close_part();
    open_ = {lines_, std::move(source)};
  } else {
    open_->source.pop_back();  // its end token
    open_->source.insert(open_->source.end(), source.begin(), source.end());
  }
  ++lines_;
}

void LineTranslation::end_document() {
  close_part();
  if (cutter_) cutter_->end_document();
}

void LineTranslation::close_part() {
  if (open_) parts_.push_back(std::move(*open_));
  open_.reset();
}

TranslationCounts LineTranslation::translate(const Write& write, const Translator::Progress& progress) {
  std::vector<Source> sources;
  std::vector<size_t> heads;  // the first lines of the parts, and where the lines end whose answers are known then
  for (Part& part : parts_) {
    heads.push_back(part.line);
    sources.push_back(std::move(part.source));
  }
  heads.push_back(open_ ? open_->line : lines_);
  parts_.clear();

  std::vector<LineAnswer> answers;
  const auto answer_nothing_until = [&](size_t end) {
    for (; answered_ < end; ++answered_) answers.push_back({answered_, {}});
  };
  answer_nothing_until(heads.front());
  const auto write_answers = [&] {
    if (!answers.empty()) write(answers);
    answers.clear();
  };
  const auto take = [&](size_t first, const Translator::Translations& translations) {
    for (size_t i = 0; i < translations.size(); ++i) {
      answers.push_back({answered_++, translations[i]});
      answer_nothing_until(heads[first + i + 1]);
    }
    write_answers();
  };
  const TranslationCounts counts = translator_.translate_in_groups(sources, take, progress);
  write_answers();  // blank lines alone
  return counts;
}

LinesDone translate_lines(const Translator& translator, text::LineReader& reader, std::optional<int64_t> part_tokens,
                          const LineTranslation::Write& write, const std::function<bool()>& stopped,
                          const std::function<void(int64_t done, int64_t all)>& progress) {
  LineTranslation translation(translator, part_tokens);
  const auto read = [&](const text::LineGroup& group) {
    int64_t number = group.first;
    for (const std::string& line : group.lines) {
      if (const std::optional<std::string> problem = text::utf8_problem(line)) throw text::TextError(group.file, number, *problem);
      try {
        translation.add(line);
      } catch (const std::runtime_error& error) {
        throw text::TextError(group.file, number, error.what());
      }
      ++number;
    }
    if (group.ends_file) translation.end_document();
  };
  const auto goes_on = [&](int64_t done, int64_t all) {
    if (progress) progress(done, all);
    return !stopped();
  };
  LinesDone result;
  size_t waiting = 0;  // bytes of the lines that were read and not translated
  for (;;) {
    std::optional<text::LineGroup> group;
    std::exception_ptr error;
    try {
      group = reader.next(stopped);
      if (group) read(*group);
      for (size_t i = 0; group && i < group->lines.size(); ++i) waiting += group->lines[i].size();
    } catch (const text::TextError&) {
      if (!reader.live()) throw;
      error = std::current_exception();
      translation.end_document();
    }
    result.read_all = !group && !error && !stopped();
    if (reader.live() || !group || waiting > kMostWaiting) {
      waiting = 0;
      const TranslationCounts counts = translation.translate(write, goes_on);
      result.counts += counts;
      if (counts.done < counts.all) return result;
    }
    if (error) std::rethrow_exception(error);
    if (!group) return result;
  }
}

}  // namespace hinge::decode
