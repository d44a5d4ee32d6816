// Reads all catalogues of a language, cleans their messages, splits them.
#include "text/catalogues.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>

#include "support/hash.h"
#include "text/format_codes.h"
#include "text/hot_keys.h"
#include "text/mo_file.h"
#include "text/plural_forms.h"
#include "text/po.h"
#include "text/unicode.h"

namespace hinge::text {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnglish = "en";
constexpr size_t kLargestHeldOutGroup = 20;
constexpr int kMostWordsOfCopies = 3;
constexpr size_t kFewestWordsToDiffer = 5;  // near-duplicates differ in one word of at least so many

fs::path folder_of(const CatalogueOptions& options, const std::string& language) {
  return fs::path(options.root) / language / "LC_MESSAGES";
}

// Names and paths of the catalogues of a language.
std::map<std::string, std::string> find_catalogues(const CatalogueOptions& options, const std::string& language) {
  std::map<std::string, std::string> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_of(options, language), error))
    if (entry.path().extension() == ".mo") found[entry.path().stem().string()] = entry.path().string();
  if (!found.empty()) return found;

  std::set<std::string> others;
  for (const fs::directory_entry& entry : fs::directory_iterator(options.root, error)) {
    std::error_code ignored;
    if (fs::exists(entry.path() / "LC_MESSAGES", ignored)) others.insert(entry.path().filename().string());
  }
  throw TextError(folder_of(options, language).string(), 0,
                  others.empty() ? "holds no catalogues (.mo); install programs with translations, such as git or gcc-12-locales"
                                 : fmt::format("holds no catalogues (.mo) of '{}'; there are: {}", language, fmt::join(others, ", ")));
}

// A message in one language: as it is for one thing, and if it counts things for many.
struct Wording {
  std::string one;
  std::optional<std::string> many;
};

// Before msgctxt there was "context|message", which the program cuts off where no translation is found. That the translation has no bar
// says more than the words behind it.
std::string without_old_context(const std::string& id, const std::string& translation) {
  const size_t bar = id.find('|');
  const bool old = bar != std::string::npos && id.find('|', bar + 1) == std::string::npos && translation.find('|') == std::string::npos &&
                   may_be_context(std::string_view(id).substr(0, bar));
  return old ? id.substr(bar + 1) : id;
}

Wording english(const Message& message) {
  if (!message.plural.empty()) return {message.id, message.plural};
  return {message.context.empty() ? without_old_context(message.id, message.forms.front()) : message.id, {}};
}

Wording translated(const Message& message, const PluralForms& plurals) {
  if (message.plural.empty()) return {message.forms.front(), {}};
  const auto form = [&](uint64_t n) { return message.forms[std::min(plurals.form(n), message.forms.size() - 1)]; };
  return {form(1), form(5)};
}

PluralForms plural_forms_of(const MoFile& file) {
  try {
    return PluralForms(header_field(file.header, "Plural-Forms"));
  } catch (const std::runtime_error&) {  // templates left as they were: "nplurals=INTEGER"
    return PluralForms();
  }
}

class Collector {
 public:
  explicit Collector(const CatalogueOptions& options) : options_(options) {}

  // `singular`: the message's form for one thing, if this is its plural.
  void add(Document& document, std::string source, std::string target, CatalogueText& text, const std::string& singular = "") {
    const auto skip = [&](const char* reason) { ++text.skipped[reason]; };
    source = collapse_spaces(source);
    target = collapse_spaces(target);
    remove_hot_keys(source, target);
    if (source.empty() || target.empty()) return skip("without a translation");
    const auto longest = static_cast<size_t>(options_.longest);
    if (count_code_points(source) > longest || count_code_points(target) > longest) return skip("over-long");
    if (!has_words(source) || !has_words(target)) return skip("without words");
    if (!same_format_codes(source, target)) return skip("with other format codes");
    if (source == target && std::count(source.begin(), source.end(), ' ') >= kMostWordsOfCopies) return skip("not translated");
    const auto [known, is_new] = singulars_.try_emplace(both(source, target));
    if (!singular.empty()) known->second.insert(singular);
    if (!is_new) return skip("there already");
    document.pairs.push_back({std::move(source), std::move(target)});
  }

