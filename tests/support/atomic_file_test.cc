// Files appear whole or not at all, and what cannot be written says why.
#include "support/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "errors.h"
#include "file_size_limit.h"
#include "temporary_folder.h"

namespace {

// The folders and files that this thread flushes, if somebody wants to know.
thread_local std::vector<std::string>* flushed = nullptr;

}  // namespace

// In the place of the C library's, for all of this program.
extern "C" int fsync(int descriptor) {
  if (flushed != nullptr) flushed->push_back(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor)));
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace hinge::support {
namespace {

class AtomicFileTest : public TemporaryFolderTest {};

TEST_F(AtomicFileTest, ReplacesOnCommitOnly) {
  put("result", "old");
  {
    AtomicFile abandoned(path("result"));
    abandoned.write("half");
    EXPECT_EQ(content("result"), "old");
  }
  EXPECT_EQ(files(), 1u);
  AtomicFile file(path("result"));
  file.write("n");
  file.commit("ew");
  EXPECT_EQ(content("result"), "new");
  EXPECT_EQ(read_file(path("result")), "new");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, TwoWritersOfOneFileDoNotMix) {
  AtomicFile first(path("result")), second(path("result"));
  first.write("first");
  second.write("second");
  second.commit();
  first.commit();
  EXPECT_EQ(content("result"), "first");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, HasThePermissionsOfAnOrdinaryFile) {
  AtomicFile(path("result")).commit("x");
  put("ordinary", "x");
  struct stat ours {
  }, ordinary{};
  ::stat(path("result").c_str(), &ours);
  ::stat(path("ordinary").c_str(), &ordinary);
  EXPECT_EQ(ours.st_mode, ordinary.st_mode);
}

TEST_F(AtomicFileTest, KeepsThePermissionsOfTheOldFile) {
  for (const mode_t mode : {0600U, 0751U}) {
    put("result", "old");
    ::chmod(path("result").c_str(), mode);
    AtomicFile(path("result")).commit("new");
    struct stat now {};
    ::stat(path("result").c_str(), &now);
    EXPECT_EQ(now.st_mode & 07777U, mode);
  }
}

TEST_F(AtomicFileTest, SaysWhyItCannot) {
  EXPECT_TRUE(mentions(error_of([&] { AtomicFile file(path("missing/result")); }), {"missing/result", "No such file"}));
  EXPECT_TRUE(mentions(error_of([&] { AtomicFile file(folder_.string()); }), {"it is a folder"}));
  EXPECT_TRUE(mentions(error_of([&] { AtomicFile file("/dev/null"); }), {"not an ordinary file"}));
  EXPECT_TRUE(mentions(error_of([&] { AtomicFile file(""); }), {"without a name"}));
  EXPECT_TRUE(mentions(error_of([&] { read_file(path("missing")); }), {"missing", "No such file"}));
  EXPECT_TRUE(mentions(error_of([&] { read_file(folder_.string()); }), {"Is a directory"}));
}

TEST_F(AtomicFileTest, SaysThatAFolderIsUnwritable) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  ::chmod(folder_.c_str(), 0500);
  EXPECT_TRUE(mentions(error_of([&] { AtomicFile file(path("result")); }), {"Permission denied", "may write"}));
  ::chmod(folder_.c_str(), 0700);
}

TEST_F(AtomicFileTest, AFolderThatCannotBeFlushedIsNoError) {
  const int folder = ::open("/proc", O_RDONLY | O_DIRECTORY);
  EXPECT_NE(::fsync(folder), 0);
  EXPECT_EQ(errno, EINVAL);
  ::close(folder);
  EXPECT_EQ(error_of([&] { sync_folder("/proc"); }), "");
  EXPECT_TRUE(mentions(error_of([&] { sync_folder(path("missing")); }), {"missing", "No such file"}));
}

TEST_F(AtomicFileTest, NewFoldersAreFlushedWithThoseAboveThem) {
  std::vector<std::string> names;
  flushed = &names;
  make_folders(path("a/b/c"));
  make_folders(path("a/b/c"));
  flushed = nullptr;
  EXPECT_EQ(names, (std::vector<std::string>{folder_.string(), path("a"), path("a/b")}));
  EXPECT_TRUE(mentions(error_of([&] { make_folders("/proc/none/a"); }), {"/proc/none/a"}));
}

TEST_F(AtomicFileTest, KeepsTheOldFileWhenTheDiskIsFull) {
  put("result", "old");
  {
    const FileSizeLimit limit(1000);
    const std::string message = error_of([&] { AtomicFile(path("result")).commit(std::string(5000, 'x')); });
    EXPECT_TRUE(mentions(message, {"result", "File too large"}));
  }
  EXPECT_EQ(content("result"), "old");
  EXPECT_EQ(files(), 1u);
  const int full = ::open("/dev/full", O_WRONLY);
  EXPECT_TRUE(mentions(error_of([&] { write_all(full, "x", "/dev/full"); }), {"No space left", "free some space"}));
  ::close(full);
}

}  // namespace
}  // namespace hinge::support