  // All pairs of documents that add() has filled.
  std::vector<SplitPair> pairs(const std::vector<Document>& documents) const {
    std::vector<SplitPair> all;
    for (const Document& document : documents)
      for (const Pair& one : document.pairs) all.push_back({&one, singulars_.at(both(one.source, one.target))});
    return all;
  }

 private:
  static std::string both(const std::string& source, const std::string& target) { return source + '\0' + target; }

  const CatalogueOptions& options_;
  std::unordered_map<std::string, std::set<std::string>> singulars_;  // of all pairs there are
};

// FNV-1a, then the finisher of MurmurHash3, so that the high bits depend on all characters.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = support::fnv1a(text);
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
  return hash ^ hash >> 33;
}

// At least 0, less than 1.
double uniform_hash(std::string_view text) { return static_cast<double>(hash_of(text) >> 11) * 0x1p-53; }

// Near-duplicates share one: a key, and if it is long enough what is left of it without each of its words.
std::vector<uint64_t> near_duplicate_hashes(const std::string& key) {
  std::vector<uint64_t> hashes = {hash_of(key)};
  if (static_cast<size_t>(std::count(key.begin(), key.end(), ' ')) + 1 < kFewestWordsToDiffer) return hashes;
  for (size_t begin = 0; begin < key.size();) {
    const size_t end = std::min(key.find(' ', begin), key.size() - 1) + 1;
    std::string rest = key.substr(0, begin) + key.substr(end);
    if (rest.ends_with(' ')) rest.pop_back();
    hashes.push_back(hash_of(rest));
    begin = end;
  }
  return hashes;
}

}  // namespace

LanguagePair parse_language_pair(const std::string& text) {
  const size_t dash = text.find('-');
  LanguagePair pair;
  if (dash != std::string::npos) pair = {text.substr(0, dash), text.substr(dash + 1)};
  if (pair.source.empty() || pair.target.empty() || pair.target.find('-') != std::string::npos || text.find('/') != std::string::npos ||
      pair.source == pair.target)
    throw std::runtime_error(
        fmt::format("pair '{}' is not a language pair: give two different languages, such as en-de or pt_BR-en", text));
  return pair;
}

std::string near_duplicate_key(std::string_view text) {
  const std::vector<FormatCode> codes = find_format_codes(text);
  std::string key;
  size_t next = 0;
  for (size_t at = 0; at < text.size();) {
    char32_t c = ' ';
    if (next < codes.size() && at == codes[next].begin)
      at = codes[next++].end;
    else
      c = next_code_point(text, at);
    if (is_digit(c)) {
      if (!key.ends_with('0')) key += '0';
    } else if (is_letter(c)) {
      append_utf8(key, lower_case(c));
    } else if (!key.empty() && key.back() != ' ') {
      key += ' ';
    }
  }
  if (key.ends_with(' ')) key.pop_back();
  return key;
}

std::vector<Part> split_parts(const std::vector<SplitPair>& pairs, double held_out) {
  // A forest over the pairs: each points to an earlier pair of its group, or to itself.
  std::vector<size_t> parent(pairs.size());
  std::iota(parent.begin(), parent.end(), size_t{0});
  const auto root = [&](size_t i) {
    while (parent[i] != i) i = parent[i] = parent[parent[i]];
    return i;
  };
  using First = std::unordered_map<uint64_t, size_t>;  // the first pair with a hash
  First sources, targets;
  const auto join = [&](size_t i, const std::vector<uint64_t>& hashes, First& first) {
    for (const uint64_t hash : hashes) {
      const size_t a = root(i), b = root(first.try_emplace(hash, i).first->second);
      parent[std::max(a, b)] = std::min(a, b);
    }
  };
  std::vector<std::string> keys(pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    keys[i] = near_duplicate_key(pairs[i].pair->source);
    join(i, near_duplicate_hashes(keys[i]), sources);
    join(i, near_duplicate_hashes(near_duplicate_key(pairs[i].pair->target)), targets);
    for (const std::string& singular : pairs[i].singulars) join(i, {hash_of(near_duplicate_key(singular))}, sources);
  }

  struct Group {
    size_t size = 0;
    const std::string* key = nullptr;
  };
  std::vector<Group> groups(pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    Group& group = groups[root(i)];
    ++group.size;
    if (group.key == nullptr || keys[i] < *group.key) group.key = &keys[i];
  }
  std::vector<Part> parts(pairs.size(), Part::train);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Group& group = groups[root(i)];
    if (group.size > kLargestHeldOutGroup) continue;
    const double place = uniform_hash(*group.key);
    parts[i] = place < held_out ? Part::test : place < 2 * held_out ? Part::valid : Part::train;
  }
  return parts;
}

CatalogueText read_catalogues(const CatalogueOptions& options) {
  const LanguagePair pair = parse_language_pair(options.pair);
  if (!(options.held_out >= 0 && options.held_out <= 0.4))
    throw std::runtime_error(fmt::format("held_out {} is not allowed: give a share from 0 to 0.4", options.held_out));
  std::map<std::string, std::string> sources, targets;
  if (pair.source != kEnglish) sources = find_catalogues(options, pair.source);
  targets = pair.target != kEnglish ? find_catalogues(options, pair.target) : sources;

  const bool neither_english = pair.source != kEnglish && pair.target != kEnglish;

  CatalogueText text;
  Collector collector(options);
  std::vector<Document> documents;
  for (const auto& [name, target_path] : targets) {
    if (pair.source != kEnglish && !sources.contains(name)) continue;
    try {
      const MoFile target = read_mo(target_path);
      const PluralForms target_plurals = plural_forms_of(target);
      MoFile other;  // of the source, where neither is English
      std::unordered_map<std::string, const Message*> others;
      if (neither_english) {
        other = read_mo(sources.at(name));
        for (const Message& message : other.messages) others[message.context + '\4' + message.id] = &message;
      }
      const PluralForms other_plurals = plural_forms_of(other);
      ++text.catalogues;
      text.messages += static_cast<int64_t>(target.messages.size());
      Document document{name, {}};
      for (const Message& message : target.messages) {
        if (names_translators(message.id, message.context)) {
          ++text.skipped["names of translators"];
          continue;
        }
        Wording from = english(message), to = translated(message, target_plurals);
        if (pair.target == kEnglish) std::swap(from, to);
        if (neither_english) {
          const auto found = others.find(message.context + '\4' + message.id);
          if (found == others.end()) {
            ++text.skipped["in one language only"];
            continue;
          }
          from = translated(*found->second, other_plurals);
        }
        collector.add(document, from.one, to.one, text);
        if (from.many && to.many) collector.add(document, *from.many, *to.many, text, from.one);
      }
      if (!document.pairs.empty()) documents.push_back(std::move(document));
    } catch (const TextError& error) {
      if (options.on_error == OnError::stop) throw with_skip_advice(error, "catalogues");
      ++text.skipped["catalogues that cannot be read"];
    }
  }

  const std::vector<SplitPair> pairs = collector.pairs(documents);
  if (pairs.empty())
    throw TextError(options.root, 0, fmt::format("has no messages for {}: install programs with translations, such as git", options.pair));
  const std::vector<Part> parts = split_parts(pairs, options.held_out);
  size_t at = 0;
  for (Document& document : documents) {
    std::array<Document, 3> split;
    for (Pair& one : document.pairs) split[static_cast<size_t>(parts[at++])].pairs.push_back(std::move(one));
    ParallelText* const to[] = {&text.train, &text.valid, &text.test};
    for (size_t part = 0; part < split.size(); ++part) {
      if (split[part].pairs.empty()) continue;
      split[part].name = document.name;
      to[part]->documents.push_back(std::move(split[part]));
    }
  }
  return text;
}

}  // namespace hinge::text
